"""Checks of ``encoder_layer``, the first layer: norm, feed-forward, widths (3.1, 3.2.2, 3.3, 5.4).

The layer's parameters are told apart by their shape. What has d_ff rows or columns is the
feed-forward network's; gains of norms are the parameters that are all one, as they are in a new
model. With the others set to zero a sub-layer gives zero, and what is left is a formula.

Shape letters: B batch, L length, D d_model.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .card import DIFFERS, ON_PURPOSE, Result, check_of, not_checked
from .subject import SAME, AdapterError, Subject, difference, zeroed
from .whole_model import in_training


class Layer:
    """``encoder_layer`` as a function of x [B, L, D], and its parameters by what they are."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        numbers = torch.Generator().manual_seed(2)
        self.x = torch.randn(1, 6, subject.config.d_model, generator=numbers)
        found = self(self.x)
        if not found.requires_grad:
            raise AdapterError(
                "encoder_layer gave a tensor without gradient: expected no no_grad()"
            )
        every = [p for p in subject.model.parameters() if p.requires_grad]
        loss = (found * torch.randn(found.shape, generator=numbers)).sum()
        gradients = torch.autograd.grad(loss, every, allow_unused=True)
        own = [p for p, g in zip(every, gradients, strict=True) if g is not None]
        self.gains = [p for p in own if p.dim() == 1 and bool((p == 1).all())]
        self.ffn = [p for p in own if subject.config.d_ff in p.shape]
        known = {id(p) for p in (*self.gains, *self.ffn)}
        self.others = [p for p in own if id(p) not in known]

    def __call__(self, x: Tensor) -> Tensor:
        """[B, L, D] → [B, L, D]."""
        return self.subject.tensor("encoder_layer", tuple(x.shape), self.subject.model, x)

    def bare(self, x: Tensor) -> Tensor:
        """With sub-layers that give zero."""
        with zeroed([*self.others, *self.ffn]), torch.no_grad():
            return self(x)

    def with_ffn(self, x: Tensor) -> Tensor:
        """With attention that gives zero, and without the last bias."""
        with zeroed(self.others), torch.no_grad():
            return self(x)


@lru_cache(maxsize=1)
def layer_of(subject: Subject) -> Layer:
    """The layer of the subject's model; one for all checks."""
    return Layer(subject)


def norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """LayerNorm with gain one and bias zero."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def is_post_norm(layer: Layer) -> bool:
    """Whether a layer whose sub-layers give zero is a norm of its input."""
    return difference(norm(layer.x), norm(layer.bare(layer.x))) < 1e-2 and not is_pre_norm(layer)


def is_pre_norm(layer: Layer) -> bool:
    """Whether a layer whose sub-layers give zero changes nothing."""
    return difference(layer.x, layer.bare(layer.x)) < SAME


@check_of("3.1", "the norm comes after the sum: LayerNorm(x + Sublayer(x))", "encoder_layer")
def norm_after_sum(subject: Subject) -> Result:
    """Where sub-layers give zero, the paper's layer is the norm of its input."""
    layer = layer_of(subject)
    if is_post_norm(layer):
        return Result()
    bare = layer.bare(layer.x)
    expected = "LayerNorm(x) from a layer whose sub-layers give zero"
    if is_pre_norm(layer):
        meaning = "Pre-norm: it needs a last norm of each stack, and other checkpoints."
        return Result(ON_PURPOSE, expected, "x: x + Sublayer(LayerNorm(x))", meaning)
    if bare.abs().max() < 1e-3:
        meaning = "A residual connection is missing: signals and gradients go through every layer."
        return Result(DIFFERS, expected, "zero", meaning)
    away = difference(norm(layer.x), bare)
    meaning = "The norm, the sum or their order is another."
    return Result(DIFFERS, expected, f"something {away:.2g} standard deviations away", meaning)


