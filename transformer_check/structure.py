"""The sum and the norms around the feed-forward network of a first layer (3.1).

With attention's parameters zero, a layer is a formula of its input and of the feed-forward network,
whose matrices are known: norm(a · x + c · F(x)) in the paper, with a = c = 1. Every combination of
places of the norm and of factors is compared with the layer's output.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .activation import ACTIVATIONS
from .layer import EXACT, Layer, ffn_matrices, norm
from .subject import difference

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

            for structure in structures():
                x = layer.x
                for _ in range(layer.sublayers - 1):
                    x = apply(structure, x, torch.zeros_like)
                if difference(apply(structure, x, network), output) < 100 * EXACT:
                    return structure
    return None
