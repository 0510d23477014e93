"""The sums and the norms around the sub-layers of a first layer (3.1).

With attention's parameters zero, a layer is a formula of its input and of the feed-forward network,
whose matrices are known: norm(a · x + c · F(x)) in the paper, with a = c = 1. Every combination of
places of the norm and of factors is compared with the layer's output.

The factors of each residual sum are also measured at the inputs of the norms: with all sub-layers
zero such an input is a · x, and the bias of a sub-layer adds c times its values.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .activation import ACTIVATIONS
from .layer import EXACT, Layer, ffn_matrices, norm
from .norms import record_norms
from .subject import SAME, difference

Function = Callable[[Tensor], Tensor]


class Structure(NamedTuple):
    """The sum and norms around a sub-layer: outer(a · x or a · norm(x), c · post(F(pre(x))))."""

    normed_sum: bool = True
    normed_input: bool = False
    normed_output: bool = False
    residual: str = "x"
    """x, norm or none"""
    factor: float = 1.0
    """of the residual"""
    factor_of_output: float = 1.0
    is_product: bool = False
    """whether the sub-layer's output is multiplied with x"""
    lacks_last_norm: bool = False
    """whether the last sub-layer alone is x + Sublayer(x)"""

    @property
    def is_paper(self) -> bool:
        """Whether it is LayerNorm(x + Sublayer(x))."""
        return self == Structure()

    @property
    def has_other_place(self) -> bool:
        """Whether the norm is elsewhere than in the paper and in pre-norm, whatever the factors."""
        plain = self._replace(factor=1.0, factor_of_output=1.0)
        return plain not in (Structure(), PRE_NORM)

    def formula(self) -> str:
        """Return the structure as a formula, such as LayerNorm(x + Sublayer(x))."""
        if self.lacks_last_norm:
            return "x + Sublayer(x) around the feed-forward network"
        inner = "Sublayer(LayerNorm(x))" if self.normed_input else "Sublayer(x)"
        output = f"LayerNorm({inner})" if self.normed_output else inner
        x = {"x": "x", "norm": "LayerNorm(x)", "none": ""}[self.residual]
        if x and self.factor != 1:
            x = f"{self.factor:g} {x}"
        if self.factor_of_output == -1:
            total = f"{x} - {output}" if x else f"-{output}"
        elif self.is_product:
            total = f"{x} * {output}"
        else:
            scaled = output if self.factor_of_output == 1 else f"{self.factor_of_output:g} {output}"
            total = f"{x} + {scaled}" if x else scaled
        return f"LayerNorm({total})" if self.normed_sum else total

    def mistake(self) -> str:
        """Return the sentence for the difference from the paper; empty for pre-norm alone."""
        if self.lacks_last_norm:
            return "There is no norm after the feed-forward network."
        if self.is_product:
            return "A sub-layer's output is multiplied with its input instead of added."
        if self.residual == "none":
            return "The first layer has no residual connection."
        if self.factor != 1:
            if self.factor == 0.5 and self.normed_sum:
                return "The residual connection adds half of its input, or the output is doubled."
            times = "twice" if self.factor == 2 else "half of"
            return f"The residual connection adds {times} its input."
        if self.factor_of_output == -1:
            return "A sub-layer's output is subtracted from its input instead of added."
        if self.factor_of_output != 1:
            word = {2.0: "twice", 0.5: "half of"}.get(self.factor_of_output, "a multiple of")
            return f"The residual sum adds {word} the sub-layer's output."
        if self.residual == "norm":
            return "The residual connection carries the norm's output instead of its input."
        if self.normed_output and not self.normed_input:
            return "The norm is of the sub-layer's output instead of the sum: x + LayerNorm(f(x))."
        if self.normed_sum and self.normed_input:
            return "Each sub-layer has two norms, one before it and one after the sum."
        if not self.normed_sum and not self.normed_input:
            return "The first layer has no norm: x + Sublayer(x)."
        if self.normed_output:
            return "Each sub-layer has two norms, one before and one behind it."
        return ""


FACTORS = ((1.0, 1.0), (2.0, 1.0), (0.5, 1.0), (1.0, -1.0), (1.0, 2.0), (1.0, 0.5))
PRE_NORM = Structure(normed_sum=False, normed_input=True)


def structures() -> Iterator[Structure]:
    """Yield the paper's structure, then pre-norm, then all others."""
    yield Structure()
    yield PRE_NORM
    for factor, of_output in FACTORS:
        for residual in ("x", "norm", "none"):
            for normed_sum in (True, False):
                for normed_input in (False, True):
                    for normed_output in (False, True):
                        yield Structure(
                            normed_sum, normed_input, normed_output, residual, factor, of_output
                        )
    for normed_sum in (True, False):
        for normed_input in (False, True):
            yield Structure(normed_sum, normed_input, is_product=True)


def apply(structure: Structure, x: Tensor, sublayer: Function) -> Tensor:
    """Compute a sub-layer with the sum and norms of a structure."""
    output = sublayer(norm(x) if structure.normed_input else x)
    if structure.normed_output:
        output = norm(output)
    residual = {"x": x, "norm": norm(x), "none": torch.zeros_like(x)}[structure.residual]
    if structure.is_product:
        total = residual * output
    else:
        total = structure.factor * residual + structure.factor_of_output * output
    return norm(total) if structure.normed_sum else total