@check_of("3.1", "the norm divides by √(variance + 1e-6)", "encoder_layer")
def norm_epsilon(subject: Subject) -> Result:
    """ε shows where the variance of a word's numbers is small enough."""
    layer, sample = layer_of(subject), 1 - 1 / subject.config.d_model
    rows = float(layer.bare(layer.x).var(-1, unbiased=False).mean())
    if not is_post_norm(layer):
        rows = sample if best_fit(layer).rows == sample else 1.0
    if abs(rows - 1) > 1e-3:
        return Result(
            DIFFERS,
            "rows of variance 1",
            f"{rows:.4f}",
            "Such a norm divides by the standard deviation of a sample, with d - 1 in place of d."
            if abs(rows - sample) < 1e-3
            else "It is not the LayerNorm that the paper cites.",
        )
    if not is_post_norm(layer):
        return not_checked("ε shows only where the norm comes after the sum")
    seen = epsilon_of(layer)
    if abs(math.log(seen / 1e-6)) < 0.1:
        return Result()
    return Result(
        ON_PURPOSE,
        "ε = 1e-6, tensor2tensor's (the paper gives none)",
        f"about {seen:.0e}",
        "It matters only where all numbers of a word are nearly equal, and in exact comparisons.",
    )


def epsilon_of(layer: Layer) -> float:
    """ε of a layer that is the norm of a norm: v → r = v / (v + ε) → r / (r + ε)."""
    variance, seen = 1e-4, 1.0
    while seen > 0.9 and variance > 1e-32:
        variance /= 100
        rows = layer.bare(norm(layer.x, 0.0) * variance**0.5)
        seen = float(rows.var(-1, unbiased=False).mean())
    low, high = 1e-20, 1.0
    for _ in range(80):  # the greater ε, the smaller the variance of the result
        middle = (low * high) ** 0.5
        once = variance / (variance + middle)
        low, high = (middle, high) if once / (once + middle) > seen else (low, middle)
    return high


@check_of("3.3", "the feed-forward network is d_ff wide", "encoder_layer")
def ffn_width(subject: Subject) -> Result:
    """Both matrices have d_ff rows or columns."""
    layer = layer_of(subject)
    matrices = [tuple(p.shape) for p in layer.ffn if p.dim() > 1]
    if len(matrices) == 2:
        return Result()
    others = [list(p.shape) for p in (*layer.ffn, *layer.others) if p.dim() > 1]
    return Result(
        DIFFERS,
        f"two matrices between {subject.config.d_model} and {subject.config.d_ff} numbers",
        f"{len(matrices)}; the layer's matrices are {', '.join(map(str, others))}",
        "It is not the network of equation 2, or build does not use config.d_ff.",
    )


@check_of("3.3", "the feed-forward network sees one position at a time", "encoder_layer")
def ffn_positions(subject: Subject) -> Result:
    """Without attention, a word changes no other."""
    layer = layer_of(subject)
    changed = layer.x.clone()
    changed[:, 2] = changed[:, 2].flip(-1)
    away = (layer.with_ffn(layer.x) - layer.with_ffn(changed)).abs()
    away[:, 2] = 0
    if away.max() < 1e-3:
        return Result()
    return Result(
        DIFFERS,
        "the other positions unchanged where one changes, with attention set to zero",
        f"a change of {float(away.max()):.2g}",
        "Something beside attention mixes positions.",
    )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "GELU by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "SiLU": F.silu,
    "leaky ReLU": F.leaky_relu,
    "tanh": torch.tanh,
    "no activation": lambda x: x,
}


class Fit(NamedTuple):
    """How equation 2, or it with another activation or norm, fits what the layer gives."""

    misfit: float
    """in standard deviations"""
    activation: str
    rows: float
    """the variance of a word's numbers after the norm: 1, or that of a sample's deviation"""


