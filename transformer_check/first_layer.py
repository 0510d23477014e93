"""Checks of the sums of the first layers, ``encoder_layer`` and ``decoder_layer`` (3.1, 5.4).

Shape letters: L length, D d_model.
"""

import math
from collections import Counter

import torch
from torch import Tensor

from .findings import Finding, differs, not_run, passed, variant, waits_for
from .layer import Layer, best_fit, check_of_layers, is_post_norm, is_pre_norm, norm
from .structure import PRE_NORM, structure_of, sums_of
from .subject import SAME, difference


@check_of_layers(
    "post-norm",
    "3.1",
    passes="The first layer computes LayerNorm(x + Sublayer(x)).",
    fails="The first layer does not compute LayerNorm(x + Sublayer(x)).",
    explains=("residual-sums",),
)
def norm_after_sum(layer: Layer) -> Finding:
    """Compare the layer, its attention set to zero, with every structure of sums and norms."""
    structure = structure_of(layer)
    if structure is not None and structure.is_paper:
        return passed()
    if structure is not None and (structure.has_other_place or not is_post_norm(layer)):
        if structure == PRE_NORM:
            return not_run("the layers are pre-norm")
        return differs(
            structure.formula(),
            "LayerNorm(x + Sublayer(x))",
            says=structure.mistake(),
            explains=("pre-norm", "final-norm", "output-scale", "feed-forward-place"),
        )
    if is_pre_norm(layer):
        return not_run("the layers are pre-norm")
    if is_post_norm(layer):
        return passed()
    bare = layer.bare(layer.x)
    expected = "LayerNorm(x) from a layer whose sub-layers return zero"
    if bare.abs().max() < 1e-3:
        return differs("zero", expected, says="The first layer has no residual connection.")
    away = difference(norm(layer.x), bare)
    return differs(f"an output that differs by {away:.2g} standard deviations", expected)


# ---- sums, seen by biases ------------------------------------------------------------------------

RAW = 3.0
"""standard deviation of the layer's input; that of a norm of it is 1"""
Place = float | str
AFTER, NONE, ELSE = "after the last norm", "nowhere", "otherwise"


def places_of_biases(layer: Layer) -> Counter[Place]:
    """Count the biases by the multiple of the normalised input to which each is added.

    With one bias, and sub-layers that return zero, the layer computes norm(s · norm(x) + bias).
    Before its first norm s is 3, the standard deviation of x; between norms it is 1. A residual
    connection that adds x twice doubles s.
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


USUAL_BIASES = ((1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 1, 0), (0, 0, 1))
"""whether attention, norms and feed-forward networks have biases"""


def places_in_paper(layer: Layer) -> list[dict[Place, int]]:
    """Return the paper's number of biases in each place, for each usual choice of biases."""
    usual: list[dict[Place, int]] = []
    for attention, norms, networks in USUAL_BIASES:
        if is_pre_norm(layer):
            added = attention * (layer.sublayers - 1) + networks
            usual.append({AFTER: added})
            continue
        between = norms * (layer.sublayers - 1) + attention * (layer.sublayers - 2) + networks
        usual.append({RAW: attention, 1.0: between, AFTER: norms})
    return usual


@check_of_layers(
    "residual-sums",
    "3.1",
    passes="Every residual sum of the first layer is x + Sublayer(x), each term once.",
    fails="A residual sum of the first layer is not x + Sublayer(x).",
)
def sums(layer: Layer) -> Finding:
    """Find the multiple of x to which each bias is added: 1 in a residual sum."""
    if not (is_post_norm(layer) or is_pre_norm(layer)):
        return waits_for("post-norm")
    structure = structure_of(layer)
    if structure is None or not structure.has_other_place:
        wrong = [each for each in sums_of(layer) if each.mistake()]
        if wrong:
            return differs(
                "; ".join(f"{each.formula()} around {each.sublayer}" for each in wrong),
                "x + Sublayer(x)",
                says=wrong[0].mistake(),
                explains=("feed-forward-place", "output-scale", "final-norm"),
            )
        if structure is not None and structure.mistake():
            expected = "LayerNorm(x + Sublayer(x))"
            return differs(structure.formula(), expected, says=structure.mistake())
    seen = places_of_biases(layer)
    hidden = seen.pop(NONE, 0)
    if not seen:
        return not_run("no bias of d_model numbers was found in the layer")
    usual = places_in_paper(layer)
    if any(seen == Counter(each) for each in usual):
        return passed()
    beside: Counter[Place] = Counter(usual[0])
    extra = seen - beside
    says = "A sub-layer's output is lost: a residual sum adds another input than its sub-layer's."
    if extra[2.0] or extra[2 * RAW]:
        says = "A residual connection adds its input twice."
    elif extra[0.5] or extra[0.5 * RAW]:
        says = "A residual connection adds half of its input."
    elif extra[0.0]:
        says = "A residual connection is missing."
    elif extra[AFTER]:
        says = "A LayerNorm after a residual sum is missing."
    elif extra[RAW]:
        says = "A residual sum adds the layer's input instead of its own sub-layer's."
    # if that norm is also the last of its stack, its parameters are unused
    explains = ("gradients", "final-norm", "output-scale") if extra[AFTER] else ()
    lost = f"; {hidden} biases have no effect" if hidden else ""
    return differs(
        f"biases: {describe_places(seen)}{lost}",
        describe_places(beside),
        says=says,
        explains=explains,
    )


