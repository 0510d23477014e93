"""Scaled dot-product attention and multi-head attention (section 3.2).

Shape letters: B batch, T queries (target), S keys (source), H heads, D model width,
K width of each head's queries and keys (d_k), V width of each head's values (d_v).

A mask is as in torch's ``scaled_dot_product_attention``: boolean, True where a query may look at a
key, or a float tensor that is added to the scores. It broadcasts to [B, H, T, S].
"""

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import LayerCache

Mask: TypeAlias = Tensor | None
"""None where every query may look at every key."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V (equation 1).

    Args:
        query: [B, H, T, K]
        key: [B, H, S, K]
        value: [B, H, S, V]
        mask: where a query may look
        dropout: probability with which a weight is set to zero
        is_causal: position i looks at positions up to i (3.2.3); for as many queries as keys

    Returns:
        The weighted sums of the values [B, H, T, V], and the weights before dropout [B, H, T, S].
    """
    # dividing the product instead would overflow in float16
    scores = (query / query.size(-1) ** 0.5) @ key.transpose(-2, -1)  # [B, H, T, S]
    if is_causal:
        mask = causal_mask(query.size(2), query.device)
    if mask is not None:
        hides = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, float("-inf")) if hides else scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Each position may look at itself and those before it (3.2.3): bool [length, length]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O (3.2.2): what its two uses share.

    Each head has its own slice of every projection, so that h small products become one large one.
    The projections have biases, as in tensor2tensor; the paper's equations show none.

    Args:
        embed_dim: D, d_model
        num_heads: H, h
        key_dim: K, d_k; D / H if not given (Table 3 row B)
        value_dim: V, d_v; D / H if not given
        dropout: on the attention weights (0 in the paper)

    Raises:
        ValueError: D is not divisible by H and d_k or d_v is not given.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads and not (key_dim and value_dim):
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.key_dim = key_dim or embed_dim // num_heads
        self.value_dim = value_dim or embed_dim // num_heads
        #: widths of the keys and of the values of all heads: H·K and H·V
        self.kv_widths = [num_heads * self.key_dim, num_heads * self.value_dim]
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(num_heads * self.value_dim, embed_dim)  # W^O

    def split_heads(self, projected: Tensor) -> Tensor:
        """[B, L, H·K] → [B, H, L, K]."""
        batch, length, width = projected.shape
        heads = projected.view(batch, length, self.num_heads, width // self.num_heads)
        return heads.transpose(1, 2)

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Equation 1 in every head, then W^O: [B, H, T, K], [B, H, S, K], [B, H, S, V] → [B, T, D].

        The weights [B, H, T, S] are returned too, if they are needed.
        """
        rate = self.dropout.p if self.dropout.training else 0.0
        heads, weights = attention(query, key, value, mask, rate, is_causal)  # [B, H, T, V]
        joined = heads.transpose(1, 2).flatten(2)  # [B, T, H·V]
        return self.out_proj(joined), weights if need_weights else None


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence; W^Q, W^K, W^V are one matrix, as in t2t."""

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **kwargs)
        self.qkv_proj = nn.Linear(embed_dim, self.kv_widths[0] + sum(self.kv_widths))

    def forward(
        self,
        x: Tensor,
        mask: Mask = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Args:
            x: [B, T, D]
            mask: where a query may look
            cache: in incremental decoding, of the keys and values of the earlier positions
            need_weights: also return the weights
            is_causal: no position looks at later ones; for a whole sequence, without ``mask``

        Returns:
            [B, T, D], and the weights [B, H, T, S] or None.
        """
        widths = [self.kv_widths[0], sum(self.kv_widths)]
        query, key_value = self.qkv_proj(x).split(widths, dim=-1)
        if cache is not None:
            key_value = cache.extend(key_value)
        key, value = map(self.split_heads, key_value.split(self.kv_widths, dim=-1))
        query = self.split_heads(query)
        return self.attend_heads(query, key, value, mask, need_weights, is_causal)


class CrossAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder's output (3.2.3)."""

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **kwargs)
        self.q_proj = nn.Linear(embed_dim, num_heads * self.key_dim)
        self.kv_proj = nn.Linear(embed_dim, sum(self.kv_widths))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in :class:`SelfAttention`, with the encoder's output ``memory`` [B, S, D].

        The cache keeps the source's keys and values, which are the same in every step.
        """

        def project() -> tuple[Tensor, ...]:
            key_value = self.kv_proj(memory).split(self.kv_widths, dim=-1)
            return tuple(map(self.split_heads, key_value))

        key, value = project() if cache is None else cache.once(project)
        query = self.split_heads(self.q_proj(x))
        return self.attend_heads(query, key, value, mask, need_weights)
