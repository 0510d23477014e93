"""Checks of the first layers, ``encoder_layer`` and ``decoder_layer`` (3.1, 3.2, 3.3, 3.5, 5.4).

Shape letters: L length, S source, D d_model.
"""

import math
from collections import Counter

import torch
from torch import Tensor

from .card import DIFFERS, ON_PURPOSE, Result, not_checked
from .layer import RIGHT, Layer, best_fit, check_of_layers, is_post_norm, is_pre_norm, norm
from .scores import slope_of
from .subject import SAME, difference
from .trace import Event


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
    x, bare = RAW * normed, layer.bare(RAW * normed)
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


# ---- 3.2 Attention -------------------------------------------------------------------------------


def growth(before: list[Event], after: list[Event], shape: tuple[int, int]) -> set[float]:
    """By what scores of a shape are multiplied; NaN if that is not all."""
    slopes = set()
    for old, new in zip(before, after, strict=True):
        if old.is_softmax and tuple(old.result.shape[-2:]) == shape:
            slope = slope_of(new.operand, old.operand)
            slopes.add(math.nan if slope is None else round(slope, 2))
    return slopes


def described_growth(slopes: set[float]) -> str:
    """For messages."""
    names = [f"{slope:.3g} times" for slope in sorted(slopes) if not math.isnan(slope)]
    return ", ".join([*names, "no multiple"] if any(map(math.isnan, slopes)) else names)


@check_of_layers("3.2.3", "queries, keys and values read what they should, unchanged")
def inputs_of_attention(layer: Layer) -> Result:
    """Without biases, twice the input gives four times the scores, and the memory's twice."""
    length, size = layer.x.size(1), layer.memory.size(1)
    before = layer.trace(layer.x)
    own = growth(before.events, layer.trace(2 * layer.x).events, (length, length))
    if not own:
        return not_checked("no softmax of torch's was seen in the layer")
    expected = {1.0} if is_pre_norm(layer) else {4.0}
    wanted = f"{expected.copy().pop():.0f} times the scores of self-attention for twice the input"
    if own != expected:
        return Result(
            DIFFERS,
            wanted,
            described_growth(own),
            "Likely queries are normed and keys are not, or the other way round."
            if own == {2.0}
            else "Something comes between the layer's input and its queries and keys.",
        )
    if not layer.is_decoder:
        return Result()
    memory = layer.memory
    layer.memory = 2 * memory
    try:
        doubled = layer.trace(layer.x)
    finally:
        layer.memory = memory
    cross = growth(before.events, doubled.events, (length, size))
    if cross == {2.0}:
        return Result()
    if not cross:
        return not_checked("no softmax of torch's over the memory was seen in the layer")
    return Result(
        DIFFERS,
        "twice the scores of cross-attention for twice the memory",
        described_growth(cross),
        "Likely the memory is normed again; or its keys come from elsewhere.",
    )


@check_of_layers("3.2.2", "heads are joined word by word")
def heads_joined(layer: Layer) -> Result:
    """Where all words are the same one, so are all results, whatever attention does."""
    x = layer.x[:, :1].expand_as(layer.x).contiguous()
    with torch.no_grad():
        output = layer(x)
    away = difference(output, output[:, :1].expand_as(output))
    if away < 10 * SAME:
        return Result()
    return Result(
        DIFFERS,
        "the same result for each of six equal words",
        f"results {away:.2g} standard deviations away",
        "Likely heads are split or joined by view or reshape without a transpose: a word gets "
        "numbers of its neighbours. Or positions are added within the layer.",
    )


@check_of_layers("3.2.2", "queries and keys are d_k wide, values d_v")
def attention_widths(layer: Layer) -> Result:
    """By the numbers in the matrices of the first layer's attention."""
    c = layer.subject.config
    if sum(p.dim() > 1 for p in layer.ffn) != 2:
        return not_checked("the feed-forward network's matrices cannot be told from attention's")
    seen = sum(p.numel() for p in layer.others if p.dim() > 1)
    d_k, d_v = c.widths()
    expected = 2 * c.d_model * c.heads * (d_k + d_v) * (layer.sublayers - 1)
    if seen == expected:
        return Result()
    return Result(
        DIFFERS,
        f"{expected:,} numbers in W^Q, W^K, W^V and W^O, for d_k = {d_k}, d_v = {d_v}",
        f"{seen:,}",
        "Heads share matrices, have wider ones, or a matrix is missing.",
    )


