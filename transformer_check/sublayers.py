"""Checks of attention and feed-forward networks in the first layers (3.2, 3.3, 3.5).

Shape letters: L length, S source, D d_model.
"""

import math

import torch
from torch import Tensor, nn

from .findings import Finding, differs, not_run, passed
from .first_layer import sums
from .layer import RIGHT, Layer, best_fit, check_of_layers, is_post_norm, is_pre_norm
from .modes import set_to_zero
from .scores import scales_of, slope_of
from .subject import SAME, difference
from .trace import Event, Trace, trace_model

# ---- 3.2 Attention -------------------------------------------------------------------------------


def growth(before: list[Event], after: list[Event], shape: tuple[int, int]) -> set[float]:
    """Return the factors by which scores of a shape are multiplied; NaN if there is none."""
    slopes = set()
    for old, new in zip(before, after, strict=True):
        if old.is_softmax and tuple(old.result.shape[-2:]) == shape:
            slope = slope_of(new.operand, old.operand)
            slopes.add(math.nan if slope is None else round(slope, 2))
    return slopes


def has_values_to_look_at(layer: Layer) -> bool:
    """Return whether the sums are correct, so that the output shows the size of the values."""
    return is_post_norm(layer) and not sums(layer).failed


def is_scaled(layer: Layer, x: float, memory: float, weights: list[Tensor]) -> bool:
    """Return whether multiplied inputs leave the output of the layer unchanged.

    Biases and feed-forward networks are set to zero.

    Args:
        layer: the layer
        x: factor of its input
        memory: factor of the memory
        weights: results that replace those of the softmaxes
    """
    flat = [p for p in layer.attention if not layer.subject.is_matrix(p)]
    with set_to_zero([*layer.ffn, *flat]):  # with gradients: without, torch's layers are one kernel
        with trace_model(replay=weights, layouts=layer.subject.layouts):
            once = layer(layer.x)
        with (
            layer.reading(memory * layer.memory),
            trace_model(replay=weights, layouts=layer.subject.layouts),
        ):
            again = layer(x * layer.x)
    return difference(once, again) < 1e-3


def describe_growth(slopes: set[float]) -> str:
    """Describe the factors of scores for a message."""
    names = [f"{slope:.3g} times" for slope in sorted(slopes) if not math.isnan(slope)]
    return ", ".join([*names, "no multiple"] if any(map(math.isnan, slopes)) else names)


@check_of_layers(
    "attention-inputs",
    "3.2.3",
    passes="Queries, keys and values of the first layer read their input unchanged.",
    fails="Queries, keys or values of the first layer do not read their input unchanged.",
)
def inputs_of_attention(layer: Layer) -> Finding:
    """Check that doubling the input multiplies the scores of self-attention by four.

    Biases are set to zero. The values, and a decoder's memory, are checked likewise.
    """
    length = layer.x.size(1)
    before = layer.trace(layer.x)
    own = growth(before.events, layer.trace(2 * layer.x).events, (length, length))
    if not own:
        return not_run("no torch softmax was seen in the layer")
    times = 1.0 if is_pre_norm(layer) else 4.0
    if own != {times}:
        return differs(
            f"doubling the input multiplies the scores of self-attention by {describe_growth(own)}",
            f"{times:.0f}",
            says="Only the queries or only the keys of self-attention are normalised."
            if own == {2.0}
            else "An operation comes between the layer's input and its queries and keys.",
        )
    weights = [event.result for event in before.events]
    if has_values_to_look_at(layer) and not is_scaled(layer, 2.0, 1.0, weights):
        return differs(
            "doubling the input changes the ratio of the values to the residual connection",
            "no change",
            says="Only the values or only the residual connection of self-attention are "
            "normalised.",
        )
    return inputs_of_cross_attention(layer, before) if layer.is_decoder else passed()


def inputs_of_cross_attention(layer: Layer, before: Trace) -> Finding:
    """Check that doubling the memory doubles the scores and values of cross-attention."""
    weights = [event.result for event in before.events]
    with layer.reading(2 * layer.memory):
        doubled = layer.trace(layer.x)
    shape = layer.x.size(1), layer.memory.size(1)
    cross = growth(before.events, doubled.events, shape)
    if not cross:
        return not_run("no torch softmax over the memory was seen in the layer")
    if cross != {2.0}:
        return differs(
            "doubling the memory multiplies the scores of cross-attention by "
            f"{describe_growth(cross)}",
            "2",
            says="The memory is normalised again, or the keys do not come from it.",
            explains=("final-norm", "shared-modules"),
        )
    if has_values_to_look_at(layer) and is_scaled(layer, 1.0, 2.0, weights):
        return differs(
            "doubling the memory does not change the values of cross-attention",
            "doubled values",
            says="The memory is normalised again for the values, or they do not come from it.",
        )
    return passed()