@lru_cache(maxsize=2)
def structure_of(layer: Layer) -> Structure | None:
    """Return the structure that gives the layer's output with attention zero, or None."""
    matrices = ffn_matrices(layer)
    if not matrices:
        return None
    output = layer.with_ffn(layer.x)
    for activation in ACTIVATIONS.values():
        for first, bias, second in matrices:

            def network(
                y: Tensor,
                first: Tensor = first,
                bias: Tensor = bias,
                second: Tensor = second,
                activation: Function = activation,
            ) -> Tensor:
                return activation(y @ first.T + bias) @ second.T

            x = layer.x
            for _ in range(layer.sublayers - 1):
                x = norm(x)
            if difference(x + network(x), output) < 100 * EXACT:
                return Structure(lacks_last_norm=True)
            for structure in structures():
                x = layer.x
                for _ in range(layer.sublayers - 1):
                    x = apply(structure, x, torch.zeros_like)
                if difference(apply(structure, x, network), output) < 100 * EXACT:
                    return structure
    return None


# ---- the factors of each sum ---------------------------------------------------------------------


class Sum(NamedTuple):
    """A residual sum of the first layer: x_factor · x + output_factor · Sublayer(x)."""

    sublayer: str
    x_factor: float
    output_factor: float

    def formula(self) -> str:
        """Return the sum as a formula, such as 2 x + Sublayer(x)."""
        x = "x" if self.x_factor == 1 else f"{self.x_factor:.3g} x"
        sign = "-" if self.output_factor < 0 else "+"
        size = abs(self.output_factor)
        return f"{x} {sign} {'' if size == 1 else f'{size:.3g} '}Sublayer(x)"

    def mistake(self) -> str:
        """Return the sentence for factors other than one; empty if both are one."""
        if self.x_factor == self.output_factor == 1:
            return ""
        if self.x_factor == self.output_factor:
            return f"A residual sum is multiplied by {self.x_factor:.3g}."
        if self.x_factor != 1 and self.output_factor != 1:
            return f"A residual sum is {self.formula()}: both terms are multiplied."
        if self.output_factor == -1:
            return "A sub-layer's output is subtracted from its input instead of added."
        words = {2.0: "twice", 0.5: "half of"}
        if self.output_factor != 1:
            word = words.get(self.output_factor, f"{self.output_factor:.3g} times")
            return f"The residual sum adds {word} the sub-layer's output."
        factor = self.x_factor
        times = {2.0: "its input twice", 0.5: "half of its input"}.get(factor)
        return f"A residual connection adds {times or f'{factor:.3g} times its input'}."


def factor_between(x: Tensor, y: Tensor) -> float | None:
    """Return the factor c of y = c · x, rounded to 1 if it is close; None if there is none."""
    factor = float((x * y).sum() / (x * x).sum().clamp(min=1e-12))
    if float((y - factor * x).abs().max()) > 1e-3 * float(x.abs().max()):
        return None
    return float(round(factor)) if abs(factor - round(factor)) < 1e-3 else factor


def points_of(layer: Layer, bias: nn.Parameter | None = None) -> list[Tensor]:
    """Return the input and output of each norm of the layer, and its output, all like x.

    The sub-layers return zero, except for the bias of one of them, which is :func:`values_of`.
    """
    x = layer.x
    with record_norms(layer.subject, layer.subject.model) as calls:
        output = layer.bare(x) if bias is None else layer.with_bias(x, bias, values_of(layer))
    points = []
    for call in calls:
        if call.x.numel() == x.numel():
            points += [call.x.reshape(x.shape), call.y.reshape(x.shape)]
    return [*points, output]


def values_of(layer: Layer) -> Tensor:
    """Return random numbers [D] for a bias."""
    return torch.randn(layer.x.size(-1), generator=torch.Generator().manual_seed(21))


@lru_cache(maxsize=2)
def sums_of(layer: Layer) -> list[Sum]:
    """Return the measured residual sums of a layer, in order.

    The list is empty if the layer has not one norm per sub-layer, or a sum is no multiple of x. The
    factor of an output is 1 if the sub-layer has no bias to measure it with.
    """
    points = points_of(layer)
    count = layer.sublayers
    if len(points) != 2 * count + 1:
        return []
    if difference(points[-1], points[-2]) < SAME:  # post-norm: the last norm's output is returned
        sources = [layer.x, *points[1:-2:2]]
        totals = points[:-1:2]
        first_total = 0
    else:
        sources = points[:-1:2]
        totals = points[2::2]
        first_total = 2
    of_x = [factor_between(x, total) for x, total in zip(sources, totals, strict=True)]
    of_outputs = dict.fromkeys(range(count), 1.0)
    for bias in layer.biases():
        pairs = enumerate(zip(points, points_of(layer, bias), strict=True))
        changed = [n for n, (before, after) in pairs if not torch.equal(before, after)]
        first = (changed[0] if changed else -1) - first_total
        if first < 0 or first % 2 or first // 2 >= count:
            continue  # the bias of a norm, or one without effect
        change = points_of(layer, bias)[changed[0]] - points[changed[0]]
        factor = factor_between(values_of(layer).expand_as(change), change)
        if factor is None:
            return []
        of_outputs[first // 2] = factor
    names = ["self-attention", "cross-attention", "the feed-forward network"]
    names = names if layer.is_decoder else [names[0], names[2]]
    sums = []
    for n, x_factor in enumerate(of_x):
        if not x_factor:
            return []
        sums.append(Sum(names[n], x_factor, of_outputs[n]))
    return sums
