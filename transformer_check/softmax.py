"""Checks of every softmax of a model: its dimension, its scores and their scale (3.2.1, 3.2.3).

They need only ``build`` and ``logits``.
"""

import math

import torch
from torch import Tensor

from .findings import Finding, differs, error, not_run, passed, waits_for
from .masks import Masks, masks_of
from .registry import check_of
from .scores import Scale, Scales, scales_of
from .subject import AdapterError, Subject
from .trace import trace_model
from .uneven_batch import weak_mask
from .wiring import describe_places, places_of


@check_of(
    "softmax-dimension",
    "3.2.1",
    passes="Every softmax of the model is over the keys.",
    fails="A softmax of the model is not over the keys.",
    explains=(
        "equation-1-softmax",
        "equation-1-mask",
        "attention-inputs",
        "head-concatenation",
        "batch-independence",
        "causal-mask",
        "source-padding",
        "target-padding",
        "target-visible",
        "source-visible",
        "permutation",
        "adapter-encoder",
        "adapter-decoder",
    ),
)
def over_keys(subject: Subject) -> Finding:
    """Check the dimension of each softmax, and that the weights of each query sum to 1."""
    masks = masks_of(subject)
    keys_beside = other_keys(masks)
    if keys_beside:
        return differs(
            keys_beside,
            "as many keys as tokens, whose weights sum to 1",
            says="Each query also attends to a key that is no token: the weights of tokens do not "
            "sum to 1.",
            fix="Remove add_zero_attn or add_bias_kv, or what else adds a key or a score.",
        )
    if masks.decoder is None:
        return no_softmax(subject)
    fix = "Take the softmax over the dimension of the keys, the last one of scores [B, H, T, S]."
    wrong = [event for event in masks.events if event.over != -1]
    if wrong:
        over = "queries" if wrong[0].over == -2 else "heads or sentences"
        return differs(
            f"{len(wrong)} of {len(masks.events)} softmaxes are over the {over}",
            "over the keys",
            says=f"The softmax is over the {over} instead of the keys.",
            fix=fix,
            modules=subject.names_of(event.module for event in wrong),
        )
    if masks.unused:
        return differs(
            f"other weights in {' and '.join(masks.unused)} give the same logits",
            "values that are added with the weights",
            says=f"The weights of {' and '.join(masks.unused)} have no effect: values are added "
            "without weights, as by an einsum that sums weights and values apart.",
        )
    if float((masks.sums - 1).abs().max()) < 1e-3:
        return passed()
    return differs(
        f"the weights of a query sum to {float(masks.sums.min()):.3g} to "
        f"{float(masks.sums.max()):.3g}",
        "1",
        says=why_no_sum(masks.decoder_weights),
        fix=fix,
    )


def other_keys(masks: Masks) -> str:
    """Return how many more keys than tokens the softmaxes have, as text; empty if none."""
    source, target = masks.lengths
    for more in (1, 2):
        longer = [e for e in masks.events if {target, source + more} <= set(e.result.shape)]
        if longer:
            return f"{len(longer)} softmaxes of cross-attention have more keys than tokens: {more}"
    return ""


def why_no_sum(weights: Tensor) -> str:
    """Return the sentence for weights [N, T, T] of equal scores that do not sum to 1.

    If n keys have the score s, and the denominator has c more than their exponentials, the weights
    sum to n / (n + c · exp(-s)).
    """
    sums = weights.sum(-1)
    terms = weights.gt(1e-6).sum(-1) * (1 - sums) / sums
    if float((terms - terms[:, :1]).abs().max()) > 1e-2 * float(terms.abs().max()):
        return "The attention weights of a query do not sum to 1."
    return (
        "The softmax's denominator has more than the sum of the exponentials, as in softmax plus "
        "one: the attention weights of a query do not sum to 1."
    )