@check_of_layers(
    "head-concatenation",
    "3.2.2",
    passes="Heads are split and concatenated per position.",
    fails="Heads are not split and concatenated per position.",
    explains=("permutation", "attention-inputs", "causal-mask", "source-padding"),
)
def head_concatenation(layer: Layer) -> Finding:
    """Check that equal tokens have equal outputs."""
    x = layer.x[:, :1].expand_as(layer.x).contiguous()
    memory = layer.memory[:, :1].expand_as(layer.memory).contiguous()
    with layer.reading(memory), torch.no_grad():
        output = layer(x)
    away = difference(output, output[:, :1].expand_as(output))
    if away < 10 * SAME:
        return passed()
    return differs(
        f"the outputs of six equal tokens differ by {away:.2g} standard deviations",
        "equal outputs",
        fix="Transpose heads and length before view or reshape.",
    )


@check_of_layers(
    "head-size",
    "3.2.2",
    passes="Queries and keys have d_k numbers per head, values d_v.",
    fails="Queries and keys do not have d_k numbers per head and values d_v.",
    explains=("parameter-count", "attention-scale"),
)
def attention_widths(layer: Layer) -> Finding:
    """Count the numbers in the matrices of the first layer's attention."""
    c = layer.subject.config
    if sum(p.dim() > 1 for p in layer.ffn) != 2:
        return not_run(
            "the matrices of the feed-forward network cannot be distinguished from those of "
            "attention"
        )
    seen = count_attention(layer)
    expected = expected_attention(layer)
    d_k, d_v = c.widths()
    if seen == expected:
        return passed()
    widths = {scale.width for scale in scales_of(layer.subject).scales}
    wide = widths.pop() if len(widths) == 1 else d_k
    says = f"Queries and keys have {wide} numbers per head instead of {d_k}."
    if wide == c.d_model:
        says = f"Each head has the width of the model, {wide}, instead of d_k = {d_k}."
    return differs(
        f"{seen:,} numbers in the matrices of attention",
        f"{expected:,} for {c.heads} heads, d_k = {d_k} and d_v = {d_v}",
        says=says if wide != d_k else "",
    )


# ---- 3.3 Position-wise feed-forward networks -----------------------------------------------------


@check_of_layers(
    "feed-forward-size",
    "3.3",
    passes="The feed-forward network has two matrices and d_ff activations.",
    fails="The feed-forward network does not have two matrices and d_ff activations.",
    explains=("parameter-count", "activation", "feed-forward-place", "stray-activation"),
)
def ffn_width(layer: Layer) -> Finding:
    """Count the matrices with d_ff rows or columns."""
    config = layer.subject.config
    matrices = [tuple(p.shape) for p in layer.ffn if p.dim() > 1]
    if len(matrices) == 2:
        return passed()
    if len(matrices) > 2 and config.d_ff % config.d_model == 0:
        return not_run("other matrices are as wide as d_ff: give CONFIG another size")
    shapes = [list(p.shape) for p in (*layer.ffn, *layer.attention) if p.dim() > 1]
    found = f"matrices of the layer: {', '.join(map(str, shapes))}"
    expected = f"two of {config.d_model} by {config.d_ff}"
    if is_gated(layer):
        return differs(
            found,
            expected,
            says="The feed-forward network is gated: it multiplies two products of its input.",
            fix="Compute W_2(relu(W_1 x + b_1)) + b_2, with two matrices (equation 2).",
        )
    if not matrices and count_attention(layer) == expected_attention(layer):
        return differs(
            f"{found}, all of attention",
            expected,
            says="The layer has no feed-forward network.",
            fix="Add a feed-forward network, with a residual connection and LayerNorm, after "
            "attention.",
            explains=("residual-sums", "sublayer-dropout", "dropout-places", "gradients"),
        )
    says = ""
    own = matrices_of_network(layer)
    widths = {size for p in own for size in p.shape} - {config.d_model, 1}
    if len(matrices) > 2:
        says = f"The feed-forward network has {len(matrices)} matrices instead of two."
    elif not matrices and len(own) == 2 and len(widths) == 1:
        says = f"The feed-forward network has {widths.pop()} activations instead of {config.d_ff}."
    return differs(
        found,
        expected,
        says=says,
        fix="Pass config.d_ff to the feed-forward network." if len(matrices) < 2 else "",
    )


def count_attention(layer: Layer) -> int:
    """Count the numbers in the matrices of attention."""
    return sum(p.numel() for p in layer.attention if layer.subject.is_matrix(p))


def expected_attention(layer: Layer) -> int:
    """Return the number of numbers in the matrices of the paper's attention."""
    c = layer.subject.config
    d_k, d_v = c.widths()
    return 2 * c.d_model * c.heads * (d_k + d_v) * (layer.sublayers - 1)


