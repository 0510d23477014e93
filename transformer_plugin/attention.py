"""Scaled dot-product attention and multi-head attention (section 3.2).

Shape letters: B batch, T queries (target), S keys (source), H heads, D model width,
K per-head width of queries and keys (d_k), V per-head width of values (d_v).

Masks are **additive**: 0 where a query may look, -inf where it may not, of any shape that
broadcasts to [B, H, T, S]. They are made once per forward pass and shared by all layers. The
causal mask over a whole sequence (3.2.3) is the flag ``is_causal``, as in torch: the fused kernels
then need no mask tensor, and skip what it would hide.
"""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import LayerCache
from .fast.attention import fast_attention, takes_kernel
from .fast.dropout import Dropout
from .fast.linear import Linear

ATTENTION_IMPLEMENTATIONS = ["auto", "readable", "fast"]

Mask = Optional[Tensor]
"""Additive, broadcastable to [B, H, T, S]; None where every query may look at every key."""


def readable_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V (equation 1).

    Args:
        query: [B, H, T, K]
        key: [B, H, S, K]
        value: [B, H, S, V]
        mask: see :data:`Mask`
        dropout: probability with which a weight is set to zero
        is_causal: use :func:`causal_mask` as the mask; only for as many queries as keys

    Returns:
        The attended values [B, H, T, V] and the weights before dropout [B, H, T, S].
    """
    # scaled before the product, which would overflow in float16
    scores = (query / query.size(-1) ** 0.5) @ key.transpose(-2, -1)  # [B, H, T, S]
    if is_causal:
        mask = causal_mask(query.size(2), like=scores)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights


def causal_mask(length: int, like: Tensor) -> Tensor:
    """The mask that keeps position i from looking at positions after i (section 3.2.3).

    Returns:
        [length, length], 0 on and below the diagonal, -inf above, dtype and device of ``like``.
    """
    blocked = torch.full((length, length), float("-inf"), dtype=like.dtype, device=like.device)
    return blocked.triu(1)


def padding_mask(is_padding: Tensor, like: Tensor) -> Tensor:
    """The mask that hides padded keys.

    Args:
        is_padding: bool [B, S], True at padding
        like: gives dtype and device

    Returns:
        [B, 1, 1, S], 0 at tokens and -inf at padding.
    """
    mask = torch.zeros(is_padding.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill(is_padding, float("-inf"))[:, None, None, :]


class MultiHeadAttention(nn.Module):
    """What self-attention and cross-attention share (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O. Each head has its own slice of every
    projection, so h small products become one large one. d_k and d_v can be set (Table 3 row B).

    The projections have biases, as in tensor2tensor at the paper's release; the paper's equations
    show none.

    Args:
        embed_dim: D, d_model
        num_heads: H, h
        key_dim: K, d_k; default D / H
        value_dim: V, d_v; default D / H
        dropout: on the attention weights (0 in the paper)
        implementation: ``readable``, ``fast``, or ``auto`` (the quicker of the two); the
            weights, if requested, always come from ``readable``

    Raises:
        ValueError: D is not divisible by H and d_k or d_v is not given.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        dropout: float = 0.0,
        implementation: str = "auto",
    ) -> None:
        super().__init__()
        if embed_dim % num_heads and not (key_dim and value_dim):
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.key_dim = key_dim or embed_dim // num_heads
        self.value_dim = value_dim or embed_dim // num_heads
        #: columns of the keys and of the values, all heads together: [H·K, H·V]
        self.sections = [num_heads * self.key_dim, num_heads * self.value_dim]
        self.dropout = Dropout(dropout)  # on the weights; only its rate is used
        self.implementation = implementation
        self.out_proj = Linear(num_heads * self.value_dim, embed_dim)  # W^O

    def split_heads(self, projected: Tensor) -> Tensor:
        """[B, L, H·K] → [B, H, L, K]."""
        batch, length, width = projected.shape
        heads = projected.view(batch, length, self.num_heads, width // self.num_heads)
        return heads.transpose(1, 2)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        need_weights: bool,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend in each head, concatenate the heads, then apply W^O.

        Args:
            query: [B, H, T, K]
            key: [B, H, S, K]
            value: [B, H, S, V]
            mask: see :data:`Mask`
            need_weights: also return the weights (takes the readable path)
            is_causal: see :func:`readable_attention`

        Returns:
            [B, T, D], and the weights [B, H, T, S] or None.
        """
        dropout = self.dropout.rate
        weights = None
        if takes_kernel(self.implementation, query) and not need_weights:
            heads = fast_attention(query, key, value, mask, dropout, is_causal)
        else:
            heads, weights = readable_attention(query, key, value, mask, dropout, is_causal)
        joined = heads.transpose(1, 2).flatten(2)  # [B, T, H·V]
        return self.out_proj(joined), weights if need_weights else None


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence; W^Q, W^K and W^V are one matrix.

    One matrix means one product instead of three, and its Glorot initialisation is then that of
    tensor2tensor at the paper's release, which fused them too.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        dropout: float = 0.0,
        implementation: str = "auto",
    ) -> None:
        super().__init__(embed_dim, num_heads, key_dim, value_dim, dropout, implementation)
        self.qkv_proj = Linear(embed_dim, self.sections[0] + sum(self.sections))

    def forward(
        self,
        x: Tensor,
        mask: Mask = None,
        cache: Optional[LayerCache] = None,
        need_weights: bool = False,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Args:
            x: [B, T, D]
            mask: see :data:`Mask`
            cache: in incremental decoding, keys and values of the earlier steps; those of ``x``
                are added
            need_weights: also return the weights
            is_causal: no position looks at later ones; only for a whole sequence, without ``mask``

        Returns:
            [B, T, D], and the weights [B, H, T, S] or None.
        """
        query, key_value = self.qkv_proj(x).split([self.sections[0], sum(self.sections)], dim=-1)
        if cache is not None:
            key_value = cache.extend(key_value)
        key, value = map(self.split_heads, key_value.split(self.sections, dim=-1))
        return self.attend(self.split_heads(query), key, value, mask, need_weights, is_causal)


class CrossAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder's output (section 3.2.3)."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        dropout: float = 0.0,
        implementation: str = "auto",
    ) -> None:
        super().__init__(embed_dim, num_heads, key_dim, value_dim, dropout, implementation)
        self.q_proj = Linear(embed_dim, num_heads * self.key_dim)
        self.kv_proj = Linear(embed_dim, sum(self.sections))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        cache: Optional[LayerCache] = None,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Args:
            x: [B, T, D], from the decoder
            memory: [B, S, D], the encoder's output
            mask: see :data:`Mask`
            cache: in incremental decoding, filled at the first step and used at all others, so
                that keys and values are computed once per sentence. ``x`` may then be
                [B·k, T, D], with k hypotheses per sentence that share its keys and values
            need_weights: also return the weights

        Returns:
            As ``x``, and the weights [B, H, T, S] (in beam search [B, H, k·T, S]) or None.
        """
        known = {} if cache is None else cache.cross
        if not known:
            key, value = self.kv_proj(memory).split(self.sections, dim=-1)
            known.update(key=self.split_heads(key), value=self.split_heads(value))
        query = self.q_proj(x)
        # to this sub-layer, k hypotheses of one token each are like one hypothesis of k tokens
        shared = query.view(len(known["key"]), -1, query.size(-1))
        attended, weights = self.attend(
            self.split_heads(shared), known["key"], known["value"], mask, need_weights
        )
        return attended.view(*query.shape[:2], -1), weights
