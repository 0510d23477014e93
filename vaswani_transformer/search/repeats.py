"""No n tokens in a row occur twice in a hypothesis (fairseq's ``--no-repeat-ngram-size``).

Shape letters: R hypotheses, L tokens written so far, W windows of n tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor


class WithoutRepeats:
    """A model during a search, around another: it forbids the token that would repeat n tokens.

    The end of a sentence is never forbidden, and the token with which the decoder begins is not
    counted. (fairseq counts it, so that with n = 1 no hypothesis ends; on a CPU it also compares
    the places that are not written yet.)

    Args:
        model: an :class:`.incremental.IncrementalModel`, or another with its three methods
        size: n, at least 1
        end: the end-of-sentence token
    """

    def __init__(self, model: Any, size: int, end: int) -> None:
        self.model = model
        self.size = size
        self.end = end
        self.written: Tensor | None = None  # [R, L]

    def log_probs(self, tokens: Tensor, length: int) -> Tensor:
        """As the model's, with -inf for what would repeat: [R, V]."""
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
        """Row i continues what was row ``rows[i]``."""
        self.model.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these; :meth:`reorder` follows for their rows."""
        self.model.keep_sentences(sentences)