def is_gated(layer: Layer) -> bool:
    """Return whether the network multiplies two products of its input.

    Then its output is zero if one of the two is zero. They are two matrices, or halves of one.
    """
    own = matrices_of_network(layer)
    widths = [next(size for size in p.shape if size != layer.x.size(-1)) for p in own]
    parts = [p.detach() for p in own]
    if len(own) == 2 and max(widths) == 2 * min(widths):
        fused = parts.pop(widths.index(max(widths)))
        parts += fused.chunk(2, dim=list(fused.shape).index(max(widths)))
    elif len(own) != 3 or len(set(widths)) > 1:
        return False
    named = {id(p) for p in own}
    rest = [p for p in (*layer.attention, *layer.ffn) if id(p) not in named]
    zero = 0
    bare = layer.bare(layer.x)
    for part in parts:
        with set_to_zero(rest), torch.no_grad():
            values = part.clone()
            part.zero_()
            zero += difference(bare, layer(layer.x)) < SAME
            part.copy_(values)
    return zero > 1  # the last matrix is one of them


def matrices_of_network(layer: Layer) -> list[nn.Parameter]:
    """Return the matrices of the network, of any width that attention does not have."""
    c = layer.subject.config
    of_attention = {c.d_model, c.heads}
    for width in c.widths():
        of_attention |= {width, *(n * c.heads * width for n in (1, 2, 3))}
    own = []
    for p in (*layer.ffn, *layer.attention):
        sizes = [size for size in p.shape if size > 1]
        is_wide = c.d_ff in sizes or not set(sizes) <= of_attention
        if len(sizes) == 2 and sizes.count(c.d_model) == 1 and is_wide:
            own.append(p)
    return own


@check_of_layers(
    "position-wise",
    "3.3",
    passes="The feed-forward network is applied to each position separately.",
    fails="An operation other than attention mixes positions.",
    explains=(
        *("activation", "feed-forward-place", "permutation", "source-padding", "target-padding"),
        *("head-concatenation", "causal-mask", "feed-forward-size"),
    ),
)
def ffn_positions(layer: Layer) -> Finding:
    """Check that, without attention, changing a token changes no other token's output."""
    place = 2
    changed = layer.x.clone()
    changed[:, place] = changed[:, place].flip(-1)
    away = (layer.with_ffn(layer.x) - layer.with_ffn(changed)).abs()
    away[:, place] = 0
    if away.max() < 1e-3:
        return passed()
    reached = [n - place for n, row in enumerate(away[0]) if float(row.max()) > 1e-3]
    without = (layer.bare(layer.x) - layer.bare(changed)).abs()
    without[:, place] = 0
    has_kernel = any(sum(size > 1 for size in p.shape) > 2 for p in layer.ffn)
    says = ""
    if without.max() < 1e-3:
        says = "The feed-forward network reads other positions than its own."
        if has_kernel:
            says = "The feed-forward network is a convolution over neighbouring positions."
    return differs(
        "with attention set to zero, changing a token changes the outputs of the tokens at "
        f"{', '.join(f'{n:+}' for n in reached)} from it by {float(away.max()):.2g}",
        "no change",
        says=says,
        explains=("parameter-count",) if has_kernel else (),
    )


@check_of_layers(
    "feed-forward-place",
    "3.3",
    passes="The feed-forward network reads the last sum and is added to it.",
    fails="The feed-forward network does not read the last sum, or is not added to it.",
    explains=("residual-sums",),
)
def ffn_place(layer: Layer) -> Finding:
    """Find the place at which equation 2 fits, with any activation."""
    fit = best_fit(layer)
    if fit.misfit >= 1e-3:
        return not_run("no known feed-forward network fits")
    if fit.place == RIGHT:
        return passed()
    return differs(
        f"the network {fit.place}",
        "LayerNorm(x + FFN(x)), where x is the output of Add & Norm after attention",
        says=f"The feed-forward network {fit.place}.",
    )


# ---- 3.5 Positional encoding ---------------------------------------------------------------------


@check_of_layers(
    "permutation",
    "3.5",
    passes="Attention uses no positions other than those of the embeddings.",
    fails="Attention depends on positions in addition to those of the embeddings.",
    explains=("attention-inputs",),
)
def equivariant(layer: Layer) -> Finding:
    """Check that permuting the tokens permutes the outputs likewise.

    In a decoder layer the memory is reversed, which may not change the output.
    """
    permutation = torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        before = layer(layer.x)
        if layer.is_decoder:
            with layer.reading(layer.memory.flip(1)):
                away = difference(before, layer(layer.x))
        else:
            away = difference(before[:, permutation], layer(layer.x[:, permutation]))
    if away < 10 * SAME:
        return passed()
    return differs(
        f"permuting the tokens changes outputs by {away:.2g} standard deviations of the outputs",
        "no change (a mask, rotary positions or relative positions change them)",
    )