def no_softmax(subject: Subject) -> Finding:
    """Look for a sigmoid of scores, or a softmax of flattened scores, in place of the softmax."""
    lengths = {subject.source.size(1), subject.target.size(1)}
    with trace_model() as trace:
        subject.logits(subject.source[:1], subject.target[:1])
    if any(lengths <= set(shape) for shape in trace.sigmoids):
        return differs(
            "a sigmoid of the scores",
            "a softmax over the keys",
            says="The attention weights are a sigmoid of the scores, not a softmax.",
            fix="Use softmax(scores, dim=-1).",
        )
    source, target = subject.source.size(1), subject.target.size(1)
    pairs = {source * source, target * target, target * source}
    flat = [e for e in trace.events if e.is_softmax and pairs & set(e.result.shape)]
    if flat:
        return differs(
            f"{len(flat)} softmaxes are over all pairs of queries and keys",
            "over the keys",
            says="The softmax is over queries and keys together instead of the keys.",
            fix="Use softmax(scores, dim=-1), without flattening the scores.",
            modules=subject.names_of(event.module for event in flat),
        )
    return not_run("no torch softmax over the target was seen")


@check_of(
    "mask-value",
    "3.2.3",
    passes="Hidden scores are -inf, or so low that their weights are 0, before the softmax.",
    fails="Hidden scores are not low enough for weights of 0.",
    explains=(
        "equation-1-mask",
        "causal-mask",
        "source-padding",
        "target-padding",
        "head-concatenation",
        "attention-inputs",
        "permutation",
        "residual-sums",
        "adapter-encoder",
        "adapter-decoder",
    ),
)
def hidden_scores(subject: Subject) -> Finding:
    """Look at the scores of later tokens in decoder self-attention, which have to be hidden."""
    masks = masks_of(subject)
    weights = masks.decoder
    if weights is None:
        return not_run("no torch softmax over the target was seen")
    if over_keys(subject).failed:
        return waits_for("softmax-dimension")
    later = torch.ones_like(weights).triu(1).bool()
    if float(weights[later].max()) < 1e-6:
        return passed()
    expected = "-inf, so that their weights are 0"
    fix = "Set the scores of hidden keys to -inf (or -1e9) before the softmax."
    does = weak_mask(masks.scores, masks.scores_with_matrices, later)
    if does:
        does = does.format("later tokens")
        says = f"The causal mask {does} in place of hiding them with -inf."
        return error(f"the mask {does}", expected, says=says, fix=fix)
    if not masks.ignores_later or masks.is_normalised:
        return passed()  # if there is no mask, causal-mask says so
    return error(
        "the softmax gives hidden keys weights, which are set to 0 afterwards",
        expected,
        says="The mask is applied after the softmax: the weights of a query do not sum to 1.",
        fix=fix,
    )


@check_of(
    "attention-scale",
    "3.2.1",
    passes="Every attention layer divides its scores by √d_k.",
    fails="An attention layer does not divide its scores by √d_k.",
    explains=("equation-1-scale",),
)
def scales_of_model(subject: Subject) -> Finding:
    """Compare the scores with the products of queries and keys, in every softmax of the model."""
    c = subject.config
    trace = scales_of(subject)
    if not trace.scales:
        return not_run("no torch softmax of a product of queries and keys was seen")
    d_k = c.widths()[0]
    expected = d_k**-0.5
    wrong = [scale for scale in trace.scales if not is_close(scale.factor, expected)]
    if not wrong:
        return passed()
    factors = ", ".join(sorted({f"{scale.factor:.4f}" for scale in wrong}))
    found = f"factor {factors} in {len(wrong)} of {len(trace.scales)} softmaxes"
    places = places_of(subject, [(scale.queries, scale.keys) for scale in trace.scales])
    pairs = zip(places, trace.scales, strict=True)
    of_wrong = [place for place, scale in pairs if not is_close(scale.factor, expected)]
    where = describe_places(subject, of_wrong) if len(wrong) < len(trace.scales) else ""
    fix = "Divide the scores by math.sqrt(d_k), once."
    of_length = name_of_length(trace.scales)
    if of_length:
        return differs(
            found,
            f"1/√{d_k} = {expected:.4f}",
            says=f"The scores are divided by the square root of the number of {of_length}.",
            fix=fix,
            explains=("source-padding", "target-padding", "batch-independence"),
        )
    farthest = max(wrong, key=lambda scale: abs(scale.factor / expected - 1)).factor
    says = name_of_factor(subject, farthest, trace.scales.index(wrong[0]))
    if where:
        says = says.replace("The scores", f"The scores of {where}")
        found = f"{found} ({where})"
    return differs(found, f"1/√{d_k} = {expected:.4f}", says=says, fix=fix)


