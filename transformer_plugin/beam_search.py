"""Beam search (section 6.1): the k best hypotheses of each sentence grow by one word a step.

Two rules say when a hypothesis is finished, what it scores and when the search stops: the paper's,
as its authors' code has it (:class:`GnmtRule`), and fairseq's (:class:`FairseqRule`).

Shape letters: N sentences still searched, k beam, C = 2k candidates, R = N·k rows, V vocabulary.
Candidates are sorted, best first. The host waits for the device once a step.
"""

from typing import Callable, Dict, List, NamedTuple, Protocol, Tuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 64
"""See :func:`top_candidates`."""


class Rule(Protocol):
    """When hypotheses end. A rule remembers what it needs of each sentence."""

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """What the log-probability of a hypothesis of so many tokens is divided by."""

    def ends(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """Called once a step.

        Args:
            scores: log-probabilities of the candidates [N, C]
            is_end: which candidates are an end of sentence, bool [N, C]
            alive: numbers of the k best other candidates [N, k]
            length: tokens of a candidate, this step's included

        Returns:
            Which candidates are results, bool [N, C], and which sentences are done, bool [N].
        """

    def keep(self, sentences: Tensor) -> None:
        """The other sentences have left; int64 [N']."""


class FairseqRule:
    """fairseq's rule: a hypothesis scores log P / length^power, and the first k that end win.

    An end of sentence counts if it is among the best k candidates.

    Args:
        power: ``--lenpen``
        sentences: N
        beam: k
        device: where the search runs
    """

    def __init__(self, power: float, sentences: int, beam: int, device: torch.device) -> None:
        self.power = power
        self.beam = beam
        self.found = torch.zeros(sentences, 1, dtype=torch.int64, device=device)

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """length^power."""
        return lengths**self.power

    def ends(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """See :class:`Rule`."""
        among_best = is_end.clone()
        among_best[:, self.beam :] = False
        number = self.found + among_best.cumsum(1)  # of each end, counted over all steps
        self.found = number[:, -1:]
        return among_best & (number <= self.beam), self.found[:, 0] >= self.beam

    def keep(self, sentences: Tensor) -> None:
        """See :class:`Rule`."""
        self.found = self.found[sentences]


class GnmtRule:
    """The paper's rule (6.1): score log P / ((5 + length) / 6)^alpha, "early termination".

    As tensor2tensor has it: every end of sentence among the 2k candidates counts; the search stops
    when what is found beats what could still come, the best live hypothesis' log P divided by the
    penalty of the greatest length. Hypotheses without an end are results only where nothing ended
    within that length.

    Args:
        alpha: at least 0; 0.6 in the paper
        limits: greatest length of each sentence's output in tokens, its end included [N]
        wanted: how many results have to beat what could still come
    """

    def __init__(self, alpha: float, limits: Tensor, wanted: int) -> None:
        self.alpha = alpha
        self.limits = limits
        self.best = torch.full((len(limits), wanted), float("-inf"), device=limits.device)

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """((5 + length) / 6)^alpha."""
        return ((5 + lengths) / 6) ** self.alpha

    def ends(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """See :class:`Rule`."""
        ended = scores.masked_fill(~is_end, float("-inf")) / ((5 + length) / 6) ** self.alpha
        best = torch.cat([self.best.to(scores), ended], dim=1)
        self.best = best.topk(self.best.size(1), dim=1).values
        hope = scores.gather(1, alive[:, :1])[:, 0] / ((5 + self.limits) / 6) ** self.alpha
        at_limit = self.limits <= length
        nothing_ended = at_limit & self.best[:, 0].isneginf()
        unfinished = torch.zeros_like(is_end).scatter(1, alive, True) & nothing_ended[:, None]
        return is_end | unfinished, at_limit | (self.best[:, -1] > hope)

    def keep(self, sentences: Tensor) -> None:
        """See :class:`Rule`."""
        self.best, self.limits = self.best[sentences], self.limits[sentences]


class Hypotheses(NamedTuple):
    """All results of a batch, n of them, sorted by sentence and score."""

    sentences: List[int]
    tokens: Tuple[Tensor, ...]  # n times [length]
    token_scores: Tuple[Tensor, ...]  # n times [length], log-probabilities
    scores: Tensor  # [n]


class Trail:
    """What each step looked at and chose; hypotheses are read off it, backwards, at the end."""

    def __init__(self) -> None:
        self.steps: List[Dict[str, Tensor]] = []

    def add(self, **step: Tensor) -> None:
        """Keep a step's tensors where they are.

        ``sentences`` [N], of the batch; of the candidates [N, C] ``scores``, ``words``, ``rows``
        (which hypothesis of the step before they continue) and ``ended``; ``chosen`` [R], the
        candidates that live on, as numbers into the N·C.
        """
        self.steps.append(step)

    def on_host(self) -> List[Dict[str, np.ndarray]]:
        """The same as arrays: one transfer for all, not one for each."""
        tensors = [tensor for step in self.steps for tensor in step.values()]
        if tensors[0].is_cpu:
            arrays = iter([tensor.numpy() for tensor in tensors])
        else:  # float64 holds every number, word and truth value here exactly
            together = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu()
            parts = together.split([tensor.numel() for tensor in tensors])
            types = {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
            arrays = iter(
                part.view(tensor.shape).numpy().astype(types.get(tensor.dtype, np.float64))
                for part, tensor in zip(parts, tensors)  # noqa: B905
            )
        return [{name: next(arrays) for name in step} for step in self.steps]

    def hypotheses(self, penalty: Callable[[np.ndarray], np.ndarray], beam: int) -> Hypotheses:
        """The ``beam`` best results of each sentence, or as many as there are."""
        steps = self.on_host()
        where = [np.nonzero(step["ended"]) for step in steps]
        last = np.repeat(np.arange(len(steps)), [len(found[0]) for found in where])

        def at_the_ends(name: str) -> np.ndarray:
            return np.concatenate([step[name][at] for step, at in zip(steps, where)])  # noqa: B905

        sentences = np.concatenate(
            [step["sentences"][at[0]] for step, at in zip(steps, where)]  # noqa: B905
        )
        totals, row = at_the_ends("scores"), at_the_ends("rows")
        words = np.zeros((len(last), len(steps)), dtype=np.int64)
        sums = np.zeros((len(last), len(steps)), dtype=totals.dtype)
        every = np.arange(len(last))
        words[every, last], sums[every, last] = at_the_ends("words"), totals
        for number in reversed(range(len(steps) - 1)):
            longer = np.nonzero(last > number)[0]
            at = steps[number]["chosen"][row[longer]]
            words[longer, number] = steps[number]["words"].ravel()[at]
            sums[longer, number] = steps[number]["scores"].ravel()[at]
            row[longer] = steps[number]["rows"].ravel()[at]

        scores = totals / penalty(last + 1.0).astype(totals.dtype)
        order = np.lexsort((-scores, sentences))
        rank = np.arange(len(order)) - np.searchsorted(sentences[order], sentences[order])
        order = order[rank < beam]
        mask = np.arange(len(steps)) <= last[order, None]
        lengths = (last[order] + 1).tolist()
        token_scores = np.diff(sums[order], axis=1, prepend=sums.dtype.type(0))[mask]
        return Hypotheses(
            sentences[order].tolist(),
            torch.from_numpy(words[order][mask]).split(lengths),
            torch.from_numpy(token_scores).split(lengths),
            torch.from_numpy(scores[order]),
        )


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
