"""A layer of the file as a function, and candidate formulas for it.

Parameters are recognised by their shape. Those with d_ff rows or columns belong to the feed-forward
network, vectors of ones are gains of norms (as in a new model), and the rest belongs to attention.
With all parameters but the gains set to zero, the sub-layers return zero, and the layer is a
formula of its input.

Shape letters: B batch, L length, S source, D d_model.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activation import ACTIVATIONS
from .dropout import run_in_training
from .findings import Finding
from .modes import set_to_zero
from .registry import check_of
from .subject import SAME, AdapterError, Subject, difference
from .trace import Trace, trace_model

ENCODER_LAYER, DECODER_LAYER = "encoder_layer", "decoder_layer"


class Layer:
    """``encoder_layer`` or ``decoder_layer`` as a function of x [B, L, D], and its parameters.

    Args:
        subject: defines the function
        function: its name
    """

    def __init__(self, subject: Subject, function: str) -> None:
        self.subject = subject
        self.function = function
        self.is_decoder = function == DECODER_LAYER
        self.sublayers = 3 if self.is_decoder else 2
        width = subject.config.d_model
        numbers = torch.Generator().manual_seed(2)
        self.x = torch.randn(1, 6, width, generator=numbers)
        self.memory = torch.randn(1, 4, width, generator=numbers)
        output = self(self.x)
        if not output.requires_grad:
            raise AdapterError(
                f"{function}() returned a tensor without gradient: remove no_grad() or detach()",
                function,
            )
        every = [p for p in subject.model.parameters() if p.requires_grad]
        loss = (output * torch.randn(output.shape, generator=numbers)).sum()
        gradients = torch.autograd.grad(loss, every, allow_unused=True)
        own = [p for p, g in zip(every, gradients, strict=True) if g is not None]
        self.gains = [p for p in own if p.dim() == 1 and bool((p == 1).all())]
        self.ffn = [p for p in own if subject.config.d_ff in p.shape]
        named = {id(p) for p in (*self.gains, *self.ffn)}
        self.attention = [p for p in own if id(p) not in named]

    def arguments(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of the function after the model: x, and a decoder's memory."""
        return (x, self.memory) if self.is_decoder else (x,)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output [B, L, D] of the layer for x [B, L, D]."""
        arguments = self.arguments(x)
        shape = tuple(x.shape)
        return self.subject.tensor(self.function, shape, self.subject.model, *arguments)

    @contextmanager
    def reading(self, memory: Tensor) -> Iterator[None]:
        """Replace the memory within the context."""
        before = self.memory
        self.memory = memory
        try:
            yield
        finally:
            self.memory = before

    def bare(self, x: Tensor) -> Tensor:
        """Return the output with sub-layers that return zero."""
        with set_to_zero([*self.attention, *self.ffn]), torch.no_grad():
            return self(x)

    def with_bias(self, x: Tensor, bias: nn.Parameter, values: Tensor) -> Tensor:
        """Return the output with sub-layers that return zero, except for the values of one bias."""
        with set_to_zero([*self.attention, *self.ffn]), torch.no_grad():
            bias.copy_(values)
            return self(x)

    def with_ffn(self, x: Tensor) -> Tensor:
        """Return the output with attention that returns zero, and without b_2 of equation 2."""
        with set_to_zero(self.attention), torch.no_grad():
            return self(x)

    def biases(self) -> list[nn.Parameter]:
        """Return the biases with d_model elements."""
        width = self.subject.config.d_model
        return [p for p in (*self.attention, *self.ffn) if p.shape == (width,)]

    def trace(self, x: Tensor) -> Trace:
        """Trace a run of the layer without biases."""
        biases = [p for p in (*self.attention, *self.ffn) if not self.subject.is_matrix(p)]
        with set_to_zero(biases), trace_model(layouts=self.subject.layouts) as trace:
            self(x)
        return trace

    def run_in_training(self) -> Trace:
        """Trace a run of the layer in training mode with dropout 0.5."""
        return run_in_training(self.subject, self.function, *self.arguments(self.x))[2]


@lru_cache(maxsize=2)
def layer_of(subject: Subject, function: str) -> Layer:
    """Return the layer of a subject, made once for all checks."""
    return Layer(subject, function)


LayerCheck = Callable[[Layer], Finding]
SIDES = {"encoder": ENCODER_LAYER, "decoder": DECODER_LAYER}


def check_of_layers(
    check_id: str, section: str, **texts: Any
) -> Callable[[LayerCheck], LayerCheck]:
    """Register the decorated function as a check of the first encoder and decoder layer."""

    def add(look: LayerCheck) -> LayerCheck:
        for side, function in SIDES.items():
            check_of(check_id, section, **texts, needs=(function,), side=side)(
                lambda subject, function=function: look(layer_of(subject, function))
            )
        return look

    return add


def norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Apply LayerNorm with gain one and bias zero."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def is_post_norm(layer: Layer) -> bool:
    """Return whether a layer whose sub-layers return zero is a norm of its input."""
    return difference(norm(layer.x), norm(layer.bare(layer.x))) < 1e-2 and not is_pre_norm(layer)


def is_pre_norm(layer: Layer) -> bool:
    """Return whether a layer whose sub-layers return zero returns its input."""
    return difference(layer.x, layer.bare(layer.x)) < SAME


EXACT = 1e-5
"""Largest misfit that rounding explains: no other formula fits as well."""
RIGHT = ""
"""The paper's place: the feed-forward network reads the last sum, and is added to it."""


