"""Decoding: options of fairseq's generators and models that fail, or have no effect."""

import math
from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor

from .replacing import REPAIRS, replaces


@replaces(
    TransformerEncoderLayerBase,
    "__init__",
    REPAIRS,
    "0.12.2 with torch 2",
    'fairseq\'s own `transformer` can decode (without: "Mask Type should be defined")',
    needed="can_use_fastpath" in TransformerEncoderLayerBase.__init__.__code__.co_names,
)
def without_fast_path(layer: Any, *args: Any, **kwargs: Any) -> None:
    """As fairseq's, without its fused layer, which is called with the arguments of torch 1.13."""
    without_fast_path.original(layer, *args, **kwargs)
    layer.can_use_fastpath = False


@replaces(
    NGramRepeatBlock,
    "_no_repeat_ngram",
    REPAIRS,
    "all",
    "`--no-repeat-ngram-size` works",
)
def _no_repeat_ngram(
    self: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Give words that would repeat an n-gram of the hypothesis the log-probability -inf.

    TorchScript compiles this with the generator, by this name. fairseq's compares with the end of
    the whole buffer, which is padding, so nothing counts as repeated; and a size of 1 compares
    nothing. Arguments as fairseq's: ``tokens`` [bsz·beam_size, longest], the first of which begins
    the sentence and is not one of its words; ``lprobs`` [bsz·beam_size, V], of the word after
    number ``step``, changed in place.
    """
    size: int = self.no_repeat_ngram_size
    if step >= size:
        words = tokens[:, 1 : step + 1]
        ngrams = words.unfold(1, size, 1)  # [bsz·beam_size, step + 1 - size, size]
        last = words[:, step + 1 - size :].unsqueeze(1)
        repeated = (ngrams[:, :, : size - 1] == last).all(dim=2)
        row, number = torch.where(repeated)
        lprobs[row, ngrams[row, number, size - 1]] = -math.inf
    return lprobs
