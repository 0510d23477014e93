"""The tokens that each softmax attends to; needs only ``build`` and ``logits`` (3.1, 3.2.3).

With every matrix zero, all scores are equal, so a weight of zero is caused by a mask.

Shape letters: S source, T target.
"""

from functools import lru_cache

import torch
from torch import Tensor

from .findings import Finding, differs, error, not_run, passed
from .modes import set_to_zero
from .registry import check_of
from .subject import SAME, Subject, difference
from .trace import Event, trace_model

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
        others = {"encoder self-attention": (s, s), "decoder self-attention": (t, t)}
        others["cross-attention"] = (t, s)
        self.unused: list[str] = []
        """kinds of attention whose weights have no effect, although their sum has"""
        for kind, shape in others.items():
            changed = [with_other_weights(event, shape) for event in trace.events]
            with trace_model(replay=changed, layouts=subject.layouts):
                after = subject.logits(source, target)
            if difference(before, after) < SAME and not self.is_normalised:
                self.unused.append(kind)
        self.chosen = 0
        """how many keys each query of the encoder attends to, if scores hide the others"""
        if self.encoder is not None and bool((self.encoder > 1e-6).all()):
            self.chosen = keys_of_each_query(trace.softmaxes, s)
        later = [weights_of_later(event, t) for event in trace.events]
        with trace_model(replay=later, layouts=subject.layouts):
            after = subject.logits(source, target)
        self.ignores_later = difference(before, after) < SAME
        """whether weights of later tokens have no effect"""


def with_other_weights(event: Event, shape: tuple[int, int]) -> Tensor:
    """Return an event's result; softmaxes of a shape get other weights with the same sums."""
    weights = event.result
    if not event.is_softmax or weights.shape[-2:] != shape:
        return weights
    numbers = torch.rand(weights.shape, generator=torch.Generator().manual_seed(28))
    return numbers / numbers.sum(-1, keepdim=True) * weights.sum(-1, keepdim=True)


def keys_of_each_query(softmaxes: list[Tensor], length: int) -> int:
    """Return how many keys have a weight that is not 0, if it is one number for all queries."""
    counts: set[int] = set()
    for weights in softmaxes:
        if weights.shape[-2:] == (length, length):
            counts |= set((weights > 0).sum(-1).flatten().tolist())
    return counts.pop() if len(counts) == 1 else 0


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
    keys = 0 if masks.encoder is None else masks.encoder.size(1)
    if 1 < masks.chosen < keys:
        return differs(
            f"each query of encoder self-attention has {masks.chosen} weights that are not 0",
            f"{keys}, one for each token",
            says=f"Each query attends to its {masks.chosen} best keys alone: other weights are 0.",
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
