"""Checks of what is in ``encoder_layer`` and ``decoder_layer``, between their sums (3.2, 3.3, 3.5).

Shape letters: L length, S source, D d_model.
"""

import math

import torch
from torch import Tensor

from .card import DIFFERS, ON_PURPOSE, Result, not_checked
from .first_layer import sums
from .layer import RIGHT, Layer, best_fit, check_of_layers, is_post_norm, is_pre_norm
from .scores import slope_of
from .subject import SAME, difference, zeroed
from .trace import Event, traced

# ---- 3.2 Attention -------------------------------------------------------------------------------


def growth(before: list[Event], after: list[Event], shape: tuple[int, int]) -> set[float]:
    """By what scores of a shape are multiplied; NaN if that is not all."""
    slopes = set()
    for old, new in zip(before, after, strict=True):
        if old.is_softmax and tuple(old.result.shape[-2:]) == shape:
            slope = slope_of(new.operand, old.operand)
            slopes.add(math.nan if slope is None else round(slope, 2))
    return slopes


def has_values_to_look_at(layer: Layer) -> bool:
    """Whether sums are as they should be, so that they show how large values are."""
    return is_post_norm(layer) and not sums(layer).expected


def is_scaled(layer: Layer, x: float, memory: float, weights: list[Tensor]) -> bool:
    """Whether the layer, without biases and networks, gives the same for so many times its inputs.

    Args:
        layer: the layer
        x: by what to multiply its input
        memory: by what to multiply the memory
        weights: what softmaxes are to give
    """
    flat = [p for p in layer.attention if p.dim() == 1]
    with zeroed([*layer.ffn, *flat]):  # with gradients: without, torch's layers are one kernel
        with traced(replay=weights):
            once = layer(layer.x)
        with layer.reading(memory * layer.memory), traced(replay=weights):
            again = layer(x * layer.x)
    return difference(once, again) < 1e-3


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
    times = 1.0 if is_pre_norm(layer) else 4.0
    if own != {times}:
        return Result(
            DIFFERS,
            f"{times:.0f} times the scores of self-attention for twice the input",
            described_growth(own),
            "Likely queries are normed and keys are not, or the other way round."
            if own == {2.0}
            else "Something comes between the layer's input and its queries and keys.",
        )
    weights = [event.result for event in before.events]
    if has_values_to_look_at(layer) and not is_scaled(layer, 2.0, 1.0, weights):
        return Result(
            DIFFERS,
            "the same sums for twice the input, since values are twice as large, too",
            "others",
            "Likely values are normed and the residual connection is not, or the other way round.",
        )
    if not layer.is_decoder:
        return Result()
    with layer.reading(2 * layer.memory):
        doubled = layer.trace(layer.x)
    cross = growth(before.events, doubled.events, (length, size))
    if not cross:
        return not_checked("no softmax of torch's over the memory was seen in the layer")
    if cross == {2.0} and has_values_to_look_at(layer) and is_scaled(layer, 1.0, 2.0, weights):
        return Result(
            DIFFERS,
            "another result for twice the memory, with weights as they are",
            "the same",
            "Likely the memory is normed again for values; or values come from elsewhere.",
        )
    if cross == {2.0}:
        return Result()
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
    memory = layer.memory[:, :1].expand_as(layer.memory).contiguous()
    with layer.reading(memory), torch.no_grad():
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
    seen = sum(p.numel() for p in layer.attention if p.dim() > 1)
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
    if len(matrices) > 2 and config.d_ff % config.d_model == 0:
        return not_checked("other matrices are as wide as d_ff: give CONFIG another size")
    shapes = [list(p.shape) for p in (*layer.ffn, *layer.attention) if p.dim() > 1]
    return Result(
        DIFFERS,
        f"two matrices between {config.d_model} and {config.d_ff} numbers",
        f"{len(matrices)}; the layer's matrices are {', '.join(map(str, shapes))}",
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


# ---- 3.5 Positional encoding ---------------------------------------------------------------------


@check_of_layers("3.5", "words know their order only through positions")
def equivariant(layer: Layer) -> Result:
    """Words in another order give the same results in that order; a decoder's are its memory's."""
    permutation = torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        before = layer(layer.x)
        if layer.is_decoder:
            with layer.reading(layer.memory.flip(1)):
                away = difference(before, layer(layer.x))
        else:
            away = difference(before[:, permutation], layer(layer.x[:, permutation]))
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
