"""Rotary positions in place of the sinusoids (Su et al., 2021, arXiv:2104.09864)."""

from typing import Any

import torch
from torch import Tensor, nn

from vaswani_transformer import Transformer
from vaswani_transformer.attention import SelfAttention


def rotate(x: Tensor, first: int) -> Tensor:
    """Rotate each pair of dimensions of x [B, H, L, K] by the angle of its position.

    Args:
        x: queries or keys
        first: the position of the first row
    """
    length, width = x.shape[-2:]
    positions = torch.arange(first, first + length, device=x.device)
    rates = 10000 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.outer(positions, rates)  # [L, K/2]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()]
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


class RotarySelfAttention(SelfAttention):
    """Queries and keys are turned, so that their product depends on how far apart they are."""

    def attend_heads(self, query: Tensor, key: Tensor, value: Tensor, *args: Any) -> Tensor:
        """Rotate queries and keys, and attend; in decoding, the queries are the last positions."""
        first = key.size(2) - query.size(2)
        return super().attend_heads(rotate(query, first), rotate(key, 0), value, *args)


class NoPositions(nn.Module):
    """Adds nothing to the embeddings."""

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:
        """Return zeros in the shape of ``like``."""
        return torch.zeros_like(like)


class RotaryTransformer(Transformer):
    """Rotary positions in every self-attention, and no others."""

    def build_positions(self, learned: bool, max_length: int) -> nn.Module:
        """Return a module that adds no positions to the embeddings."""
        return NoPositions()

    def build_self_attention(self, heads: int) -> SelfAttention:
        """Build self-attention that rotates queries and keys."""
        config = self.config
        widths = config.head_key_dim, config.head_value_dim
        return RotarySelfAttention(self.d_model, heads, *widths, config.attention_dropout)