def name_of_factor(subject: Subject, factor: float, number: int) -> str:
    """Return the sentence for a wrong factor of scores.

    Args:
        subject: the implementation
        factor: from products of queries and keys to scores
        number: of a softmax that has a wrong factor
    """
    c = subject.config
    d_k = c.widths()[0]
    power = power_of_width(subject, number)
    usual = {  # the factor, and the power of d_k that it has at one d_model = h · d_k
        "The scores are divided by √d_model instead of √d_k.": (c.d_model**-0.5, 0),
        "The scores are not divided by √d_k.": (1.0, 0),
        "The scores are divided by √d_k twice, that is by d_k.": (1 / d_k, -1),
        "The scores are multiplied by √d_k instead of divided.": (d_k**0.5, 0.5),
        "The scores are multiplied by d_k instead of divided by √d_k.": (d_k, 1),
        "The scores are divided by d_model instead of √d_k.": (1 / c.d_model, 0),
        "The scores are divided by √d_v instead of √d_k.": (c.widths()[1] ** -0.5, -0.5),
        "The scores are divided by √d_k of another number of heads.": (
            scales_of(subject).scales[number].width ** -0.5,
            -0.5,
        ),
        "The scores are divided by √h, of the number of heads, instead of √d_k.": (
            c.heads**-0.5,
            0.5,
        ),
        "The scores are divided by h, the number of heads, instead of √d_k.": (1 / c.heads, 1),
    }
    near = [says for says, (value, _) in usual.items() if is_close(factor, value)]
    if power is not None:  # another explanation may fit this size alone
        near = [says for says in near if abs(power - usual[says][1]) < 1e-2]
    times = factor * d_k**0.5
    other = f"The scores are multiplied by {factor:.4g}, {times:.4g} times as much as 1/√d_k."
    if power is not None and min(abs(power + n / 2) for n in range(-2, 3)) > 1e-2:
        other = f"The scores are multiplied by d_k^{power:.3g} = {factor:.4g} instead of d_k^-0.5."
    return near[0] if near else other


def is_close(factor: float, expected: float) -> bool:
    """Return whether two factors are equal up to rounding."""
    return abs(factor / expected - 1) < 1e-3


def name_of_length(scales: list[Scale]) -> str:
    """Return the length whose square root divides all scores: keys or queries; else nothing."""
    lengths = {
        "keys": [scale.keys for scale in scales],
        "queries": [scale.queries for scale in scales],
    }
    for name, own in lengths.items():
        pairs = zip(scales, own, strict=True)
        if len(set(own)) > 1 and all(is_close(s.factor, n**-0.5) for s, n in pairs):
            return name
    return ""


def power_of_width(subject: Subject, number: int) -> float | None:
    """Return the power of d_k that the factor of a softmax's scores is proportional to.

    Two models with one d_model and other numbers of heads are compared; the result is None if the
    second one shows no scores.
    """
    c = subject.config
    first = scales_of(subject).scales[number]
    heads = c.heads // 2 if c.heads % 2 == 0 else 1
    try:
        model = subject.build(heads=heads)
        with trace_model(), Scales(subject.layouts, c.d_ff, heads) as trace:
            subject.logits(subject.source[:1], subject.target[:1], model)
    except AdapterError:
        return None
    if number >= len(trace.scales) or trace.scales[number].width == first.width:
        return None
    second = trace.scales[number]
    ratio = abs(second.factor / first.factor)
    return math.log(ratio) / math.log(second.width / first.width)
