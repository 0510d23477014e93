"""Decoding with fairseq's own models."""

from typing import Any

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

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
