"""Matrix products by the library that is quicker on this processor: equal to torch.nn.Linear.

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
"""The fewest for which oneDNN is used: starting it takes longer than a smaller product itself."""

ROWS = 128
"""In training, oneDNN multiplies by multiples of so many rows, the last of them zeros if need be.

For each number of rows it makes a program of its own and keeps it, and parts of it for good. These
lie between the tensors, so that the memory of both grows with the number of shapes of the batches.
"""


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can, and should, multiply by this weight, kept in a layout of its own."""
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if weight.is_inference():  # torch does not count writes to it
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    least = choices_for("cpu").packed_from
    return weight.dtype == torch.float32 and least is not None and weight.numel() >= least


def in_autocast() -> bool:
    """Whether autocast decides the types of products on the CPU."""
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # torch before 2.4
        return torch.is_autocast_cpu_enabled()


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether ``linear`` gives this product to oneDNN; a graph would be for this size alone."""
    return (
        not is_traced()
        and choices_for("cpu").fp32_by_onednn
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() * weight.size(0) >= MIN_MULTIPLICATIONS
        and not in_autocast()
    )


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias: [..., I] and [O, I] → [..., O]; no gradient of its own."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def in_whole_blocks(x: Tensor) -> Tensor:
    """[N, I] → [N', I], where N' is the next multiple of ROWS; zeros are added below."""
    missing = -x.size(0) % ROWS
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def onednn_in_blocks(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As :func:`onednn`, which sees few numbers of rows: see ROWS."""
    rows = x.reshape(-1, x.size(-1))
    result = onednn(in_whole_blocks(rows), weight, bias)[: rows.size(0)]
    return result.view(*x.shape[:-1], weight.size(0))


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gᵀ x: [N, O] and [N, I] → [O, I]."""
    if by_onednn(grad.t(), x.t()):
        return onednn(in_whole_blocks(grad).t(), in_whole_blocks(x).t())
    return grad.t() @ x


class OneDNNLinear(torch.autograd.Function):
    """y = x Wᵀ + b and its gradients, all by oneDNN if they are large enough."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[..., I], [O, I] and [O] → [..., O]."""
        ctx.save_for_backward(x, weight)
        return onednn_in_blocks(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """dx = g W, dW = gᵀ x, db = Σ g."""
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
    """x · weightᵀ + bias, as ``torch.nn.functional.linear``.

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
    """``torch.nn.Linear``, with products by the quicker library.

    Attributes:
        packed: see :meth:`pack`
    """

    packed: Tensor | None = None
    packed_version = 0  # of the weight; torch counts writes to it

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] → [..., O]."""
        current = self.packed is not None and self.packed_version == self.weight._version
        if current and x.numel() and x.device.type == "cpu" and not torch.is_grad_enabled():
            return onednn(x.to(self.weight.dtype), self.packed, self.bias)
        return linear(x, self.weight, self.bias)

    def pack(self) -> None:
        """For inference only: also keep the weights in the layout in which oneDNN reads them.

        Otherwise oneDNN converts them for each product, which takes longer than the product for the
        few rows of a step of beam search. Nothing is done where another library is quicker. The
        packed weights are not used after a write to the weights that torch counts; it does not
        count those through ``weight.data``.
        """
        if can_pack(self.weight):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            self.packed_version = self.weight._version

    def _apply(self, *args: Any, **kwargs: Any) -> "FastLinear":
        """What ``to``, ``half``, ``cuda`` and the like do."""
        self.packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """The state to copy, without the packed weights, which cannot be copied."""
        return {**self.__dict__, "packed": None}


def convert_to_bf16(model: nn.Module) -> None:
    """For decoding in bf16: convert the matrices, if the model's device has units for it.

    Autocast would convert them in each batch.
    """
    if has_bf16_units(next(model.parameters()).device.type):
        for module in model.modules():
            if isinstance(module, FastLinear):
                for name, weight in list(module.named_parameters()):
                    weight = nn.Parameter(weight.to(torch.bfloat16), requires_grad=False)
                    setattr(module, name, weight)


def pack_weights(model: nn.Module) -> None:
    """For decoding on a CPU: keep the matrices in oneDNN's layout, too (:meth:`FastLinear.pack`).

    Only for an engine that owns its model: not all writes to the weights would be noticed.
    """
    for module in model.modules():
        if isinstance(module, FastLinear):
            module.pack()
