"""Beam search (section 6.1): the k best hypotheses of each sentence grow by one word a step.

:mod:`.scoring_rules` says what is finished and when to stop; :mod:`.history` reads the results.

Shape letters: N sentences still searched, k beam, C = 2k candidates, R = N·k rows, V vocabulary.
The host waits for the device once a step.
"""

from typing import Protocol, Tuple

import torch
from torch import Tensor

from .history import Trail
from .scoring_rules import Rule

BLOCK = 64
"""See :func:`top_candidates`."""


class Model(Protocol):
    """What the search asks of a model."""

    def next(self, words: Tensor, length: int) -> Tensor:
        """Log-probabilities [R, V] of what may follow ``words`` [R] as token number ``length``."""

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what was row ``rows[i]``."""

    def keep(self, sentences: Tensor) -> None:
        """The other sentences have left; :meth:`reorder` follows."""


def top_candidates(scores: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    """``scores.topk(count)`` for long rows, most of which it does not have to sort.

    The best ``count`` elements lie in the ``count`` blocks with the greatest maxima.

    Args:
        scores: [N, M]

    Returns:
        Values and positions [N, count], best first.
    """
    rows, width = scores.shape
    if width < 4 * count * BLOCK:
        values, positions = scores.topk(count)
        return values, positions
    whole = width // BLOCK * BLOCK
    blocks = scores[:, :whole].view(rows, -1, BLOCK)
    chosen = blocks.amax(dim=2).topk(count).indices[:, :, None]  # [N, count, 1]
    inside = torch.arange(BLOCK, device=scores.device)
    positions = (chosen * BLOCK + inside).flatten(1)
    rest = torch.arange(whole, width, device=scores.device).expand(rows, -1)
    positions = torch.cat([positions, rest], dim=1)
    values, best = scores.gather(1, positions).topk(count)
    return values, positions.gather(1, best)


def beam_search(
    model: Model, rule: Rule, sentences: int, beam: int, end: int, limit: int, device: torch.device
) -> Trail:
    """Search all sentences of a batch at once; those that are done leave it.

    Args:
        model: gives log-probabilities
        rule: says what is finished
        sentences: in the batch
        beam: k
        end: the end of sentence, with which the decoder also begins
        limit: the greatest length in tokens
        device: where the model is

    Returns:
        The steps, from which to read the results.
    """
    trail = Trail()
    numbers = torch.arange(sentences, device=device)
    words = torch.full((sentences, 1), end, device=device)
    scores = torch.zeros(sentences, 1, device=device)  # one hypothesis each: nothing yet
    for length in range(1, limit + 1):
        log_probs = model.next(words.flatten(), length)
        vocabulary = log_probs.size(1)
        totals = log_probs.view(*scores.shape, vocabulary).add_(scores[:, :, None]).flatten(1)
        found, at = top_candidates(totals, 2 * beam)  # [N, C]; k of them may be ends
        first_row = torch.arange(len(scores), device=device)[:, None] * scores.size(1)
        rows = first_row + at.div(vocabulary, rounding_mode="floor")
        candidates = at % vocabulary
        is_end = candidates.eq(end) & found.gt(float("-inf"))
        alive = is_end.to(torch.uint8).argsort(dim=1, stable=True)[:, :beam]
        ended, done = rule.ends(found, is_end, alive, length)
        chosen = alive + torch.arange(len(found), device=device)[:, None] * found.size(1)
        step = {"sentences": numbers, "scores": found, "words": candidates, "rows": rows}
        if done.any():
            kept = done.logical_not().nonzero()[:, 0]
            rule.keep(kept)
            model.keep(kept)
            chosen, numbers = chosen[kept], numbers[kept]
        trail.add(**step, ended=ended, chosen=chosen.flatten())
        if length == limit or not len(chosen):
            break
        words, scores = candidates.take(chosen), found.take(chosen)
        if beam > 1 or len(chosen) < len(found):
            model.reorder(rows.take(chosen).flatten())
    return trail
