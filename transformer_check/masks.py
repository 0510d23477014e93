"""The tokens that each softmax attends to; needs only ``build`` and ``logits`` (3.1, 3.2.3).

With every matrix zero, all scores are equal, so a weight of zero is caused by a mask.

Shape letters: S source, T target.
"""

from functools import lru_cache

import torch
from torch import Tensor

from .findings import Finding, differs, error, not_run, passed, waits_for
from .modes import set_to_zero
from .registry import check_of
from .subject import SAME, Subject, difference
from .trace import Event, trace_model
from .uneven_batch import weak_mask

SOURCE, TARGET = 29, 24
"""Lengths of the sentences, if the model allows them; a mask that shows fewer tokens is noticed."""
ONES = torch.ones(1, 1)


class Masks:
    """The least weight of each query for each key, over layers and heads.

    It is None for a kind of attention whose softmaxes were not seen.
    """

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        length = min(SOURCE, c.max_length - 1)
        source = subject.words(1, length, seed=11)
        target = subject.words(1, min(TARGET, length - 1), seed=12)
        source[:, -1] = c.end
        target[:, 0] = c.start
        s, t = source.size(1), target.size(1)
        matrices = [
            p
            for p in subject.model.parameters()
            if subject.is_matrix(p) and c.vocabulary not in p.shape
        ]
        with set_to_zero(matrices), trace_model(layouts=subject.layouts) as trace:
            subject.logits(source, target)
        self.lengths = s, t
        self.events = [event for event in trace.events if event.is_softmax]
        self.sums = torch.cat([weights.sum(-1).flatten() for weights in trace.softmaxes or [ONES]])
        self.encoder = least(trace.softmaxes, s, s)
        self.decoder = least(trace.softmaxes, t, t)
        self.cross = least(trace.softmaxes, t, s)
        own = [w.reshape(-1, t, t) for w in trace.softmaxes if w.shape[-2:] == (t, t)]
        self.decoder_weights = torch.cat(own or [ONES[None]])
        self.scores = scores_of(trace.events, t)
        with trace_model(layouts=subject.layouts) as trace:
            before = subject.logits(source, target)
        self.scores_with_matrices = scores_of(trace.events, t)
        doubled = [2 * e.result if e.is_softmax else e.result for e in trace.events]
        with trace_model(replay=doubled, layouts=subject.layouts):
            after = subject.logits(source, target)
        self.is_normalised = difference(before, after) < SAME
        """whether the model divides weights by their sum after the softmax"""
        later = [weights_of_later(event, t) for event in trace.events]
        with trace_model(replay=later, layouts=subject.layouts):
            after = subject.logits(source, target)
        self.ignores_later = difference(before, after) < SAME
        """whether weights of later tokens have no effect"""


def weights_of_later(event: Event, length: int) -> Tensor:
    """Return an event's result; decoder self-attention gets larger weights of later tokens."""
    if not event.is_softmax or tuple(event.result.shape[-2:]) != (length, length):
        return event.result
    return event.result + torch.ones(length, length).triu(1)


def scores_of(events: list[Event], length: int) -> Tensor:
    """Return the scores [N, T, T] of all heads of the first decoder self-attention."""
    for event in events:
        if event.is_softmax and tuple(event.result.shape[-2:]) == (length, length):
            return event.operand.float().reshape(-1, length, length)
    return torch.zeros(1, length, length)


def least(softmaxes: list[Tensor], queries: int, keys: int) -> Tensor | None:
    """Return the least weight [queries, keys] over the softmaxes of one shape, or None."""
    weights = [w.reshape(-1, queries, keys) for w in softmaxes if w.shape[-2:] == (queries, keys)]
    return torch.cat(weights).amin(0) if weights else None


@lru_cache(maxsize=1)
def masks_of(subject: Subject) -> Masks:
    """Return the masks of a subject, computed once for all checks."""
    return Masks(subject)


def hidden_words(subject: Subject) -> Tensor:
    """Return which target tokens are hidden although they are not later ones: bool [T, T]."""
    weights = masks_of(subject).decoder
    if weights is None:
        return torch.zeros(1, 1, dtype=torch.bool)
    return weights.lt(1e-6).tril()


