"""The factor from products of queries and keys to scores, in every softmax of a model (3.2.1).

Needs only ``build`` and ``logits``. The trace records products of queries and keys, with the
factors applied to queries and keys before. The slope of the scores over the product is the factor
applied after it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .subject import Subject
from .trace import (
    EXPONENTS,
    SOFTMAX,
    Exponentials,
    Layouts,
    place,
    single_number,
    to_front,
    trace_model,
)
from .wiring import HIDDEN

COPIES = ("clone", "_to_copy", "contiguous", "expand_copy", "_unsafe_view", "neg")
TIMES = ("mul", "mul_", "div", "div_")
SUMS = ("add", "add_", "sub", "sub_")
JOINS = ("cat", "stack", *SUMS)
ACTIVATIONS = {
    "relu": "ReLU",
    "relu_": "ReLU",
    "clamp_min": "ReLU",
    "clamp": "ReLU",
    "threshold": "ReLU",
    "tanh": "tanh",
    "gelu": "GELU",
    "silu": "SiLU",
    "sigmoid": "sigmoid",
    "elu": "ELU",
    "leaky_relu": "leaky ReLU",
    "native_layer_norm": "LayerNorm",
}
"""operation of torch → activation that its result has in a matrix product or a sum"""
POWERS: dict[str, Callable[[Tensor], Tensor]] = {
    "a square": torch.square,
    "an absolute value": torch.abs,
    "a third power": lambda numbers: numbers**3,
}
"""functions of scores that are no activation"""
NORMS = ("linalg_vector_norm", "norm")
REDUCTIONS = {"mean": "averaged", "sum": "added", "amax": "reduced to their maximum"}
"""operation of torch over heads → what it does with them"""


class Product(NamedTuple):
    """A matrix product, perhaps of queries and keys."""

    numbers: Tensor
    factor: float
    """product of the factors of its operands"""
    width: int
    activations: tuple[str, ...]
    """the activations of its operands"""
    operands: tuple[Tensor, Tensor]
    """the first, and the second transposed: vectors that are multiplied are rows"""


class Scale(NamedTuple):
    """The factor from products of queries and keys to the scores of a softmax, and sizes."""

    factor: float
    width: int
    queries: int
    keys: int
    heads: dict[str, list[float]]
    """``queries``, ``keys`` and ``values`` → a fingerprint of the matrix of each head"""


def fingerprints(numbers: Tensor, size: int) -> list[float]:
    """Return a number for each matrix of ``size`` elements; those of equal matrices are equal."""
    if numbers.numel() % size:
        return []
    return [float(n) for n in numbers.detach().double().reshape(-1, size).pow(3).sum(1)]


class Scales(TorchDispatchMode):
    """Records the factor of the scores, and d_k, of each softmax over queries and keys.

    Also records activations and factors that the paper does not have.

    Args:
        layouts: the dimensions of queries and keys in attention weights
        wide: d_ff; tensors of this width may have an activation
        heads: h
    """

    def __init__(self, layouts: Layouts, wide: int = 0, heads: int = 1) -> None:
        super().__init__()
        self.layouts = layouts
        self.heads = heads
        self.wide = wide
        self.activations: dict[int, str] = {}
        """address of a tensor → the activation whose output it is"""
        self.weights: dict[int, float] = {}
        """address of attention weights → their factor"""
        self.factors_of_weights: list[float] = []
        self.strays: list[tuple[str, str]] = []
        """activation, and the operation that uses its output"""
        self.factors: dict[int, float] = {}
        self.contexts: set[int] = set()
        """addresses of products of attention weights and values"""
        self.reductions: list[str] = []
        """operations over the heads of such products"""
        self.products: list[Product] = []
        self.activated: list[tuple[str, Tensor]] = []
        """activations with as many numbers as a product, and their output"""
        self.scales: list[Scale] = []
        self.exponentials = Exponentials()
        self.alive: list[Any] = []  # so that no address is used again

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in SOFTMAX:
            if place(args[0]) in self.weights:
                self.strays.append(("a softmax", "scores"))
            self.softmax(to_front(args[0], self.layouts))
        exponents = self.exponentials.exponents(name, args)
        if exponents is not None:
            self.softmax(to_front(exponents, self.layouts))
        factor = self.factor_of_result(name, args)
        result = func(*args, **(kwargs or {}))
        self.alive.append(result)
        if factor is not None:
            self.factors[place(result)] = factor
        self.note_activation(name, args, result)
        if name in EXPONENTS:
            self.exponentials.add(name, args[0], result)
        if exponents is not None:
            self.weights[place(result)] = 1.0
        if name in ("mm", "bmm"):
            if self.product(args[0], args[1], result.detach().clone()):
                self.contexts.add(place(result))
        elif name == "baddbmm":
            alpha = (kwargs or {}).get("alpha", 1.0)
            self.product(args[1], args[2], alpha * torch.bmm(args[1], args[2]).detach())
        return result

    def factor_of_result(self, name: str, args: Any) -> float | None:
        """Return the factor of an operation's result; None unless it copies, joins or scales."""
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
        """Return the factor recorded for a tensor; 1 if there is none."""
        return self.factors.get(place(tensor), 1.0)

    def note_activation(self, name: str, args: Any, result: Any) -> None:
        """Follow activations and attention weights to the operation that uses them."""
        first = result[0] if isinstance(result, tuple) else result
        self.note_reduction(name, args, first)
        if name in SOFTMAX:
            self.weights[place(first)] = 1.0
        elif name in ACTIVATIONS and self.activation(args[0]) == "norm":
            self.activations[place(first)] = "norm"  # a clamp that keeps a norm above zero
        elif name in ACTIVATIONS or name in NORMS:
            self.activations[place(first)] = ACTIVATIONS.get(name, "norm")
            if any(p.numbers.numel() == first.numel() for p in self.products):
                numbers = to_front(first.detach().clone(), self.layouts)
                self.activated.append((self.activations[place(first)], numbers))
        elif name in TIMES and isinstance(args[0], Tensor):
            self.note_factor(name, args, first)
        elif name in COPIES or is_sum_with_number(name, args):
            self.inherit(args[0], first)
        elif name in ("add", "add_") and isinstance(args[1], Tensor):
            for each in args[:2]:
                is_residual = each.shape == first.shape and each.size(-1) != self.wide
                if is_residual and self.activation(each) not in ("", "LayerNorm", "norm"):
                    self.strays.append((self.activation(each), "sum"))
        elif name == "addmm":
            self.note_use(args[1])

    def note_reduction(self, name: str, args: Any, result: Any) -> None:
        """Record an operation that averages or adds the outputs of heads."""
        if self.heads == 1 or not args or not isinstance(args[0], Tensor):
            return
        if name in REDUCTIONS and place(args[0]) in self.contexts:
            is_over_heads = args[0].numel() == self.heads * result.numel()
            self.reductions += [name] if is_over_heads else []
        is_sum = name in ("add", "add_") and isinstance(args[1], Tensor)
        if is_sum and {place(args[0]), place(args[1])} <= self.contexts:
            self.reductions.append("sum")
            self.contexts.add(place(result))

    def note_factor(self, name: str, args: Any, result: Tensor) -> None:
        """Record the factor of an elementwise product or quotient."""
        number = single_number(args[1])
        weights = self.weights.get(place(args[0]))
        if number is None:
            if name.startswith("div") and self.activation(args[1]) == "norm":
                self.activations[place(result)] = "normalisation to unit length"
            return
        self.inherit(args[0], result)
        if weights is not None:
            self.weights[place(result)] = weights * (
                number if name.startswith("mul") else 1 / number
            )

    def inherit(self, before: Tensor, after: Tensor) -> None:
        """Record that a tensor is a copy or a multiple of another tensor."""
        if self.activation(before):
            self.activations[place(after)] = self.activation(before)
        if place(before) in self.weights:
            self.weights[place(after)] = self.weights[place(before)]
        if place(before) in self.contexts:
            self.contexts.add(place(after))

    def activation(self, tensor: Tensor) -> str:
        """Return the activation that a tensor is the output of; empty if there is none."""
        return self.activations.get(place(tensor), "")

    def note_use(self, operand: Tensor) -> None:
        """Record an activation whose output a matrix of d_model rows multiplies."""
        name = self.activation(operand)
        if name not in ("", "LayerNorm", "norm") and operand.size(-1) != self.wide:
            self.strays.append((name, "matrix"))

    def product(self, a: Tensor, b: Tensor, numbers: Tensor) -> bool:
        """Record a matrix product, and return whether an operand is attention weights."""
        factor = self.factor(a) * self.factor(b)
        names = tuple(name for name in (self.activation(a), self.activation(b)) if name)
        self.products.append(
            Product(numbers, factor, a.size(-1), names, (a.detach(), b.detach().mT))
        )
        for operand, other in ((a, b), (b, a)):
            weights = self.weights.get(place(operand))
            if weights is not None:
                self.factors_of_weights.append(weights)
                if self.activation(other):
                    self.strays.append((self.activation(other), "values"))
                if self.scales:
                    size = other.numel() // (len(other) if other.dim() > 2 else 1)
                    self.scales[-1].heads["values"] += fingerprints(other, size)
                return True
        if a.dim() == 2:
            self.note_use(a)
        return False

    def softmax(self, scores: Tensor) -> None:
        """Record the factor from the last product that fits to the scores of a softmax."""
        for product in reversed(self.products):
            if product.numbers.numel() == scores.numel():
                slope = slope_of(scores, product.numbers.reshape(scores.shape))
                of_queries, of_keys = product.operands
                if slope is None:  # keys times queries
                    turned = product.numbers.reshape(scores.mT.shape).mT
                    slope = slope_of(scores, turned)
                    of_keys, of_queries = product.operands
                if slope is not None:
                    queries, keys = scores.shape[-2:]
                    factor = slope * product.factor
                    heads = {
                        "queries": fingerprints(of_queries, queries * product.width),
                        "keys": fingerprints(of_keys, keys * product.width),
                        "values": [],
                    }
                    self.scales.append(Scale(factor, product.width, queries, keys, heads))
                    self.strays += [(name, "queries or keys") for name in product.activations]
                    return
        activated = list(reversed(self.activated))
        for product in reversed(self.products):
            activated += [(name, function(product.numbers)) for name, function in POWERS.items()]
        for name, numbers in activated:
            has_size = numbers.numel() == scores.numel()
            if has_size and slope_of(scores, numbers.reshape(scores.shape)) is not None:
                self.strays.append((name, "scores"))
                return