# ---- 3.3 Position-wise feed-forward networks -----------------------------------------------------


@check_of_layers("3.3", "the feed-forward network is d_ff wide")
def ffn_width(layer: Layer) -> Result:
    """Both matrices have d_ff rows or columns."""
    config = layer.subject.config
    matrices = [tuple(p.shape) for p in layer.ffn if p.dim() > 1]
    if len(matrices) == 2:
        return Result()
    others = [list(p.shape) for p in (*layer.ffn, *layer.others) if p.dim() > 1]
    return Result(
        DIFFERS,
        f"two matrices between {config.d_model} and {config.d_ff} numbers",
        f"{len(matrices)}; the layer's matrices are {', '.join(map(str, others))}",
        "It is not the network of equation 2, or build does not use config.d_ff.",
    )


@check_of_layers("3.3", "the feed-forward network sees one position at a time")
def ffn_positions(layer: Layer) -> Result:
    """Without attention, a word changes no other."""
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


@check_of_layers("3.3", "between its matrices is a ReLU")
def ffn_relu(layer: Layer) -> Result:
    """Equation 2 fits, with a ReLU, wherever in the layer it is."""
    fit = best_fit(layer)
    if fit.misfit == math.inf:
        name = layer.function
        return not_checked(f"{name} has other matrices, or no norm before or after a sum")
    fits = fit.misfit < 1e-3
    if fits and fit.activation == "ReLU":
        return Result()
    linear = fits and fit.activation == "no activation"
    meaning = "Two matrices without an activation are one." if linear else "The paper's is a ReLU."
    return Result(
        ON_PURPOSE if fits and not linear else DIFFERS,
        "max(0, x W_1 + b_1) W_2 + b_2",
        fit.activation if fits else f"something {fit.misfit:.2g} standard deviations away",
        meaning
        if fits
        else "Likely another activation, or another place than behind attention's sum; or the "
        "layer has something more.",
    )


@check_of_layers("3.3", "its input is the last sum, to which it is added")
def ffn_place(layer: Layer) -> Result:
    """Equation 2 fits there, whatever the activation is."""
    fit = best_fit(layer)
    if fit.misfit >= 1e-3:
        return not_checked("no known feed-forward network fits")
    if fit.place == RIGHT:
        return Result()
    return Result(
        DIFFERS,
        "LayerNorm(x + FFN(x)), of what attention's sum gives",
        fit.place,
        "The sub-layers are wired otherwise than in Figure 1.",
    )


# ---- 3.5 Positional encoding, 5.4 Dropout --------------------------------------------------------


@check_of_layers("3.5", "words know their order only through positions")
def equivariant(layer: Layer) -> Result:
    """Words in another order give the same results in that order; a decoder's are its memory's."""
    permutation, memory = torch.tensor([3, 0, 5, 1, 4, 2]), layer.memory
    with torch.no_grad():
        if layer.is_decoder:
            before = layer(layer.x)
            layer.memory = memory.flip(1)
            try:
                away = difference(before, layer(layer.x))
            finally:
                layer.memory = memory
        else:
            away = difference(layer(layer.x)[:, permutation], layer(layer.x[:, permutation]))
    if away < 10 * SAME:
        return Result()
    is_joined = not heads_joined(layer).expected
    return Result(
        DIFFERS,
        "from words in another order the same results, in that order",
        f"results {away:.2g} standard deviations away",
        "Likely positions within attention, such as rotary or relative ones; or a mask."
        if is_joined
        else "Likely the same as under 3.2.2: heads are split or joined wrongly.",
    )


@check_of_layers("5.4", "dropout is on each sub-layer's output, before the sum")
def dropout_before_sum(layer: Layer) -> Result:
    """It changes nothing where sub-layers give zero, and draws numbers once for each."""
    subject = layer.subject
    draws = layer.in_training().draws
    outputs = sum(shape[-1:] == (subject.config.d_model,) for shape in draws)
    model, subject.model = subject.model, subject.build(dropout=0.5)
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