class Fit(NamedTuple):
    """The misfit of equation 2, with one activation, place and norm, to the layer's output."""

    misfit: float
    """in standard deviations"""
    activation: str
    place: str
    rows: float
    """variance of a token after the norm: 1, or less if the norm uses the sample variance"""


def places(x: Tensor, h: Tensor, is_post: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the residual and the network's input, by place; the paper's place comes first.

    ``x`` is the layer's input, and ``h`` is its norm.
    """
    if not is_post:
        return {RIGHT: (x, h), "reads an input that is not normalised": (x, x)}
    return {
        RIGHT: (h, h),
        "reads the layer's input": (h, x),
        "comes before attention": (x, x),
        "is added to the layer's input": (x, h),
        "has no residual connection": (torch.zeros_like(x), h),
        "is added to twice its input": (2 * h, h),
        "is added to half of its input": (0.5 * h, h),
    }


def ffn_matrices(layer: Layer) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the candidates for W_1 [d_ff, D], b_1 [d_ff] and W_2 [D, d_ff] of the layer.

    nn.Linear stores [out, in] and other code [in, out], so there are two. The list is empty if the
    layer has other matrices.
    """
    c = layer.subject.config
    matrices = [p.detach().flatten(1) for p in layer.ffn if p.dim() > 1]
    biases = [p.detach() for p in layer.ffn if p.dim() == 1] or [torch.zeros(c.d_ff)]
    shapes = sorted(tuple(m.shape) for m in matrices)
    if shapes != sorted([(c.d_ff, c.d_model), (c.d_model, c.d_ff)]) or len(biases) != 1:
        return []
    first, second = matrices if matrices[0].size(0) == c.d_ff else matrices[::-1]
    return [(first, biases[0], second), (second.T, biases[0], first.T)]


def fits(layer: Layer) -> Iterable[Fit]:
    """Yield the fit of each variant of equation 2, computed with the layer's own matrices."""
    c = layer.subject.config
    is_post = is_post_norm(layer)
    if not is_post and not is_pre_norm(layer):
        return
    x = layer.x
    output = layer.with_ffn(x)
    for rows in [1.0] if is_post else [1.0, 1 - 1 / c.d_model]:
        h = layer.bare(x) if is_post else norm(x) * rows**0.5
        for place, (residual, read) in places(x, h, is_post).items():
            for name, activation in ACTIVATIONS.items():
                for first, bias, second in ffn_matrices(layer):
                    total = residual + activation(read @ first.T + bias) @ second.T
                    expected = layer.bare(total) if is_post else total
                    yield Fit(difference(expected, output), name, place, rows)


@lru_cache(maxsize=2)
def best_fit(layer: Layer) -> Fit:
    """Return the fit with the smallest misfit.

    The misfit is infinite if the layer has no such matrices, or is neither post-norm nor pre-norm.
    """
    best = Fit(math.inf, "", RIGHT, 1.0)
    for fit in fits(layer):
        best = min(best, fit)
        if best.misfit < EXACT:
            break
    return best
