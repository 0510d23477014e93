"""Checks of ``attention``: equation 1 and its mask (3.2.1, 3.2.3); and of heads (3.2.2).

Shape letters: B batch, H heads, T queries, S keys, K d_k.
"""

import torch
from torch import Tensor

from .findings import DIFFERENCE, ERROR, Finding, differs, error, not_run, passed
from .registry import check_of
from .scores import REDUCTIONS, Scale, scales_of
from .subject import Subject
from .trace import trace_model
from .wiring import describe_places, places_of


class Attention:
    """``attention`` of random queries and keys; the values are the identity matrix [S, S]."""

    def __init__(self, subject: Subject, size: float = 1.0) -> None:
        numbers = torch.Generator().manual_seed(4)
        self.subject = subject
        self.q = size * torch.randn(2, 4, 5, 8, generator=numbers)  # [B, H, T, K]
        self.k = torch.randn(2, 4, 7, 8, generator=numbers)  # [B, H, S, K]

    def weights(self, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights, shape [B, H, T, S]."""
        values = torch.eye(7).expand(2, 4, 7, 7)
        shape = (2, 4, 5, 7)
        return self.subject.tensor("attention", shape, self.q, self.k, values, mask).detach()


@check_of(
    "equation-1-softmax",
    "3.2.1",
    passes="attention() takes the softmax over the keys.",
    fails="attention() does not take the softmax over the keys.",
    needs=("attention",),
    explains=("equation-1-mask",),
)
def softmax_over_keys(subject: Subject) -> Finding:
    """Check that the weights of each query sum to one."""
    sums = Attention(subject).weights().sum(-1)
    away = float((sums - 1).abs().max())
    if away < 1e-4:
        return passed()
    return differs(
        f"the weights of a query sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}",
        "1",
        fix="Use softmax(dim=-1) for scores [B, H, T, S].",
    )


@check_of(
    "equation-1-scale",
    "3.2.1",
    passes="attention() divides the scores by √d_k.",
    fails="attention() does not divide the scores by √d_k.",
    needs=("attention",),
)
def scale(subject: Subject) -> Finding:
    """Fit the factor between products of queries and keys and the logarithms of the weights."""
    attention = Attention(subject)
    products = attention.q @ attention.k.transpose(-2, -1)
    products = products - products.mean(-1, keepdim=True)
    logs = attention.weights().clamp(min=1e-30).log()
    logs = logs - logs.mean(-1, keepdim=True)
    slope = float((products * logs).sum() / (products * products).sum())
    if float((logs - slope * products).abs().max()) > 1e-2:
        return not_run("the weights are not a softmax of products of queries and keys")
    if abs(slope * 8**0.5 - 1) < 1e-3:
        return passed()
    return differs(
        f"factor {slope:.4f}", f"1/√8 = {8**-0.5:.4f}", fix="Divide by math.sqrt(q.size(-1))."
    )


@check_of(
    "equation-1-mask",
    "3.2.3",
    passes="The mask of attention() hides keys.",
    fails="The mask of attention() does not hide keys.",
    needs=("attention",),
)
def mask_hides(subject: Subject) -> Finding:
    """Check that hidden keys have weight zero, and that the other weights sum to one."""
    mask = torch.ones(5, 7, dtype=torch.bool).tril(1).expand(2, 1, 5, 7)
    attention = Attention(subject)
    weights = attention.weights(mask)
    hidden = float(weights.masked_fill(mask, 0).max())
    rows = float((weights.sum(-1) - 1).abs().max())
    if hidden < 1e-5 and rows < 1e-4:
        return passed()
    if float((weights - attention.weights()).abs().max()) < 1e-6:
        return error(
            f"the same weights with a mask and without; a hidden key has one of up to {hidden:.3g}",
            "0",
            says="attention() ignores its mask: it is not applied to the scores.",
            fix="Assign the result: masked_fill returns new scores, and masked_fill_ changes them.",
            explains=("causal-mask", "source-padding", "target-padding"),
        )
    return Finding(
        ERROR if hidden >= 1e-5 else DIFFERENCE,
        f"a hidden key has a weight of up to {hidden:.3g}; sums of weights are up to {rows:.2g} "
        "away from 1",
        "0 and 0",
        fix="Set the scores to -inf where the mask is False, before the softmax.",
    )


@check_of(
    "equation-1-overflow",
    "3.2.1",
    passes="attention() gives finite weights to scores of a thousand.",
    fails="attention() gives weights that are not finite to large scores.",
    needs=("attention",),
)
def large_scores(subject: Subject) -> Finding:
    """Check that scores of about a thousand give finite weights.

    exp(89) is infinite in float32, so a softmax has to subtract the maximum first.
    """
    attention = Attention(subject, size=1000.0)
    values = torch.eye(7).expand(2, 4, 7, 7)
    output = subject.call("attention", attention.q, attention.k, values, None)
    output = output[0] if isinstance(output, tuple) else output
    if bool(output.isfinite().all()):
        return passed()
    return error(
        f"{int((~output.isfinite()).sum())} of {output.numel()} outputs are NaN or infinite",
        "0",
        fix="Use torch.softmax, or subtract the maximum of each row first.",
    )


# ---- 3.2.2 Heads ---------------------------------------------------------------------------------


@check_of(
    "heads",
    "3.2.2",
    passes="Every attention layer has h different heads.",
    fails="An attention layer does not have h different heads.",
    explains=("attention-scale",),
)
def heads(subject: Subject) -> Finding:
    """Compare the softmaxes of each layer: h matrices, no two of them equal."""
    c = subject.config
    s = subject.source.size(1)
    t = subject.target.size(1)
    with trace_model(layouts=subject.layouts) as trace:
        subject.logits(subject.source[:1], subject.target[:1])
    kinds = {"the encoder": (s, s), "the decoder": (t, t), "cross-attention": (t, s)}
    seen = []
    for kind, shape in kinds.items():
        own = [w.reshape(-1, *shape) for w in trace.softmaxes if w.shape[-2:] == shape]
        if not own:
            continue
        weights = torch.cat(own)
        equal = 0
        for first in range(0, len(weights), c.heads):
            equal += equal_pairs(weights[first : first + c.heads])
        if len(weights) != c.heads * c.layers or equal:
            pairs = f", {equal} pairs of them equal" if equal else ""
            seen.append(f"{len(weights)} attention matrices in {kind}{pairs}")
    if not any(w.shape[-2:] == (s, s) for w in trace.softmaxes):
        return not_run(f"no torch softmax over {s} source tokens was seen in the encoder")
    if not seen:
        return parts_of_heads(subject)
    return differs(
        "; ".join(seen),
        f"{c.heads * c.layers} each: {c.heads} different heads in {c.layers} layers",
    )


def parts_of_heads(subject: Subject) -> Finding:
    """Check that heads have different queries, keys and values, and are concatenated."""
    c = subject.config
    trace = scales_of(subject)
    explains = ("head-size", "parameter-count", "head-concatenation")
    if trace.reductions:
        does = REDUCTIONS[trace.reductions[0]]
        return differs(
            f"the outputs of {c.heads} heads are {does} {len(trace.reductions)} times",
            "one concatenation in each attention",
            says=f"The outputs of the heads are {does} instead of concatenated.",
            fix="Concatenate h outputs of d_v numbers, then multiply by W_O [h · d_v, d_model].",
            explains=explains,
        )
    own: dict[tuple[str, int], dict[str, set[float]]] = {}
    places = places_of(subject, [(scale.queries, scale.keys) for scale in trace.scales])
    equal = equal_projections(trace.scales)
    if equal:
        return differs(
            f"{equal} are equal, up to a factor, for one input",
            "three projections of the input: W_Q, W_K and W_V",
            says=f"{equal.capitalize()} are one projection: they share a matrix.",
            fix="Give queries, keys and values a matrix each.",
            explains=(*explains, "gradients", "attention-inputs"),
        )
    for place, scale in zip(places, trace.scales, strict=True):
        for part, numbers in scale.heads.items():
            own.setdefault(place, {}).setdefault(part, set()).update(numbers)
    shared: dict[str, int] = {}
    of_shared = []
    for place, parts_of_place in own.items():
        for part, different in parts_of_place.items():
            if 0 < len(different) < c.heads:
                shared[part] = min(shared.get(part, c.heads), len(different))
                of_shared.append(place)
    if not shared:
        return passed()
    parts = " and ".join(shared)
    says = f"Several heads share their {parts}, as in grouped-query attention."
    if set(shared.values()) == {1}:
        is_multi_query = set(shared) == {"keys", "values"}
        says = f"All heads have the same {parts}{', as in multi-query attention' * is_multi_query}."
    counts = ", ".join(f"{count} different {part}" for part, count in shared.items())
    return differs(
        f"{counts} of {c.heads} heads in {describe_places(subject, of_shared)}",
        f"{c.heads} different ones",
        says=says,
        fix="Project queries and keys to h · d_k numbers and values to h · d_v.",
        explains=explains,
    )


def equal_projections(scales: list[Scale]) -> str:
    """Return which of queries, keys and values are equal in all self-attentions; else nothing."""
    own = [scale.heads for scale in scales if scale.queries == scale.keys]
    for one, other in (("queries", "keys"), ("queries", "values"), ("keys", "values")):
        if own and all(are_multiples(heads[one], heads[other]) for heads in own):
            return f"{one} and {other}"
    return ""


def are_multiples(first: list[float], second: list[float]) -> bool:
    """Return whether the fingerprints of several different heads have one ratio."""
    if len(first) != len(second) or len(set(first)) < 2 or not all(first):
        return False
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    return all(is_ratio(each, ratios[0]) for each in ratios)


def is_ratio(number: float, expected: float) -> bool:
    """Return whether two ratios are equal up to rounding."""
    return abs(number - expected) < 1e-4 * abs(expected)


def equal_pairs(heads: torch.Tensor) -> int:
    """Count the pairs of heads [H, T, S] that have the same weights."""
    equal = 0
    for i in range(len(heads)):
        for j in range(i):
            equal += int(torch.allclose(heads[i], heads[j], atol=1e-6))
    return equal
