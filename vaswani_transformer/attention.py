"""Scaled dot-product attention and multi-head attention (section 3.2).

Shape letters: B batch, T queries (target), S keys (source), H heads, D model width,
K width of each head's queries and keys (d_k), V width of each head's values (d_v).

A mask is as in torch's ``scaled_dot_product_attention``: boolean, True where a query may attend to
a key, or a float tensor that is added to the scores. (``nn.MultiheadAttention`` means the opposite:
there True hides a key.) It broadcasts to [B, H, T, S]. Every query needs at least one visible key:
a softmax over -∞ alone is NaN.

``cache`` is for decoding alone (cache.py), and may be skipped at a first reading. In training with
the plugin, these classes are swapped for faster ones with the same result (fast/).
"""

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import LayerCache

Mask: TypeAlias = Tensor | None
"""None if every query may attend to every key."""
Weights: TypeAlias = list[Tensor] | None
"""List to which an attention appends its weights [B, H, T, S]; None if they are not needed."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V (equation 1).

    Args:
        query: [B, H, T, K]
        key: [B, H, S, K]
        value: [B, H, S, V]
        mask: where a query may attend
        dropout: probability with which a weight is set to zero
        is_causal: use the causal mask (3.2.3); only if T = S

    Returns:
        The weighted sums of the values [B, H, T, V], and the weights before dropout [B, H, T, S].

    Raises:
        TypeError: the mask is neither boolean nor float.
        ValueError: both a mask and ``is_causal`` are given.
    """
    check_mask(mask, is_causal)
    if is_causal:
        mask = causal_mask(query.size(2), query.device)
    # dividing the product instead would overflow in float16
    scores = (query / query.size(-1) ** 0.5) @ key.transpose(-2, -1)  # [B, H, T, S]
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights


def check_mask(mask: Mask, is_causal: bool) -> None:
    """Raise TypeError or ValueError for a mask that would not hide what it seems to hide."""
    if mask is None:
        return
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"the mask is {mask.dtype}, which would be added to the scores: give a bool mask that "
            "is True where a query may attend to a key (mask == 1, or, if 1 hides a key, mask == "
            "0)"
        )
    if is_causal:
        raise ValueError(
            "mask and is_causal cannot be used together: leave out is_causal, and give mask & "
            "causal_mask(length)"
        )


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return the mask that shows each position itself and earlier ones (3.2.3): bool [T, T]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def padding_mask(is_padding: Tensor | None) -> Mask:
    """Return the mask that shows every key but padding: bool [B, S] → [B, 1, 1, S]."""
    return None if is_padding is None else ~is_padding[:, None, None, :]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O (3.2.2): the base of both attentions.

    Each head has its own slice of every projection, so that h small products become one large one.
    The projections have biases, as in tensor2tensor; the paper's equations show none.

    Args:
        embed_dim: D, d_model
        num_heads: H, h
        key_dim: K, d_k; D / H if not given (Table 3 row B)
        value_dim: V, d_v; D / H if not given
        dropout: on the attention weights (0 in the paper)

    Raises:
        ValueError: H is below 1, or D is not divisible by H and d_k or d_v is not given.
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
        if num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}, but attention needs at least one head")
        if embed_dim % num_heads and (key_dim is None or value_dim is None):
            raise ValueError(
                f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}: change one, or "
                "give key_dim and value_dim"
            )
        self.num_heads = num_heads
        self.key_dim = embed_dim // num_heads if key_dim is None else key_dim
        self.value_dim = embed_dim // num_heads if value_dim is None else value_dim
        #: width of all heads together: H·K of queries and of keys, H·V of values
        self.key_width = num_heads * self.key_dim
        self.value_width = num_heads * self.value_dim
        # Never called: train() and eval() set its ``training``, which attend_heads reads.
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(self.value_width, embed_dim)  # W^O

    def extra_repr(self) -> str:
        """Return what torch prints of this module in addition to its parts."""
        return f"num_heads={self.num_heads}, key_dim={self.key_dim}, value_dim={self.value_dim}"

    def split_heads(self, projected: Tensor) -> Tensor:
        """Split the last dimension into heads: [B, L, H·K] → [B, H, L, K]."""
        batch, length, width = projected.shape
        heads = projected.view(batch, length, self.num_heads, width // self.num_heads)
        return heads.transpose(1, 2)

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask = None,
        weights: Weights = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Compute equation 1 in every head, then multiply by W^O (3.2.2).

        In decoding with a cache, T is 1, the new token, and S counts all tokens so far.

        Args:
            query: [B, H, T, K]
            key: [B, H, S, K]
            value: [B, H, S, V]
            mask: where a query may attend
            weights: gets the weights [B, H, T, S]
            is_causal: use the causal mask

        Returns:
            [B, T, D].
        """
        rate = self.dropout.p if self.dropout.training else 0.0
        heads, own_weights = attention(query, key, value, mask, rate, is_causal)  # [B, H, T, V]
        if weights is not None:
            weights.append(own_weights)
        joined = heads.transpose(1, 2).flatten(2)  # [B, T, H·V]
        return self.out_proj(joined)


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence; W^Q, W^K, W^V are one matrix, as in t2t."""

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **kwargs)
        self.qkv_proj = nn.Linear(embed_dim, 2 * self.key_width + self.value_width)

    def forward(
        self,
        x: Tensor,
        mask: Mask = None,
        cache: LayerCache | None = None,
        weights: Weights = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend from each position of a sequence to the positions of the same sequence.

        Args:
            x: [B, T, D]
            mask: where a query may attend
            cache: keys and values of the earlier positions, in incremental decoding
            weights: gets the weights [B, H, T, S]
            is_causal: no position attends to later ones; for a whole sequence, without ``mask``

        Returns:
            [B, T, D].
        """
        query, key_value = self.qkv_proj(x).split(
            [self.key_width, self.key_width + self.value_width], dim=-1
        )
        if cache is not None:
            key_value = cache.extend(key_value)
        key, value = key_value.split([self.key_width, self.value_width], dim=-1)
        return self.attend_heads(
            self.split_heads(query),
            self.split_heads(key),
            self.split_heads(value),
            mask,
            weights,
            is_causal,
        )


class CrossAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder's output (3.2.3).

    Attributes:
        shares_keys: whether the k hypotheses of a sentence may use one copy of its keys and values
    """

    shares_keys = False

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **kwargs)
        self.q_proj = nn.Linear(embed_dim, self.key_width)
        self.kv_proj = nn.Linear(embed_dim, self.key_width + self.value_width)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``memory`` [B, S, D] to keys [B, H, S, K] and values [B, H, S, V]."""
        key, value = self.kv_proj(memory).split([self.key_width, self.value_width], dim=-1)
        return self.split_heads(key), self.split_heads(value)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        cache: LayerCache | None = None,
        weights: Weights = None,
    ) -> Tensor:
        """Attend from each target position to the encoder's output ``memory`` [B, S, D].

        Other arguments and the result are as in :class:`SelfAttention`. The cache keeps the
        source's keys and values, which are the same in every step.
        """
        if cache is None:
            key, value = self.keys_and_values(memory)
        else:
            key, value = cache.once(self.keys_and_values, memory)
        return self.attend_heads(self.split_heads(self.q_proj(x)), key, value, mask, weights)
