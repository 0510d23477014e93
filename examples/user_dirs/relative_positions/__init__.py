"""A variation without a fork: relative positions (Shaw et al., 2018, arXiv:1803.02155).

    fairseq-train DATA --user-dir examples/user_dirs/relative_positions \
        --arch relative_transformer --max-distance 16 …

Self-attention learns a vector a_r for each distance r from query to key, and adds q · a_r to q · k
before the softmax (equation 4 of Shaw et al.); distances above ``--max-distance`` count as equal to
it. The paper's sinusoids stay. All else is the paper's model, subclassed where it differs.

``--relative-in`` confines this to the encoder or to the decoder. Two more options move neighbouring
positions apart: ``--sinusoid-scale`` multiplies the sinusoids, ``--position-step`` counts in larger
steps. ``experiments/neighbours`` asks which of these helps.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import Tensor, nn

from transformer_plugin.config import VaswaniTransformerConfig
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer import Transformer
from vaswani_transformer.attention import Mask, SelfAttention, Weights, causal_mask
from vaswani_transformer.embedding import SinusoidalPositions
from vaswani_transformer.layers import DecoderLayer, EncoderLayer

SIDES = {
    "both": ("encoder", "decoder"),
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "none": (),
}
"""The values of ``--relative-in``, and the sides whose self-attention is then relative."""


@dataclass
class RelativeConfig(VaswaniTransformerConfig):
    """The paper's options, and four options of this variant."""

    max_distance: int = field(
        default=16, metadata={"help": "distances from this on are treated alike (Shaw's k, 3.2)"}
    )
    relative_in: ChoiceEnum(list(SIDES)) = field(  # type: ignore[valid-type]
        default="both", metadata={"help": "whose self-attention learns distances"}
    )
    sinusoid_scale: float = field(
        default=1.0, metadata={"help": "what the sinusoids are multiplied by (1 in the paper)"}
    )
    position_step: int = field(
        default=1, metadata={"help": "from one token's position to the next's (1 in the paper)"}
    )


class RelativeSelfAttention(SelfAttention):
    """Self-attention that depends on the distance between two words.

    Args:
        max_distance: k
        args, kwargs: as for :class:`SelfAttention`
    """

    def __init__(self, *args: Any, max_distance: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_distance = max_distance
        self.distances = nn.Embedding(2 * max_distance + 1, self.key_dim)

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask = None,
        weights: Weights = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Compute equation 1 in every head with a bias for each distance, then multiply by W^O."""
        queries, keys = query.size(2), key.size(2)
        position = torch.arange(keys, device=query.device)
        distance = position[None, :] - position[keys - queries :, None]  # [T, S]
        row = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        by_distance = query @ self.distances.weight.t() / self.key_dim**0.5  # [B, H, T, 2k + 1]
        bias = by_distance.gather(-1, row.expand(*query.shape[:2], -1, -1))  # [B, H, T, S]
        if is_causal:
            mask = causal_mask(queries, query.device)
        if mask is not None:
            bias = bias.masked_fill(~mask, float("-inf"))
        return super().attend_heads(query, key, value, bias, weights)


class ScaledSinusoids(SinusoidalPositions):
    """The paper's sinusoids, scaled, or with larger steps between positions.

    Args:
        scale: factor of the sinusoids
        step: factor of the positions
        args, kwargs: as for :class:`SinusoidalPositions`
    """

    def __init__(self, *args: Any, scale: float, step: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale = scale
        self.step = step

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:
        """Return the scaled sinusoids of positions; arguments as in the base class."""
        return self.scale * super().forward(self.step * positions, self.step * length, like)


class RelativeTransformer(Transformer):
    """The paper's model with relative self-attention, as its configuration says."""

    config: RelativeConfig

    def build_encoder_layer(self) -> EncoderLayer:
        """Build the paper's layer, with relative self-attention if the encoder has it."""
        layer = super().build_encoder_layer()
        if "encoder" in SIDES[str(self.config.relative_in)]:
            layer.self_attention = self.build_relative(self.config.encoder_attention_heads)
        return layer

    def build_decoder_layer(self) -> DecoderLayer:
        """Build the paper's layer, with relative self-attention if the decoder has it."""
        layer = super().build_decoder_layer()
        if "decoder" in SIDES[str(self.config.relative_in)]:
            layer.self_attention = self.build_relative(self.config.decoder_attention_heads)
        return layer

    def build_relative(self, heads: int) -> RelativeSelfAttention:
        """Build self-attention with relative distances."""
        return RelativeSelfAttention(
            self.d_model,
            heads,
            key_dim=self.config.head_key_dim,
            value_dim=self.config.head_value_dim,
            dropout=self.config.attention_dropout,
            max_distance=self.config.max_distance,
        )

    def build_positions(self, learned: bool, max_length: int) -> nn.Module:
        """Build scaled sinusoids if configured; learned positions are not scaled."""
        scale, step = self.config.sinusoid_scale, self.config.position_step
        if learned or (scale, step) == (1, 1):
            return super().build_positions(learned, max_length)
        layout = str(self.config.sinusoid_layout)
        return ScaledSinusoids(self.d_model, layout, scale=scale, step=step)


@register_model("relative_transformer", dataclass=RelativeConfig)
class RelativeTransformerModel(VaswaniTransformerModel):
    """The variant, registered as a model of fairseq."""

    transformer_class = RelativeTransformer