def leaking_layers(subject: Subject) -> tuple[str, tuple[str, ...]]:
    """Return where decoder self-attention shows later tokens, and the names of its modules.

    The text is empty if every layer and head shows them, or none.
    """
    length = len(masks_of(subject).scores[0])
    own = [e for e in masks_of(subject).events if tuple(e.result.shape[-2:]) == (length, length)]
    each = max(1, len(own) // subject.config.layers)
    layers: set[int] = set()
    modules = []
    heads: list[bool] = []
    for number, event in enumerate(own):
        later = event.result.reshape(-1, length, length).triu(1).amax((1, 2)) > 1e-6
        if bool(later.any()):
            layers.add(number // each + 1)
            modules.append(event.module)
            heads += later.tolist()
    names = subject.names_of(modules)
    if not layers or (all(heads) and len(layers) == subject.config.layers):
        return "", names
    place = f"layer {', '.join(map(str, sorted(layers)))}"
    return place if all(heads) else f"{sum(heads)} of {len(heads)} heads of {place}", names


def hides_earlier_tokens(subject: Subject) -> bool:
    """Return whether a mask hides nearly all tokens before each target token."""
    hidden = hidden_words(subject).tril(-1)
    earlier = len(hidden) * (len(hidden) - 1) // 2
    return int(hidden.sum()) > 0.8 * max(earlier, 1)


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
    "target-visible",
    "3.2.3",
    passes="Every target token attends to itself and to all earlier tokens.",
    fails="A target token does not attend to itself and to all earlier tokens.",
    explains=("adapter-decoder",),
)
def earlier_words(subject: Subject) -> Finding:
    """Look for weights of zero at or before the position itself, in each layer and head."""
    if masks_of(subject).decoder is None:
        return not_run("no torch softmax over the target was seen")
    hidden = hidden_words(subject)
    if not hidden.any():
        return passed()
    row, word = (int(n) for n in hidden.nonzero()[0])
    length = hidden.size(0)
    says, fix = why_hidden(hidden)
    return error(
        f"{int(hidden.sum())} of {length * (length + 1) // 2} weights are zero in some layer or "
        f"head; the first: position {row + 1} does not attend to position {word + 1}",
        "no weight of zero",
        says=says,
        fix=fix,
    )


def why_hidden(hidden: Tensor) -> tuple[str, str]:
    """Return the sentence and the fix for the mask that hides these tokens: bool [T, T]."""
    length = hidden.size(0)
    first_only = hidden.clone()
    first_only[:, 0] = False
    if bool(hidden.diagonal()[1:].all()):
        says = "The causal mask hides each target token from itself."
        return says, "Use tril(0) (or triu(1) for a mask of what to hide)."
    before = hidden.diagonal(-1)
    if bool(before.all()) and int(hidden.sum()) == length - 1:
        return "The causal mask hides the previous token from each target token.", ""
    if hidden[-1, -1] and int(hidden.sum()) == 1:
        return "The causal mask hides the last target token from itself.", ""
    if not first_only.any():
        says = "The start token is hidden from later target tokens."
        return says, "Compare with the padding id: the start token may be taken for padding."
    widest = int((~hidden).tril().sum(-1).max())
    windows = torch.ones(length, length, dtype=torch.bool).tril().triu(1 - widest)
    if bool((windows == (~hidden).tril()).all()):
        return f"The causal mask shows only the last {widest} target tokens.", ""
    return "", ""


@check_of(
    "source-visible",
    "3.1",
    passes="The encoder and the decoder attend to every source token.",
    fails="A mask hides source tokens that are not padding.",
    explains=("permutation",),
)
def source_words(subject: Subject) -> Finding:
    """Look for weights of zero in encoder self-attention and in cross-attention."""
    masks = masks_of(subject)
    seen = {"Encoder self-attention": masks.encoder, "Cross-attention": masks.cross}
    for place, weights in seen.items():
        if weights is None:
            return not_run(f"no torch softmax was seen in {place[0].lower()}{place[1:]}")
        hidden = weights.lt(1e-6)
        if hidden.any():
            row, word = (int(n) for n in hidden.nonzero()[0])
            return error(
                f"{int(hidden.sum())} of {hidden.numel()} weights are zero; the first: position "
                f"{row + 1} does not attend to source position {word + 1}",
                "no weight of zero",
                says=f"{place} {what_is_hidden(hidden)}.",
            )
    return passed()


def what_is_hidden(hidden: Tensor) -> str:
    """Return the predicate of a sentence about source tokens that are hidden: bool [T or S, S]."""
    if bool((hidden == torch.ones_like(hidden).triu(1)).all()):
        return "has a causal mask"
    shown = ~hidden[0]
    if bool((hidden == hidden[0]).all()):
        if bool(shown[:-1].all()):
            return "hides the end token, the last of a source, as if it were padding"
        if bool(shown[1:].all()):
            return "hides the first token of a source"
        if bool(shown[1:].any()) and int(shown.sum()) < len(shown) - 2:
            return f"shows only {int(shown.sum())} tokens of a source"
    return "hides source tokens that are not padding"