def is_sum_with_number(name: str, args: Any) -> bool:
    """Return whether an operation adds one number to a tensor, or subtracts it."""
    return name in SUMS and len(args) > 1 and single_number(args[1]) is not None


def centre(numbers: Tensor, visible: Tensor) -> Tensor:
    """Return numbers minus the mean of the visible ones in each row; hidden ones are zero."""
    numbers = numbers.masked_fill(~visible, 0.0)
    means = numbers.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp(min=1)
    return (numbers - means).masked_fill(~visible, 0.0)


def slope_of(scores: Tensor, product: Tensor) -> float | None:
    """Return the factor from a product to scores, which may be masked; None if none fits."""
    visible = scores.gt(HIDDEN)
    y = centre(scores.detach().double(), visible)
    x = centre(product.double(), visible)
    square = (x * x).sum()
    if square < 1e-20:
        return None
    slope = (x * y).sum() / square
    return float(slope) if (y - slope * x).norm() < 1e-3 * y.norm() else None


@lru_cache(maxsize=1)
def scales_of(subject: Subject) -> Scales:
    """Return the trace of a subject's products, made once for all checks."""
    c = subject.config
    with trace_model(), Scales(subject.layouts, c.d_ff, c.heads) as trace:
        logits = subject.logits(subject.source[:1], subject.target[:1])
    name = trace.activation(logits)
    if place(logits) in trace.weights:
        name = "A softmax over another dimension than the vocabulary"
    if name not in ("", "LayerNorm", "norm"):
        trace.strays.insert(0, (name, "logits"))
    return trace