def best_fit(layer: Layer) -> Fit:
    """Equation 2 written out with the layer's own matrices, and with other activations.

    With no such matrices, or no norm before or after a sum, the misfit is infinite.
    """
    c, post = layer.subject.config, is_post_norm(layer)
    matrices = [p.detach().flatten(1) for p in layer.ffn if p.dim() > 1]
    biases = [p.detach() for p in layer.ffn if p.dim() == 1] or [torch.zeros(c.d_ff)]
    shapes = sorted(tuple(m.shape) for m in matrices)
    known = shapes == sorted([(c.d_ff, c.d_model), (c.d_model, c.d_ff)]) and len(biases) == 1
    if not known or not (post or is_pre_norm(layer)):
        return Fit(math.inf, "", 1.0)
    # matrices of nn.Linear are [out, in], others [in, out]
    one, two = matrices if matrices[0].size(0) == c.d_ff else matrices[::-1]
    x, seen, fits = layer.x, layer.with_ffn(layer.x), []
    for rows in [1.0] if post else [1.0, 1 - 1 / c.d_model]:
        h = layer.bare(x) if post else norm(x) * rows**0.5
        for name, activation in ACTIVATIONS.items():
            for first, second in ((one, two), (two.T, one.T)):
                ffn = activation(h @ first.T + biases[0]) @ second.T
                expected = layer.bare(h + ffn) if post else x + ffn
                fits.append(Fit(difference(expected, seen), name, rows))
    return min(fits)


@check_of("3.3", "between its matrices is a ReLU", "encoder_layer")
def ffn_relu(subject: Subject) -> Result:
    """Equation 2 fits, with a ReLU."""
    fit = best_fit(layer_of(subject))
    if fit.misfit == math.inf:
        return not_checked("encoder_layer has other matrices, or no norm before or after a sum")
    fits = fit.misfit < 1e-3
    if fits and fit.activation == "ReLU":
        return Result()
    linear = fits and fit.activation == "no activation"
    return Result(
        ON_PURPOSE if fits and not linear else DIFFERS,
        "max(0, x W_1 + b_1) W_2 + b_2",
        fit.activation if fits else f"something {fit.misfit:.2g} standard deviations away",
        "Without an activation, two matrices are one." if linear else "The paper's is a ReLU.",
    )


@check_of("3.2.2", "queries and keys are d_k wide, values d_v", "encoder_layer")
def attention_widths(subject: Subject) -> Result:
    """By the numbers in the matrices of the first layer's attention."""
    layer, c = layer_of(subject), subject.config
    if sum(p.dim() > 1 for p in layer.ffn) != 2:
        return not_checked("the feed-forward network's matrices cannot be told from attention's")
    seen = sum(p.numel() for p in layer.others if p.dim() > 1)
    d_k, d_v = c.widths()
    expected = 2 * c.d_model * c.heads * (d_k + d_v)
    if seen == expected:
        return Result()
    return Result(
        DIFFERS,
        f"{expected:,} numbers in W^Q, W^K, W^V and W^O, for d_k = {d_k}, d_v = {d_v}",
        f"{seen:,}",
        "Heads share matrices, have wider ones, or a matrix is missing.",
    )


@check_of("3.5", "words know their order only through positions", "encoder_layer")
def equivariant(subject: Subject) -> Result:
    """Words in another order give the same results in that order."""
    layer = layer_of(subject)
    permutation = torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        away = difference(layer(layer.x)[:, permutation], layer(layer.x[:, permutation]))
    if away < 10 * SAME:
        return Result()
    return Result(
        DIFFERS,
        "from words in another order the same results, in that order",
        f"results {away:.2g} standard deviations away",
        "Something beside the sum of positions tells words apart: a mask, or heads split wrongly.",
    )


@check_of("5.4", "dropout is on each sub-layer's output, before the sum", "encoder_layer")
def dropout_before_sum(subject: Subject) -> Result:
    """It changes nothing where sub-layers give zero, and draws numbers twice in a layer."""
    layer, c = layer_of(subject), subject.config
    _, _, trace = in_training(subject, "encoder_layer", layer.x)
    outputs = sum(shape[-1:] == (c.d_model,) for shape in trace.draws)
    model, subject.model = subject.model, subject.build(dropout=0.5)
    try:
        noisy = Layer(subject)
        calm = noisy.bare(noisy.x)
        subject.model.train()
        away = difference(calm, noisy.bare(noisy.x))
    finally:
        subject.model = model
    if outputs == 2 and away < SAME:
        return Result()
    if not trace.draws and away < SAME:
        return not_checked("no random numbers of torch's were seen in training")
    return Result(
        DIFFERS,
        "2 dropouts of [L, d_model] in a layer, of sub-layers' outputs",
        f"{outputs}" + (", and the sum or the norm changes as well" if away > SAME else ""),
        "What the residual connection carries is dropped too, or an output is not.",
    )
