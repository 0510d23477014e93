"""Attention by torch's fused kernels: equal to ``attention`` of ../attention.py within rounding.

Shape letters: B batch, T queries, S keys, H heads, K width of queries and keys, V of values.
"""

import threading
from types import TracebackType

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention import (
    CrossAttention,
    Mask,
    MultiHeadAttention,
    SelfAttention,
    Weights,
    attention,
    check_mask,
)
from ..embedding import is_traced
from ..encoder import Encoder

#: whether this torch can choose cuDNN's attention
HAS_CUDNN_ATTENTION = hasattr(torch._C, "_set_sdp_use_cudnn")


class CudnnOff:
    """Context in which torch does not choose cuDNN for attention, in any thread.

    torch does so from cuDNN 9.15 on, in fp16 and bf16 on an H100, H200 or B200, and cuDNN makes a
    plan for each new shape, which takes longer than all the rest; batches hardly ever repeat one.
    On an H200 an update of the base model in bf16 took 403 to 724 ms with it, and 51 to 60 without.

    The switch is the process's: the first block that begins turns it off, and the last that ends
    puts it back as the user had it, so that threads do not leave it off for each other. A block
    takes 1.6 µs on a Zen 4, torch's own ``sdpa_kernel`` 26, which also turns on kernels that a user
    had turned off.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.before = False

    def __enter__(self) -> None:
        with self.lock:
            if self.blocks == 0:
                self.before = torch._C._get_cudnn_sdp_enabled()
                torch._C._set_sdp_use_cudnn(False)
            self.blocks += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                torch._C._set_sdp_use_cudnn(self.before)


cudnn_off = CudnnOff()


def without_cudnn(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float, is_causal: bool
) -> Tensor:
    """Compute torch's attention, but never by cuDNN: see :class:`CudnnOff`."""
    if not torch.compiler.is_compiling():
        with cudnn_off:
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
    # The kernel is chosen while the graph is traced, in one thread, and stays in it; a switch
    # outside would not do, as torch's cache of graphs on disk does not know of it. A lock would
    # break the graph.
    before = torch._C._get_cudnn_sdp_enabled()
    torch._C._set_sdp_use_cudnn(False)
    try:
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
    finally:
        torch._C._set_sdp_use_cudnn(before)


def may_choose_cudnn(query: Tensor) -> bool:
    """Return whether torch might compute attention by cuDNN, which it never does in fp32."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return HAS_CUDNN_ATTENTION and is_half and query.device.type == "cuda"


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """Compute softmax(Q Kᵀ / √d_k) V without storing the weights.

    Arguments as in ``attention``.

    Returns:
        [B, H, T, V].
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # a CPU's kernel is faster in fp32 (one query: half the time), conversion included
        with torch.autocast("cpu", enabled=False):
            in_fp32 = (query.float(), key.float(), value.float())
            return fused_attention(*in_fp32, mask, dropout, is_causal).to(query.dtype)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    if may_choose_cudnn(query):
        return without_cudnn(query, key, value, mask, dropout, is_causal)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def kernel_is_quicker(query: Tensor) -> bool:
    """Return whether torch's kernel is faster than plain products.

    It is not in training in bf16 on a CPU: there the kernel's backward pass takes five times as
    long for sentences of 16 words, and twice as long for 1,024.
    """
    on_cpu = query.device.type == "cpu"
    return not (on_cpu and query.dtype == torch.bfloat16 and torch.is_grad_enabled())


def quick_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float, is_causal: bool
) -> Tensor:
    """Compute equation 1 by a kernel where it is faster; arguments as in ``attention``.

    Returns:
        [B, H, T, V].
    """
    if not kernel_is_quicker(query):
        return attention(query, key, value, mask, dropout, is_causal)[0]
    check_mask(mask, is_causal)
    return fused_attention(query, key, value, mask, dropout, is_causal)


class FusedHeads(MultiHeadAttention):
    """Base of the fast attentions: a kernel computes equation 1 unless the weights are needed."""

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask = None,
        weights: Weights = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Compute equation 1 in every head, then multiply by W^O; as in the base class."""
        if weights is not None:
            return super().attend_heads(query, key, value, mask, weights, is_causal)
        rate = self.dropout.p if self.dropout.training else 0.0
        heads = quick_attention(query, key, value, mask, rate, is_causal)  # [B, H, T, V]
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class FastSelfAttention(FusedHeads, SelfAttention):
    """:class:`SelfAttention` by a kernel."""


class FastCrossAttention(FusedHeads, CrossAttention):
    """:class:`CrossAttention` by a kernel; k hypotheses may share their sentence's keys."""

    shares_keys = True

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask = None,
        weights: Weights = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Compute equation 1 in every head, then multiply by W^O, for k queries per sentence.

        ``query`` may also be [B·k, H, T, K], k hypotheses for each sentence. They are computed as
        one hypothesis of k·T tokens, with weights [B, H, k·T, S].
        """
        if query.size(0) == key.size(0):
            return super().attend_heads(query, key, value, mask, weights, is_causal)
        rows, heads, length, width = query.shape
        query = query.view(key.size(0), -1, heads, length, width).transpose(1, 2).flatten(2, 3)
        attended = super().attend_heads(query, key, value, mask, weights, is_causal)
        return attended.view(rows, length, -1)


class FastEncoder(Encoder):
    """:class:`Encoder` without a mask if nothing is padded, for which kernels are faster."""

    def find_padding(self, tokens: Tensor) -> Tensor | None:
        """Return which tokens are padding, bool [B, S]; None if a cheap check finds none.

        On a GPU there is no check: the host would wait for the device in every forward pass. Nor is
        there one while a graph is traced, since it is used for other batches, too.
        """
        is_padding = super().find_padding(tokens)
        if is_padding is None or tokens.device.type != "cpu" or is_traced():
            return is_padding
        return is_padding if is_padding.any() else None
