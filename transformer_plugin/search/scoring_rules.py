"""When beam search ends a hypothesis, what it scores, and when the search stops (section 6.1).

The paper's rule, as its authors' code has it (:class:`GnmtRule`), and fairseq's
(:class:`FairseqRule`).

Shape letters: N sentences still searched, k beam, C = 2k candidates, sorted, best first.
"""

from typing import Protocol, Tuple

import numpy as np
import torch
from torch import Tensor


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
