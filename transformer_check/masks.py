"""Which words each softmax looks at; needs only ``build`` and ``logits`` (3.1, 3.2.3).

With every matrix zero, all scores are equal: a weight of zero is a mask's.

Shape letters: S source, T target.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .findings import Finding, differs, error, not_run, passed
from .registry import check_of
from .subject import Subject, zeroed
from .trace import traced

SOURCE, TARGET = 29, 24
"""Lengths, of a model that takes so many: a mask that shows fewer words at once is noticed."""
ONES = torch.ones(1, 1)


class Masks:
    """The least weight of each query for each key, over layers and heads.

    Nothing for a kind of attention whose softmaxes were not seen.
    """

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        length = min(SOURCE, c.max_length - 1)
        source = subject.words(1, length, seed=11)
        target = subject.words(1, min(TARGET, length - 1), seed=12)
        target[:, 0] = c.start
        s, t = source.size(1), target.size(1)
        matrices = [
            p
            for p in subject.model.parameters()
            if subject.is_matrix(p) and c.vocabulary not in p.shape
        ]
        with zeroed(matrices), traced(layouts=subject.layouts) as trace:
            subject.logits(source, target)
        self.sums = torch.cat([weights.sum(-1).flatten() for weights in trace.softmaxes or [ONES]])
        self.encoder = least(trace.softmaxes, s, s)
        self.decoder = least(trace.softmaxes, t, t)
        self.cross = least(trace.softmaxes, t, s)


def least(softmaxes: list[Tensor], queries: int, keys: int) -> Tensor | None:
    """The least weight of a shape's softmaxes: [queries, keys]."""
    weights = [w.reshape(-1, queries, keys) for w in softmaxes if w.shape[-2:] == (queries, keys)]
    return torch.cat(weights).amin(0) if weights else None


@lru_cache(maxsize=1)
def masks_of(subject: Subject) -> Masks:
    """The subject's; one for all checks."""
    return Masks(subject)


def hidden_words(subject: Subject) -> Tensor:
    """Which target words are hidden though they are no later ones: bool [T, T]."""
    weights = masks_of(subject).decoder
    if weights is None:
        return torch.zeros(1, 1, dtype=torch.bool)
    return weights.lt(1e-6).tril()


def attends_to_padding(subject: Subject, source: Tensor, pads: int) -> dict[str, list[str]]:
    """Return which attention gives weight to the last ``pads`` tokens of a source: kind → modules.

    The kinds are ``encoder`` and ``decoder``; a kind whose softmaxes are not seen is left out.
    """
    keys, queries = source.size(1), subject.target.size(1)
    with traced(layouts=subject.layouts) as trace:
        subject.logits(source, subject.target)
    kinds = {(keys, keys): "encoder", (queries, keys): "decoder"}
    modules: dict[str, list[Any]] = {}
    for event in trace.events:
        kind = kinds.get(tuple(event.result.shape[-2:]), "")
        if kind and event.result[..., -pads:].max() > 1e-6:
            modules.setdefault(kind, []).append(event.module)
    return {kind: list(subject.names_of(own)) for kind, own in modules.items()}


@check_of(
    "softmax-dimension",
    "3.2.1",
    passes="Every softmax of the model is over the keys.",
    fails="A softmax of the model is not over the keys.",
)
def over_keys(subject: Subject) -> Finding:
    """Sum the weights of each query, whatever ``attention`` of the file does."""
    masks = masks_of(subject)
    if masks.decoder is None:
        return not_run("no torch softmax over the target was seen")
    if float((masks.sums - 1).abs().max()) < 1e-3:
        return passed()
    return differs(
        f"the weights of a query sum to {float(masks.sums.min()):.3g} to "
        f"{float(masks.sums.max()):.3g}",
        "1",
        fix="Take the softmax over the dimension of the keys, the last one of scores [B, H, T, S].",
    )


@check_of(
    "target-visible",
    "3.2.3",
    passes="Every target token attends to itself and to all earlier tokens.",
    fails="A target token does not attend to itself and to all earlier tokens.",
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
    """Return the sentence and the fix for the mask that hides these tokens."""
    length = hidden.size(0)
    first_only = hidden.clone()
    first_only[:, 0] = False
    if bool(hidden.diagonal()[1:].all()):
        says = "The causal mask hides each target token from itself."
        return says, "Use tril(0) (or triu(1) for a mask of what to hide)."
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
            causal = bool((hidden == torch.ones_like(hidden).triu(1)).all())
            return differs(
                f"{int(hidden.sum())} of {hidden.numel()} weights are zero; the first: position "
                f"{row + 1} does not attend to source position {word + 1}",
                "no weight of zero",
                says=f"{place} has a causal mask."
                if causal
                else f"{place} hides source tokens that are not padding.",
            )
    return passed()
