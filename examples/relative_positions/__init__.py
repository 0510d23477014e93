"""A variation without a fork: relative positions (Shaw et al., 2018, arXiv:1803.02155).

    fairseq-train DATA --user-dir examples/relative_positions --arch relative_transformer \
        --max-distance 16 …

Self-attention learns a vector a_r for each distance r from query to key, and adds q · a_r to q · k
before the softmax (equation 4 of Shaw et al.); distances above ``--max-distance`` count as equal to
it. The paper's sinusoids stay. All else is the paper's model, subclassed where it differs.

``--relative-in`` confines this to the encoder or to the decoder. Two more options move neighbouring
positions apart: ``--sinusoid-scale`` multiplies the sinusoids, ``--position-step`` counts in larger
steps. ``benchmarks/neighbours.py`` asks which of these helps.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import Tensor, nn

from transformer_plugin.config import VaswaniTransformerConfig
from transformer_plugin.decoder import VaswaniDecoder
from transformer_plugin.encoder import VaswaniEncoder
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer.attention import SelfAttention, causal_mask
from vaswani_transformer.embedding import InputEmbedding, SinusoidalPositions

SIDES = {
    "both": ("encoder", "decoder"),
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "none": (),
}
"""The values of ``--relative-in``, and the sides whose self-attention is then relative."""


@dataclass
class RelativeConfig(VaswaniTransformerConfig):
    """The paper's options, and four more."""

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
    """Self-attention that knows how far apart two words are.

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
        mask: Tensor | None,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in the base class; in incremental decoding the queries are the last positions."""
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
        return super().attend_heads(query, key, value, bias, need_weights)


class ScaledSinusoids(SinusoidalPositions):
    """The paper's sinusoids, multiplied, or of positions that are further apart.

    Args:
        scale: what they are multiplied by
        step: what the positions are multiplied by
        args, kwargs: as for :class:`SinusoidalPositions`
    """

    def __init__(self, *args: Any, scale: float, step: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale, self.step = scale, step

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:
        """As in the base class."""
        return self.scale * super().forward(self.step * positions, self.step * length, like)


def varied_layer(layer: Any, cfg: RelativeConfig, side: str) -> Any:
    """A side's layer; its self-attention is relative if that of the side is to be."""
    if side not in SIDES[str(cfg.relative_in)]:
        return layer
    heads = getattr(cfg, f"{side}_attention_heads")
    layer.self_attention = RelativeSelfAttention(
        cfg.encoder_embed_dim,
        heads,
        key_dim=cfg.head_key_dim,
        value_dim=cfg.head_value_dim,
        dropout=cfg.attention_dropout,
        max_distance=cfg.max_distance,
    )
    return layer


def scale_sinusoids(embedding: InputEmbedding, cfg: RelativeConfig) -> InputEmbedding:
    """The embedding with its sinusoids as asked; learned positions stay as they are."""
    old, scale, step = embedding.positions, cfg.sinusoid_scale, cfg.position_step
    if isinstance(old, SinusoidalPositions) and (scale, step) != (1, 1):
        embedding.positions = ScaledSinusoids(old.dim, old.layout, scale=scale, step=step)
    return embedding


class RelativeEncoder(VaswaniEncoder):
    """The paper's encoder with relative self-attention."""

    def __init__(self, cfg: Any, dictionary: Any, embedding: InputEmbedding) -> None:
        super().__init__(cfg, dictionary, scale_sinusoids(embedding, cfg))

    def build_layer(self, cfg: Any) -> Any:
        """One layer."""
        return varied_layer(super().build_layer(cfg), cfg, "encoder")


class RelativeDecoder(VaswaniDecoder):
    """The paper's decoder with relative self-attention."""

    def __init__(
        self, cfg: Any, dictionary: Any, embedding: InputEmbedding, output_projection: nn.Linear
    ) -> None:
        super().__init__(cfg, dictionary, scale_sinusoids(embedding, cfg), output_projection)

    def build_layer(self, cfg: Any) -> Any:
        """One layer."""
        return varied_layer(super().build_layer(cfg), cfg, "decoder")


@register_model("relative_transformer", dataclass=RelativeConfig)
class RelativeTransformerModel(VaswaniTransformerModel):
    """The paper's model with relative self-attention."""

    encoder_class = RelativeEncoder
    decoder_class = RelativeDecoder
