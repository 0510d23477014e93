"""Which words each softmax looks at; needs only ``build`` and ``logits`` (3.1, 3.2.3).

With every matrix zero, all scores are equal: a weight of zero is a mask's.

Shape letters: S source, T target.
"""

from functools import lru_cache

import torch
from torch import Tensor

from .card import DIFFERS, ERROR, Result, check_of, not_checked
from .subject import Subject, zeroed
from .trace import traced

SOURCE, TARGET = 29, 24
"""Lengths, of a model that takes so many: a mask that shows fewer words at once is noticed."""
ONES = torch.ones(1, 1)
EARLIER = "a target word sees itself and all words before it"


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
            p for p in subject.model.parameters() if p.dim() > 1 and c.vocabulary not in p.shape
        ]
        with zeroed(matrices), traced() as trace:
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


@check_of("3.2.1", "every softmax of the model is over keys")
def over_keys(subject: Subject) -> Result:
    """Weights of each query sum to one, whatever ``attention`` of the file does."""
    masks = masks_of(subject)
    if masks.decoder is None:
        return not_checked("no softmax of torch's over the target was seen")
    if float((masks.sums - 1).abs().max()) < 1e-3:
        return Result()
    return Result(
        DIFFERS,
        "weights of a query that sum to 1",
        f"sums from {float(masks.sums.min()):.3g} to {float(masks.sums.max()):.3g}",
        "Likely the softmax is over queries or heads.",
    )


@check_of("3.2.3", EARLIER)
def earlier_words(subject: Subject) -> Result:
    """In each layer and head."""
    if masks_of(subject).decoder is None:
        return not_checked("no softmax of torch's over the target was seen")
    hidden = hidden_words(subject)
    if not hidden.any():
        return Result()
    row, word = (int(n) for n in hidden.nonzero()[0])
    length = hidden.size(0)
    return Result(
        ERROR,
        "a weight for each word up to the position itself",
        f"{int(hidden.sum())} of {length * (length + 1) // 2} weights are zero in some layer or "
        f"head: first, position {row + 1} does not see word {word + 1}",
        why_hidden(hidden),
    )


def why_hidden(hidden: Tensor) -> str:
    """The likely mask."""
    length = hidden.size(0)
    first_only = hidden.clone()
    first_only[:, 0] = False
    if bool(hidden.diagonal()[1:].all()):
        return "A word does not see itself: the mask is shifted by one."
    if hidden[-1, -1] and int(hidden.sum()) == 1:
        return (
            "The last row does not see itself: what a word gives depends on where the batch ends."
        )
    if not first_only.any():
        return "The first word, with which the decoder starts, is hidden, perhaps as padding."
    widest = int((~hidden).tril().sum(-1).max())
    windows = torch.ones(length, length, dtype=torch.bool).tril().triu(1 - widest)
    if bool((windows == (~hidden).tril()).all()):
        return f"The mask shows {widest} words and no more: a word further back cannot be used."
    return "The causal mask hides more than later words, or another mask is in its place."


@check_of("3.1", "all words of the source are seen")
def source_words(subject: Subject) -> Result:
    """By each other and from the decoder."""
    masks = masks_of(subject)
    seen = {"the encoder": masks.encoder, "cross-attention": masks.cross}
    for place, weights in seen.items():
        if weights is None:
            return not_checked(f"no softmax of torch's was seen in {place}")
        hidden = weights.lt(1e-6)
        if hidden.any():
            row, word = (int(n) for n in hidden.nonzero()[0])
            causal = bool((hidden == torch.ones_like(hidden).triu(1)).all())
            return Result(
                DIFFERS,
                "a weight for each word of the source, which has no padding",
                f"{int(hidden.sum())} of {hidden.numel()} weights are zero in {place}: first, "
                f"position {row + 1} does not see word {word + 1}",
                "It has the decoder's causal mask."
                if causal
                else "A mask hides words there, as if they were padding or out of reach.",
            )
    return Result()
