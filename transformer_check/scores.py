"""By what every softmax of a model divides its products; needs only ``build`` and ``logits``.

A trace of products of queries and keys: the factors that queries and keys got before, and the slope
of the scores over the product, which shows what came after.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .findings import Finding, differs, not_run, passed
from .registry import check_of
from .subject import Subject
from .trace import SOFTMAX, Layouts, place, to_front, traced
from .wiring import HIDDEN

COPIES = ("clone", "_to_copy", "contiguous", "expand_copy", "_unsafe_view", "neg")
TIMES = ("mul", "mul_", "div", "div_")
JOINS = ("cat", "stack", "add", "add_", "sub", "sub_")


class Product(NamedTuple):
    """Of queries and keys, perhaps."""

    numbers: Tensor
    factor: float
    """of its two operands"""
    width: int


def single_number(value: Any) -> float | None:
    """A number, or the only one in a tensor."""
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if isinstance(value, Tensor) and value.numel() == 1 else None


class Scales(TorchDispatchMode):
    """Keeps, of each softmax over queries and keys, the factor of their products, and d_k."""

    def __init__(self, layouts: Layouts) -> None:
        super().__init__()
        self.layouts = layouts
        self.factors: dict[int, float] = {}
        self.products: list[Product] = []
        self.scales: list[tuple[float, int]] = []
        self.alive: list[Any] = []  # so that no place is used twice

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in SOFTMAX:
            self.softmax(to_front(args[0], self.layouts))
        factor = self.factor_of_result(name, args)
        result = func(*args, **(kwargs or {}))
        self.alive.append(result)
        if factor is not None:
            self.factors[place(result)] = factor
        if name in ("mm", "bmm"):
            self.product(args[0], args[1], result.detach().clone())
        elif name == "baddbmm":
            alpha = (kwargs or {}).get("alpha", 1.0)
            self.product(args[1], args[2], alpha * torch.bmm(args[1], args[2]).detach())
        return result

    def factor_of_result(self, name: str, args: Any) -> float | None:
        """Nothing for an operation whose result begins anew."""
        if name in COPIES:
            return self.factor(args[0])
        if name in JOINS:
            parts = args[0] if isinstance(args[0], (list, tuple)) else args[:2]
            factors = {self.factor(part) for part in parts if isinstance(part, Tensor)}
            return factors.pop() if len(factors) == 1 else None
        if name not in TIMES:
            return None
        factors_of_both = []
        for each in args[:2]:
            number = single_number(each)
            factors_of_both.append(self.factor(each) if number is None else number)
        numbers, by = factors_of_both
        return numbers * by if name.startswith("mul") else numbers / by

    def factor(self, tensor: Tensor) -> float:
        """By what a tensor was multiplied since the last operation that began anew."""
        return self.factors.get(place(tensor), 1.0)

    def product(self, a: Tensor, b: Tensor, numbers: Tensor) -> None:
        """Keep a product."""
        factor = self.factor(a) * self.factor(b)
        self.products.append(Product(numbers, factor, a.size(-1)))

    def softmax(self, scores: Tensor) -> None:
        """Find the product that scores were made from: the last one with as many numbers."""
        for product in reversed(self.products):
            if product.numbers.numel() == scores.numel():
                slope = slope_of(scores, product.numbers.reshape(scores.shape))
                if slope is None:  # keys times queries
                    turned = product.numbers.reshape(scores.mT.shape).mT
                    slope = slope_of(scores, turned)
                if slope is not None:
                    self.scales.append((slope * product.factor, product.width))
                    return


def centred(numbers: Tensor, visible: Tensor) -> Tensor:
    """Less the mean of each row's visible ones; zero elsewhere."""
    numbers = numbers.masked_fill(~visible, 0.0)
    means = numbers.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp(min=1)
    return (numbers - means).masked_fill(~visible, 0.0)


def slope_of(scores: Tensor, product: Tensor) -> float | None:
    """By what a product is multiplied in scores that may be masked; nothing if they are no such."""
    visible = scores.gt(HIDDEN)
    y = centred(scores.detach().double(), visible)
    x = centred(product.double(), visible)
    square = (x * x).sum()
    if square < 1e-20:
        return None
    slope = (x * y).sum() / square
    return float(slope) if (y - slope * x).norm() < 1e-3 * y.norm() else None


@check_of(
    "attention-scale",
    "3.2.1",
    passes="Every attention layer divides its scores by √d_k.",
    fails="An attention layer does not divide its scores by √d_k.",
)
def scales_of_model(subject: Subject) -> Finding:
    """Compare the scores with the products of queries and keys, in every softmax of the model."""
    c = subject.config
    with traced(), Scales(subject.layouts) as trace:
        subject.logits(subject.source[:1], subject.target[:1])
    if not trace.scales:
        return not_run("no torch softmax of a product of queries and keys was seen")
    d_k = c.widths()[0]
    expected = d_k**-0.5
    wrong = {f"{scale:.4f}" for scale, _ in trace.scales if abs(scale / expected - 1) > 1e-3}
    if not wrong:
        return passed()
    scale = min((scale for scale, _ in trace.scales), key=lambda s: -abs(s / expected - 1))
    usual = {
        "The scores are divided by √d_model instead of √d_k.": c.d_model**-0.5,
        "The scores are not divided by √d_k.": 1.0,
        "The scores are divided by √d_k twice.": 1 / d_k,
        "The scores are divided by √d_v instead of √d_k.": c.widths()[1] ** -0.5,
        "The scores are divided by √d_k of another number of heads.": trace.scales[0][1] ** -0.5,
    }
    near = [says for says, value in usual.items() if abs(scale / value - 1) < 1e-3]
    count = sum(abs(s / expected - 1) > 1e-3 for s, _ in trace.scales)
    return differs(
        f"factor {', '.join(sorted(wrong))} in {count} of {len(trace.scales)} softmaxes",
        f"1/√{d_k} = {expected:.4f}",
        says=near[0] if near else "",
    )
