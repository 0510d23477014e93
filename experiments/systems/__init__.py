"""The paper's model with one later change each: a user-dir for fairseq, and plain torch.

Each file has one subclass of ``vaswani_transformer.Transformer``, with the method that differs.
``experiments/since2017`` trains them beside the paper's model; docs/extend.md explains how they
are written.
"""

from dataclasses import dataclass

from fairseq.models import register_model

from transformer_plugin.config import VaswaniTransformerConfig, VaswaniTransformerTinyConfig
from transformer_plugin.model import VaswaniTransformerModel

from .all_that_pay import AllThatPayTransformer, relative_positions
from .no_biases import NoBiasTransformer
from .pre_norm import PreNormTransformer
from .rms_norm import RmsNormTransformer
from .rotary import RotaryTransformer
from .swiglu import SwigluTransformer


@register_model("pre_norm_transformer", dataclass=VaswaniTransformerConfig)
class PreNormModel(VaswaniTransformerModel):
    """fairseq's model with the norm before each sub-layer."""

    transformer_class = PreNormTransformer


@register_model("rotary_transformer", dataclass=VaswaniTransformerConfig)
class RotaryModel(VaswaniTransformerModel):
    """fairseq's model with rotary positions."""

    transformer_class = RotaryTransformer


@register_model("swiglu_transformer", dataclass=VaswaniTransformerConfig)
class SwigluModel(VaswaniTransformerModel):
    """fairseq's model with gated feed-forward networks."""

    transformer_class = SwigluTransformer


@register_model("rms_norm_transformer", dataclass=VaswaniTransformerConfig)
class RmsNormModel(VaswaniTransformerModel):
    """fairseq's model with norms that do not centre."""

    transformer_class = RmsNormTransformer


@register_model("no_bias_transformer", dataclass=VaswaniTransformerConfig)
class NoBiasModel(VaswaniTransformerModel):
    """fairseq's model without biases."""

    transformer_class = NoBiasTransformer


@dataclass
class AllThatPayConfig(
    VaswaniTransformerTinyConfig,
    relative_positions.RelativeConfig,  # type: ignore[name-defined]
):
    """The options of relative positions, and sizes that the demo trains."""


@register_model("all_that_pay_transformer", dataclass=AllThatPayConfig)
class AllThatPayModel(VaswaniTransformerModel):
    """fairseq's model with what pays."""

    transformer_class = AllThatPayTransformer
