"""Matrix products by the library that is faster on this processor; equal to torch.nn.Linear.

On some CPUs oneDNN, which torch includes, multiplies float32 matrices faster than the library that
torch uses for them (processor.py). Elsewhere, and for every other type, a product is torch's own,
unless the weights were packed for decoding (:meth:`FastLinear.pack`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..embedding import is_traced
from ..precision import has_bf16_units
from .processor import choices_for

MIN_MULTIPLICATIONS = 2**21
"""oneDNN is used from this number on: starting it takes longer than a smaller product itself."""

ROWS = 128
"""In training, rows are padded with zeros to a multiple of this number for oneDNN.

oneDNN makes a program for each number of rows and keeps it, parts of it permanently. The programs
lie in memory between the tensors, so memory would grow with the number of different batch shapes.
"""


def can_pack(weight: Tensor) -> bool:
    """Return whether oneDNN can, and should, multiply by this weight in its own layout."""
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if weight.is_inference():  # torch does not count writes to it
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    least = choices_for("cpu").packed_from
    return weight.dtype == torch.float32 and least is not None and weight.numel() >= least


def in_autocast() -> bool:
    """Return whether autocast chooses the types of products on the CPU."""
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # torch before 2.4
        return torch.is_autocast_cpu_enabled()


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether ``linear`` computes this product by oneDNN; never in a traced graph."""
    return (
        not is_traced()
        and choices_for("cpu").fp32_by_onednn
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() * weight.size(0) >= MIN_MULTIPLICATIONS
        and not in_autocast()
    )


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x · weightᵀ + bias by oneDNN, without gradient: [..., I], [O, I] → [..., O]."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def in_whole_blocks(x: Tensor) -> Tensor:
    """Pad x [N, I] with rows of zeros to a multiple of ROWS."""
    missing = -x.size(0) % ROWS
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def onednn_in_blocks(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute :func:`onednn` on rows that are padded to a multiple of ROWS."""
    rows = x.reshape(-1, x.size(-1))
    result = onednn(in_whole_blocks(rows), weight, bias)[: rows.size(0)]
    return result.view(*x.shape[:-1], weight.size(0))


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient gᵀ x of a weight: [N, O] and [N, I] → [O, I]."""
    if by_onednn(grad.t(), x.t()):
        return onednn(in_whole_blocks(grad).t(), in_whole_blocks(x).t())
    return grad.t() @ x


class OneDNNLinear(torch.autograd.Function):
    """y = x Wᵀ + b and its gradients, all by oneDNN if they are large enough."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the product: x [..., I], weight [O, I] and bias [O] → [..., O]."""
        ctx.save_for_backward(x, weight)
        return onednn_in_blocks(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients dx = g W, dW = gᵀ x and db = Σ g."""
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.size(-1))  # [N, O]
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = onednn_in_blocks(rows, weight.t()).view(x.shape)
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(rows, x.reshape(-1, x.size(-1)))
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x · weightᵀ + bias, as ``torch.nn.functional.linear``.

    Args:
        x: [..., I]
        weight: [O, I]
        bias: [O]

    Returns:
        [..., O].
    """
    if not by_onednn(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return OneDNNLinear.apply(x, weight, bias)
    return onednn_in_blocks(x, weight, bias)


class FastLinear(nn.Linear):
    """``torch.nn.Linear``, with products by the faster library.

    Attributes:
        packed: see :meth:`pack`
    """

    packed: Tensor | None = None
    packed_version = 0  # of the weight; torch counts writes to it

    def forward(self, x: Tensor) -> Tensor:
        """Compute the product: [..., I] → [..., O]."""
        current = self.packed is not None and self.packed_version == self.weight._version
        if current and x.numel() and x.device.type == "cpu" and not torch.is_grad_enabled():
            return onednn(x.to(self.weight.dtype), self.packed, self.bias)
        return linear(x, self.weight, self.bias)

    def pack(self) -> None:
        """Keep a copy of the weights in oneDNN's layout, for inference only.

        Otherwise oneDNN converts the weights for each product, which takes longer than the product
        for the few rows of a step of beam search. Nothing is done where another library is faster.
        The copy is not used after a write to the weights that torch counts; torch does not count
        writes through ``weight.data``.
        """
        if can_pack(self.weight):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            self.packed_version = self.weight._version

    def _apply(self, *args: Any, **kwargs: Any) -> "FastLinear":
        """Convert the module, as ``to``, ``half`` and ``cuda`` do, and drop the packed weights."""
        self.packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy, without the packed weights, which cannot be copied."""
        return {**self.__dict__, "packed": None}


def convert_to_bf16(model: nn.Module) -> None:
    """Convert the matrices to bf16 for decoding, if the device has hardware for bf16.

    Autocast would convert them in each batch.
    """
    if has_bf16_units(next(model.parameters()).device.type):
        for module in model.modules():
            if isinstance(module, FastLinear):
                for name, weight in list(module.named_parameters()):
                    weight = nn.Parameter(weight.to(torch.bfloat16), requires_grad=False)
                    setattr(module, name, weight)


def pack_weights(model: nn.Module) -> None:
    """Pack the weights of all linear layers for decoding on a CPU (:meth:`FastLinear.pack`).

    Only for an engine that owns its model, since some writes to the weights are not noticed.
    """
    for module in model.modules():
        if isinstance(module, FastLinear):
            module.pack()
