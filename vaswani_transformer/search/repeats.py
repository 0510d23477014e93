"""Forbids repeated n-grams in a hypothesis (fairseq's ``--no-repeat-ngram-size``).

Shape letters: R hypotheses, L tokens written so far, W windows of n tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor


class WithoutRepeats:
    """A model during a search that forbids each token which would repeat an n-gram.

    It wraps another model. The end of a sentence is never forbidden, and the token with which the
    decoder begins is not counted. (fairseq counts it, so that with n = 1 no hypothesis ends; on a
    CPU it also compares positions that are not written yet.)

    Args:
        model: an :class:`.incremental.IncrementalModel`, or an object with its three methods
        size: n, at least 1
        end: the end-of-sentence token
    """

    def __init__(self, model: Any, size: int, end: int) -> None:
        self.model = model
        self.size = size
        self.end = end
        self.written: Tensor | None = None  # [R, L]

    def log_probs(self, tokens: Tensor, length: int) -> Tensor:
        """Return the model's log-probabilities [R, V], with -inf for repetitions."""
        log_probs: Tensor = self.model.log_probs(tokens, length)
        if length == 1:
            self.written = tokens.new_empty(len(tokens), 0)
            return log_probs
        assert self.written is not None
        self.written = torch.cat([self.written, tokens[:, None]], dim=1)
        if self.written.size(1) < self.size:
            return log_probs
        windows = self.written.unfold(1, self.size, 1)  # [R, W, n]
        newest = self.written[:, self.written.size(1) - self.size + 1 :]  # [R, n - 1]
        is_repeated = (windows[:, :, :-1] == newest[:, None]).all(dim=2)  # [R, W]
        row, window = is_repeated.nonzero(as_tuple=True)
        forbidden = windows[row, window, -1]
        ends = log_probs[:, self.end].clone()
        log_probs[row, forbidden] = float("-inf")
        log_probs[:, self.end] = ends
        return log_probs

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row ``rows[i]``, here and in the model."""
        self.model.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these, int64 [N'].

        A call of :meth:`reorder` follows for their rows.
        """
        self.model.keep_sentences(sentences)
