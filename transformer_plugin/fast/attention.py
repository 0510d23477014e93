"""Attention by torch's fused kernels: equal to ``readable_attention`` of attention.py.

Shape letters: B batch, T queries, S keys, H heads, K width of queries and keys, V of values.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def fast_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor] = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V without storing the weights.

    Args:
        query: [B, H, T, K]
        key: [B, H, S, K]
        value: [B, H, S, V]
        mask: additive, broadcastable to [B, H, T, S]
        dropout: probability with which a weight is set to zero
        is_causal: no query looks at later keys; only for as many queries as keys, without ``mask``

    Returns:
        The attended values [B, H, T, V].
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # a CPU's kernel is quicker in fp32 (one query: half the time), conversion included
        with torch.autocast("cpu", enabled=False):
            in_fp32 = (query.float(), key.float(), value.float())
            return fast_attention(*in_fp32, mask, dropout, is_causal).to(query.dtype)
    if is_causal:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    if mask is not None:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def takes_kernel(implementation: str, query: Tensor) -> bool:
    """Whether a kernel computes attention: as ``implementation`` says; with ``auto``, if quicker.

    A CPU's kernel makes fp32 attention faster, but its backward pass in bf16 takes five times as
    long as plain products for sentences of 16 words, and twice as long for 1,024.
    """
    if implementation != "auto":
        return implementation == "fast"
    on_cpu = query.device.type == "cpu"
    return not (on_cpu and query.dtype == torch.bfloat16 and torch.is_grad_enabled())
