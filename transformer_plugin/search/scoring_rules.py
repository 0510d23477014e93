"""How beam search scores a hypothesis, when one is finished, and when to stop (section 6.1).

The paper's rule, as in its authors' code (:class:`GnmtRule`), and fairseq's
(:class:`FairseqRule`).

Shape letters: N sentences still searched, k beam, C = 2k candidates, sorted, best first.
"""

from typing import Protocol, Tuple

import numpy as np
import torch
from torch import Tensor


class Rule(Protocol):
    """A rule remembers what it needs of each sentence."""

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """What the log-probabilities of hypotheses of these lengths in tokens are divided by."""

    def finished(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """Called once per step.

        Args:
            scores: log-probabilities of the candidates [N, C]
            is_end: which candidates are an end of sentence, bool [N, C]
            alive: positions of the k best other candidates [N, k]
            length: tokens of a candidate, including this step's

        Returns:
            Which candidates are results, bool [N, C]: those finished or, with some rules,
            cut off; and which sentences are done, bool [N].
        """

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these, int64 [N']."""


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
        # [N, 1], finished hypotheses of each sentence
        self.count = torch.zeros(sentences, 1, dtype=torch.int64, device=device)

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """length^power."""
        return lengths**self.power

    def finished(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """See :class:`Rule`."""
        among_best = is_end.clone()
        among_best[:, self.beam :] = False  # candidates are sorted
        # [N, C], how many of the sentence are finished up to this candidate, best first: of the
        # ends of one step, only as many count as bring the total to k
        number = self.count + among_best.cumsum(1)
        self.count = number[:, -1:]
        return among_best & (number <= self.beam), self.count[:, 0] >= self.beam

    def keep_sentences(self, sentences: Tensor) -> None:
        """See :class:`Rule`."""
        self.count = self.count[sentences]


class GnmtRule:
    """The paper's rule (6.1): score log P / ((5 + length) / 6)^alpha, "early termination".

    As in tensor2tensor, every end of sentence among the 2k candidates counts; the search stops when
    what is found beats what could still come, the best live hypothesis' log P divided by the
    penalty of the greatest length. Hypotheses without an end are results only if none ended within
    that length.

    Args:
        alpha: at least 0; 0.6 in the paper
        limits: greatest length of each sentence's output in tokens, its end included [N]
        nbest: how many results have to beat what could still come
    """

    def __init__(self, alpha: float, limits: Tensor, nbest: int) -> None:
        self.alpha = alpha
        self.limits = limits
        # [N, nbest], scores of the best finished hypotheses, best first
        self.best = torch.full((len(limits), nbest), float("-inf"), device=limits.device)

    def penalty(self, lengths: np.ndarray) -> np.ndarray:
        """((5 + length) / 6)^alpha."""
        return ((5 + lengths) / 6) ** self.alpha

    def finished(
        self, scores: Tensor, is_end: Tensor, alive: Tensor, length: int
    ) -> Tuple[Tensor, Tensor]:
        """See :class:`Rule`."""
        ended = scores.masked_fill(~is_end, float("-inf")) / ((5 + length) / 6) ** self.alpha
        best = torch.cat([self.best.to(scores), ended], dim=1)  # [N, nbest + C]
        self.best = best.topk(self.best.size(1), dim=1).values
        # [N], a bound on what the best live hypothesis can still score: its log P only falls, and
        # no penalty divides it by more than that of the greatest length
        bound = scores.gather(1, alive[:, :1])[:, 0] / ((5 + self.limits) / 6) ** self.alpha
        at_limit = self.limits <= length  # of its own source, not of the longest in the batch
        none_ended = at_limit & self.best[:, 0].isneginf()  # [N]: their live hypotheses are results
        unfinished = torch.zeros_like(is_end).scatter(1, alive, True) & none_ended[:, None]
        return is_end | unfinished, at_limit | (self.best[:, -1] > bound)

    def keep_sentences(self, sentences: Tensor) -> None:
        """See :class:`Rule`."""
        self.best, self.limits = self.best[sentences], self.limits[sentences]
