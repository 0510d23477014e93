"""Attention by torch's fused kernels: equal to ``attention`` of ../attention.py within rounding.

Shape letters: B batch, T queries, S keys, H heads, K width of queries and keys, V of values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import CrossAttention, Mask, MultiHeadAttention, SelfAttention
from ..encoder import Encoder


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V without storing the weights; arguments as in ``attention``.

    Returns:
        [B, H, T, V].
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # a CPU's kernel is quicker in fp32 (one query: half the time), conversion included
        with torch.autocast("cpu", enabled=False):
            in_fp32 = (query.float(), key.float(), value.float())
            return fused_attention(*in_fp32, mask, dropout, is_causal).to(query.dtype)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def kernel_is_quicker(query: Tensor) -> bool:
    """A CPU's kernel makes attention faster in fp32, but not its backward pass in bf16.

    That takes five times as long as plain products for sentences of 16 words, and twice as long for
    1,024.
    """
    on_cpu = query.device.type == "cpu"
    return not (on_cpu and query.dtype == torch.bfloat16 and torch.is_grad_enabled())


class FusedHeads(MultiHeadAttention):
    """For a subclass of an attention: a kernel computes it unless the weights are needed."""

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As the readable form's."""
        if need_weights or not kernel_is_quicker(query):
            return super().attend_heads(query, key, value, mask, need_weights, is_causal)
        rate = self.dropout.p if self.dropout.training else 0.0
        heads = fused_attention(query, key, value, mask, rate, is_causal)  # [B, H, T, V]
        return self.out_proj(heads.transpose(1, 2).flatten(2)), None


class FastSelfAttention(FusedHeads, SelfAttention):
    """:class:`SelfAttention` by a kernel."""


class FastCrossAttention(FusedHeads, CrossAttention):
    """:class:`CrossAttention` by a kernel; k hypotheses may share their sentence's keys."""

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As the readable form's, or ``query`` is [B·k, H, T, K], k of them for each sentence.

        Then k hypotheses of T tokens are computed as one of k·T tokens. Weights are [B, H, k·T, S].
        """
        if len(query) == len(key):
            return super().attend_heads(query, key, value, mask, need_weights, is_causal)
        rows, heads, length, width = query.shape
        query = query.view(len(key), -1, heads, length, width).transpose(1, 2).flatten(2, 3)
        attended, weights = super().attend_heads(query, key, value, mask, need_weights, is_causal)
        return attended.view(rows, length, -1), weights


class FastEncoder(Encoder):
    """:class:`Encoder` that masks nothing where nothing is padded: kernels are quicker so."""

    def find_padding(self, tokens: Tensor) -> Tensor | None:
        """[B, S] → bool [B, S], or None if a cheap check shows that nothing is padded.

        On a GPU the check is left out: the host would wait for the device in every forward pass.
        """
        is_padding = super().find_padding(tokens)
        nothing = is_padding is not None and tokens.device.type == "cpu" and not is_padding.any()
        return None if nothing else is_padding


def shares_keys(decoder: nn.Module) -> bool:
    """Whether k hypotheses may share their sentence's memory in all layers of a decoder."""
    return all(isinstance(layer.cross_attention, FastCrossAttention) for layer in decoder.layers)