def describe_places(places: Counter[Place]) -> str:
    """Describe how many biases are added to which input."""
    names: dict[Place, str] = {1.0: "a norm of x", RAW: "x", 0.0: "nothing"}
    names |= {2 * RAW: "twice x", 2.0: "twice a norm of x", 0.5: "half a norm of x"}
    names |= {0.5 * RAW: "half of x", AFTER: "the output", ELSE: "another input"}
    parts = [f"{count} added to {names[place]}" for place, count in places.items() if count]
    return ", ".join(parts)


# ---- The norm's ε --------------------------------------------------------------------------------


@check_of_layers(
    "norm-variance",
    "3.1",
    passes="LayerNorm divides by the standard deviation with d_model in the denominator.",
    fails="The norm does not divide by the standard deviation with d_model in the denominator.",
    explains=("norm-epsilon",),
)
def norm_variance(layer: Layer) -> Finding:
    """Compare the variance of the norm's output with 1."""
    if sums(layer).failed:
        return waits_for("residual-sums")
    sample = 1 - 1 / layer.subject.config.d_model
    rows = variance_of_rows(layer)
    if abs(rows - 1) < 1e-3:
        return passed()
    is_sample = abs(rows - sample) < 1e-3
    return differs(
        f"rows of variance {rows:.4f}",
        "1",
        says="The norm divides by the sample standard deviation (d_model - 1)."
        if is_sample
        else "",
        fix="Pass unbiased=False to std()." if is_sample else "",
    )


def variance_of_rows(layer: Layer) -> float:
    """Return the variance of a normalised token over d_model."""
    if is_post_norm(layer):
        return float(layer.bare(layer.x).var(-1, unbiased=False).mean())
    sample = 1 - 1 / layer.subject.config.d_model
    return sample if best_fit(layer).rows == sample else 1.0


@check_of_layers(
    "norm-epsilon",
    "3.1",
    passes="The ε of LayerNorm is 1e-6.",
    fails="The ε of LayerNorm is not 1e-6.",
)
def norm_epsilon(layer: Layer) -> Finding:
    """Measure ε on inputs of small variance, whose output depends on it."""
    if sums(layer).failed:
        return waits_for("residual-sums")
    if norm_variance(layer).failed:
        return waits_for("norm-variance")
    if not is_post_norm(layer):
        return not_run("the layers are pre-norm, whose output does not show ε")
    seen = epsilon_of(layer)
    if abs(math.log(seen / 1e-6)) < 0.1:
        return passed()
    return variant(
        f"ε about {seen:.0e}",
        "1e-6, tensor2tensor's (the paper gives none)",
        says=f"The ε of LayerNorm is {seen:.0e}.",
    )


def epsilon_of(layer: Layer) -> float:
    """Return the ε of a post-norm layer, found by bisection.

    If its sub-layers return zero, the layer is a norm of a norm (of a norm): a variance v becomes
    r = v / (v + ε), then r / (r + ε).
    """
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


@check_of_layers(
    "sublayer-dropout",
    "5.4",
    passes="Dropout is applied to each sub-layer's output, before the sum.",
    fails="Dropout is not applied to each sub-layer's output before the sum.",
    explains=("dropout-places",),
)
def dropout_before_sum(layer: Layer) -> Finding:
    """Count the layer's dropouts, which have no effect where sub-layers return zero."""
    subject = layer.subject
    draws = layer.run_in_training().draws
    outputs = sum(shape[-1:] == (subject.config.d_model,) for shape in draws)
    model = subject.model
    subject.model = subject.build(dropout=0.5)
    try:
        noisy = Layer(subject, layer.function)
        in_eval = noisy.bare(noisy.x)
        subject.model.train()
        change = difference(in_eval, noisy.bare(noisy.x))
        is_usual = outputs == layer.sublayers and change < SAME
        undropped = biases_without_dropout(noisy) if is_usual else []
    finally:
        subject.model = model
    if undropped:
        return differs(
            f"dropout changes nothing where a sub-layer's output is {undropped[0]} alone",
            "zeros in the sub-layer's output",
            says="Dropout is applied to a sub-layer's input, and not to its output.",
            modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in undropped)),
        )
    if is_usual:
        return passed()
    if not draws and change < SAME:
        return not_run("no random numbers of torch were seen in training mode")
    if change > SAME:
        return differs(
            f"{outputs} of [L, d_model], which also change the residual connection",
            f"{layer.sublayers}, on the sub-layers' outputs alone",
            says="Dropout is applied to the residual connection or to the norm's output.",
        )
    twice = "Dropout is applied more than once to a sub-layer's output."
    return differs(
        f"dropouts of [L, d_model]: {outputs}",
        f"{layer.sublayers}",
        says=twice if outputs > layer.sublayers else "",
    )


def biases_without_dropout(layer: Layer) -> list[str]:
    """Return the biases of sub-layers' last matrices that dropout in training does not change.

    Sub-layers return zero, except for one bias, whatever their input is. The model is in training
    mode.
    """
    model = layer.subject.model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    of_matrices = set()
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if any(layer.subject.is_matrix(parameter) for parameter in own):
            of_matrices |= {id(parameter) for parameter in own}
    numbers = torch.Generator().manual_seed(16)
    values = torch.randn(layer.subject.config.d_model, generator=numbers)
    found = []
    for bias in layer.biases():
        if id(bias) not in of_matrices:
            continue
        outputs = []
        for is_training in (False, True, True):
            model.train(is_training)
            outputs.append(layer.with_bias(layer.x, bias, values))
        in_eval, once, again = outputs
        if difference(layer.bare(layer.x), in_eval) > SAME and difference(once, again) < SAME:
            found.append(names[id(bias)])
    return found
