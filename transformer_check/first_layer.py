"""Checks of the sums of the first layers, ``encoder_layer`` and ``decoder_layer`` (3.1, 5.4).

Shape letters: L length, D d_model.
"""

import math
from collections import Counter

import torch
from torch import Tensor

from .card import DIFFERS, ON_PURPOSE, Result, not_checked
from .layer import Layer, best_fit, check_of_layers, is_post_norm, is_pre_norm, norm
from .subject import SAME, difference


@check_of_layers("3.1", "the norm comes after the sum: LayerNorm(x + Sublayer(x))")
def norm_after_sum(layer: Layer) -> Result:
    """Where sub-layers give zero, the paper's layer is the norm of its input."""
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


# ---- sums, seen by biases ------------------------------------------------------------------------

SUMS = "a sum has its sub-layer's input once, and its output"
RAW = 3.0
"""the standard deviation of the layer's input, by which it is told from a norm of it"""
Place = float | str
AFTER, NONE, ELSE = "after the last norm", "nowhere", "otherwise"


def places_of_biases(layer: Layer) -> Counter[Place]:
    """How many biases are added beside how many times the norm of the layer's input.

    The layer gives norm(s · norm(x) + bias): s is 3 before its first norm, since x has that
    deviation, and 1 between norms. A residual connection that adds x twice doubles s.
    """
    normed = norm(layer.x, 0.0)
    x = RAW * normed
    bare = layer.bare(RAW * normed)
    numbers = torch.Generator().manual_seed(15)
    values = torch.randn(x.size(-1), generator=numbers)
    expected: dict[Place, Tensor] = {NONE: bare, AFTER: bare + values}
    for times in (1.0, RAW, 2.0, 2 * RAW, 0.5, 0.5 * RAW, 0.0):
        expected[times] = norm(times * normed + values)
    seen: Counter[Place] = Counter()
    for bias in layer.biases():
        output = layer.with_bias(x, bias, values)
        away = {place: difference(output, each) for place, each in expected.items()}
        nearest = min(away, key=lambda place: away[place])
        seen[nearest if away[nearest] < 0.05 else ELSE] += 1
    return seen


def places_in_paper(layer: Layer) -> list[dict[Place, int]]:
    """Where biases are, of models with and without those of attention, norms and networks."""
    usual: list[dict[Place, int]] = []
    for attention, norms, networks in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (0, 1, 0), (0, 0, 1)):
        if is_pre_norm(layer):
            added = attention * (layer.sublayers - 1) + networks
            usual.append({AFTER: added})
            continue
        between = norms * (layer.sublayers - 1) + attention * (layer.sublayers - 2) + networks
        usual.append({RAW: attention, 1.0: between, AFTER: norms})
    return usual


@check_of_layers("3.1", SUMS)
def sums(layer: Layer) -> Result:
    """Each bias is found beside as many times x as it should be."""
    if not (is_post_norm(layer) or is_pre_norm(layer)):
        return not_checked("the norm comes neither after the sum nor before the sub-layer")
    seen = places_of_biases(layer)
    hidden = seen.pop(NONE, 0)
    if not seen:
        return not_checked("no bias of d_model numbers was found in the layer")
    usual = places_in_paper(layer)
    if any(seen == Counter(each) for each in usual):
        return Result()
    beside: Counter[Place] = Counter(usual[0])
    extra = seen - beside
    meaning = "What a sub-layer gives is lost: likely a sum adds the layer's input in place of its "
    meaning += "own sub-layer's, or an earlier x."
    if extra[2.0] or extra[2 * RAW]:
        meaning = "A residual connection adds its input twice."
    elif extra[0.5] or extra[0.5 * RAW]:
        meaning = "A residual connection adds half of its input."
    elif extra[0.0]:
        meaning = "A residual connection is missing."
    elif extra[AFTER]:
        meaning = "A norm after a sum is left out."
    elif extra[RAW]:
        meaning = "A sum adds the layer's input in place of its own sub-layer's."
    return Result(
        DIFFERS,
        described(beside) + " (a bias shows beside what it is added)",
        described(seen) + (f"; {hidden} have no effect" if hidden else ""),
        meaning,
    )


def described(places: Counter[Place]) -> str:
    """How many biases are where."""
    names: dict[Place, str] = {1.0: "a norm of x", RAW: "x", 0.0: "nothing"}
    names |= {2 * RAW: "twice x", 2.0: "twice a norm of x", 0.5: "half a norm of x"}
    names |= {0.5 * RAW: "half of x", AFTER: "the last sum", ELSE: "something else"}
    parts = [f"{count} beside {names[place]}" for place, count in places.items() if count]
    return ", ".join(parts)


# ---- The norm's ε --------------------------------------------------------------------------------


@check_of_layers("3.1", "the norm divides by √(variance + 1e-6)")
def norm_epsilon(layer: Layer) -> Result:
    """ε shows where the variance of a word's numbers is small enough."""
    if sums(layer).expected:
        return not_checked(f"see '{SUMS}'")
    sample = 1 - 1 / layer.subject.config.d_model
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
            else "It is not the LayerNorm that the paper cites, or not all of a layer's have a "
            "part in what it gives.",
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
    """ε of a layer that is a norm of a norm (of a norm): v → r = v / (v + ε) → r / (r + ε)."""
    variance, seen = 1e-4, 1.0
    while seen > 0.9 and variance > 1e-32:
        variance /= 100
        rows = layer.bare(norm(layer.x, 0.0) * variance**0.5)
        seen = float(rows.var(-1, unbiased=False).mean())
    low, high = 1e-20, 1.0
    for _ in range(80):  # the greater ε, the smaller the variance of the result
        middle = (low * high) ** 0.5
        result = variance
        for _ in range(layer.sublayers):
            result = result / (result + middle)
        low, high = (middle, high) if result > seen else (low, middle)
    return high


# ---- 5.4 Dropout ---------------------------------------------------------------------------------


@check_of_layers("5.4", "dropout is on each sub-layer's output, before the sum")
def dropout_before_sum(layer: Layer) -> Result:
    """It changes nothing where sub-layers give zero, and draws numbers once for each."""
    subject = layer.subject
    draws = layer.in_training().draws
    outputs = sum(shape[-1:] == (subject.config.d_model,) for shape in draws)
    model = subject.model
    subject.model = subject.build(dropout=0.5)
    try:
        noisy = Layer(subject, layer.function)
        calm = noisy.bare(noisy.x)
        subject.model.train()
        away = difference(calm, noisy.bare(noisy.x))
    finally:
        subject.model = model
    if outputs == layer.sublayers and away < SAME:
        return Result()
    if not draws and away < SAME:
        return not_checked("no random numbers of torch's were seen in training")
    return Result(
        DIFFERS,
        f"{layer.sublayers} dropouts of [L, d_model] in a layer, of sub-layers' outputs",
        f"{outputs}" + (", and the sum or the norm changes as well" if away > SAME else ""),
        "What the residual connection carries is dropped too, or an output is not.",
    )
