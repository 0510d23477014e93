"""Beam search (section 6.1): the k best hypotheses of each sentence grow by one token per step.

:mod:`.scoring_rules` says what is finished and when to stop; :mod:`.history` reads the results.

Shape letters: N sentences still searched, k beam (1 in the first step, in which all hypotheses are
the same), C = 2k candidates, R = N·k rows, one for each hypothesis, V vocabulary.
The host waits for the device once per step.
"""

from typing import Protocol, Tuple

import torch
from torch import Tensor

from .history import History
from .scoring_rules import Rule

BLOCK = 64
"""See :func:`top_candidates`."""


class NextTokenModel(Protocol):
    """What the search needs from a model, which remembers the hypotheses so far."""

    def log_probs(self, tokens: Tensor, length: int) -> Tensor:
        """Log-probabilities [R, V] of token number ``length``, after the ``tokens`` [R]."""

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what was row ``rows[i]``."""

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these, int64 [N']; :meth:`reorder` follows for their rows."""


def top_candidates(scores: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    """``scores.topk(count)`` for long rows, most of which it does not have to sort.

    An element among the best ``count`` lies in one of the ``count`` blocks with the greatest
    maxima: each block ranked above it holds a better one.

    Args:
        scores: [N, M]

    Returns:
        Values and positions [N, count], best first.
    """
    rows, width = scores.shape
    if width < 4 * count * BLOCK:
        values, positions = scores.topk(count)
        return values, positions
    whole = width // BLOCK * BLOCK  # elements in whole blocks; the rest are candidates anyway
    blocks = scores[:, :whole].view(rows, -1, BLOCK)
    chosen = blocks.amax(dim=2).topk(count).indices[:, :, None]  # [N, count, 1]
    inside = torch.arange(BLOCK, device=scores.device)
    positions = (chosen * BLOCK + inside).flatten(1)  # [N, count·BLOCK]
    rest = torch.arange(whole, width, device=scores.device).expand(rows, -1)
    positions = torch.cat([positions, rest], dim=1)
    values, best = scores.gather(1, positions).topk(count)
    return values, positions.gather(1, best)


def beam_search(
    model: NextTokenModel,
    rule: Rule,
    sentences: int,
    beam: int,
    end: int,
    limit: int,
    device: torch.device,
) -> History:
    """Search all sentences of a batch at once; those that are done are dropped on the way.

    Args:
        model: gives log-probabilities
        rule: says what is finished
        sentences: in the batch
        beam: k
        end: the end-of-sentence token, with which the decoder also begins
        limit: the greatest length in tokens
        device: where the model is

    Returns:
        The steps, from which to read the results.
    """
    history = History()
    numbers = torch.arange(sentences, device=device)  # [N], of the sentences in the batch
    tokens = torch.full((sentences, 1), end, device=device)  # [N, k], the newest of each hypothesis
    # [N, k], log P of each hypothesis; one at first, since k equal ones would stay equal
    scores = torch.zeros(sentences, 1, device=device)
    for length in range(1, limit + 1):
        log_probs = model.log_probs(tokens.flatten(), length)  # [R, V]
        vocabulary = log_probs.size(1)
        # log P of each hypothesis with each next token; those of one sentence compete: [N, k·V]
        totals = log_probs.view(*scores.shape, vocabulary).add_(scores[:, :, None]).flatten(1)
        # [N, C]. Each hypothesis has one end, so at most k of 2k candidates are ends: k can go on
        found, positions = top_candidates(totals, 2 * beam)
        first_row = torch.arange(len(scores), device=device)[:, None] * scores.size(1)
        parents = first_row + positions.div(vocabulary, rounding_mode="floor")  # into R
        candidates = positions % vocabulary  # the tokens
        is_end = candidates.eq(end) & found.gt(float("-inf"))  # an end may be forbidden
        # the best k that go on [N, k]: a stable sort moves ends back and leaves the rest in order
        alive = is_end.to(torch.uint8).argsort(dim=1, stable=True)[:, :beam]
        finished, done = rule.finished(found, is_end, alive, length)
        # the same candidates as positions in the N·C, before sentences are dropped
        chosen = alive + torch.arange(len(found), device=device)[:, None] * found.size(1)
        step = {"sentences": numbers, "scores": found, "tokens": candidates, "parents": parents}
        if done.any():  # here the host waits
            kept = done.logical_not().nonzero()[:, 0]
            rule.keep_sentences(kept)
            model.keep_sentences(kept)
            chosen, numbers = chosen[kept], numbers[kept]
        history.add(**step, finished=finished, chosen=chosen.flatten())
        if length == limit or not len(chosen):
            break
        tokens, scores = candidates.take(chosen), found.take(chosen)
        if beam > 1 or len(chosen) < len(found):  # else every row stays where it is
            model.reorder(parents.take(chosen).flatten())
    return history
