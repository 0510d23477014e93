"""Correct and wrong cross entropies, as training loops compute them (5.4).

Shape letters: B batch, T target, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .subject import Subject


def words_of_targets(subject: Subject, sentences: int, length: int, seed: int) -> Tensor:
    """Return words [B, T]; the first sentence begins with the lowest and the highest id of a word.

    A wrong comparison with the id of padding leaves out such words.
    """
    words = subject.words(sentences, length, seed=seed)
    every = subject.words(1, subject.config.vocabulary)
    lowest, highest = every.min(), every.max()
    first = words[0]
    others = first[first.ne(lowest) & first.ne(highest)]
    words[0] = torch.cat([lowest[None], highest[None], others])[:length]
    return words


def smoothings(epsilon: float) -> dict[str, tuple[float, str]]:
    """Return ε, and the classes over which it is spread, by the sentence of the mistake."""
    kinds = {"": (epsilon, "others")}
    kinds["It spreads ε over all V classes."] = (epsilon, "all")
    kinds["It gives padding no probability."] = (epsilon, "no pad")
    kinds["It has no label smoothing."] = (0.0, "others")
    for other in (0.1, 0.2, 0.05, 0.3, 0.01):
        if abs(other - epsilon) > 1e-6:
            kinds[f"Its label smoothing is {other}."] = (other, "others")
            kinds[f"Its label smoothing is {other}, spread over all V classes."] = (other, "all")
    kinds["It smooths labels twice."] = (2 * epsilon - epsilon**2, "others")
    no_sum = "Its smoothed labels do not sum to 1: each other token has"
    kinds[f"{no_sum} ε / V."] = (epsilon, "V")
    kinds[f"{no_sum} ε / (V - 2)."] = (epsilon, "V - 2")
    return kinds


USUAL = ("", "It spreads ε over all V classes.", "It gives padding no probability.")


def cross_entropies(log_p: Tensor, words: Tensor, epsilon: float, over: str, pad: int) -> Tensor:
    """Return the loss of each position, shape [B, T].

    Args:
        log_p: log-probabilities [B, T, V]
        words: the tokens to predict [B, T]
        epsilon: the weight of label smoothing
        over: the classes over which it is spread, as in :func:`smoothings`
        pad: id of padding
    """
    types = log_p.size(-1)
    of_word = -log_p.gather(-1, words[..., None])[..., 0]
    everything = -log_p.sum(-1)
    spread = everything if over == "all" else everything - of_word
    if over == "no pad":
        spread = spread + log_p[..., pad]
    return (1 - epsilon) * of_word + epsilon / classes_of(over, types) * spread


def classes_of(over: str, types: int) -> int:
    """Return the number of classes by which ε is divided."""
    return {"others": types - 1, "no pad": types - 2, "V - 2": types - 2}.get(over, types)


def entropy(epsilon: float, over: str, types: int) -> float:
    """Return the entropy of the smoothed distribution, which a KL divergence subtracts."""
    if not epsilon:
        return 0.0
    right = 1 - epsilon + (epsilon / types if over == "all" else 0.0)
    each = epsilon / classes_of(over, types)
    count = types - 2 if over == "no pad" else types - 1
    return -right * math.log(right) - count * each * math.log(each)


Average = Callable[[Tensor, Tensor], Tensor]
"""(the loss of each position [B, T], which positions are tokens) → one number"""


def mean_of_steps(each: Tensor, real: Tensor) -> Tensor:
    """Return the sum over positions of the mean loss over sentences."""
    return ((each * real).sum(0) / real.sum(0).clamp(min=1)).sum()


RIGHT: dict[str, Average] = {
    "": lambda each, real: (each * real).sum() / real.sum(),
    "sum": lambda each, real: (each * real).sum(),
}
"""what the paper leaves open: a mean or a sum over tokens"""
AVERAGES: dict[str, Average] = {
    "It is divided by the number of sentences.": lambda e, r: (e * r).sum() / len(e),
    "It is multiplied by the number of sentences.": lambda e, r: (e * r).sum() / r.sum() * len(e),
    "It is the perplexity, the exponential of the loss.": (
        lambda e, r: ((e * r).sum() / r.sum()).exp()
    ),
    "It is divided by all positions, padding included.": lambda e, r: (e * r).sum() / e.numel(),
    "It is divided by the length of the longest sentence.": lambda e, r: (e * r).sum() / e.size(1),
    "It is a mean of the sentences' means.": lambda e, r: ((e * r).sum(1) / r.sum(1)).mean(),
    "It is a sum of the sentences' means.": lambda e, r: ((e * r).sum(1) / r.sum(1)).sum(),
    "It is a sum of the steps' means.": mean_of_steps,
    "It is a mean of the steps' means.": lambda e, r: mean_of_steps(e, r) / e.size(1),
    "Padding has a part in it.": lambda e, r: e.mean(),
    "Padding has a part in it, and it is a sum.": lambda e, r: e.sum(),
    "Padding has a part in it, and it is divided by the tokens.": lambda e, r: e.sum() / r.sum(),
    "Padding has a part in it, and it is divided by the sentences.": lambda e, r: e.sum() / len(e),
}


def factors(types: int) -> dict[str, float]:
    """Return the factors that a loss may have, by the sentence of each."""
    return {
        "": 1.0,
        "It has a minus sign too many.": -1.0,
        "It is in bits (log 2), not in nats.": 1 / math.log(2),
        "It is divided by the vocabulary, too: use reduction='sum'.": 1 / types,
        "It is twice the loss.": 2.0,
        "It is half of the loss.": 0.5,
    }


def mix_sentences(logits: Tensor) -> Tensor:
    """Return log-probabilities in which a wrong reshape mixes sentences and positions."""
    return logits.transpose(0, 1).reshape(logits.shape).log_softmax(-1)


SOFTMAXES: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda logits: logits.log_softmax(-1),
    "It applies the softmax twice.": lambda logits: logits.softmax(-1).log_softmax(-1),
    "It has no log_softmax: nll_loss() needs log-probabilities, and gets logits.": (
        lambda logits: logits
    ),
    "It has no logarithm: it adds up probabilities.": lambda logits: logits.softmax(-1),
    "Its softmax is over the positions of a sentence instead of the vocabulary.": (
        lambda logits: logits.log_softmax(1)
    ),
    "Its softmax is over the sentences of a batch instead of the vocabulary.": (
        lambda logits: logits.log_softmax(0)
    ),
    "It mixes sentences and steps of the logits: a view without a transpose.": mix_sentences,
}
"""what a loss uses as log-probabilities of logits [B, T, V], by the sentence of the mistake"""


def double_softmax(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a cross entropy of the softmax's softmax."""
    p = x.softmax(-1)
    return [p * p.softmax(-1), p]


def squared_probabilities(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a squared error of probabilities."""
    p = x.softmax(-1)
    return [p * p, p]


def entropy_terms(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a cross entropy plus an entropy."""
    p = x.softmax(-1)
    return [p, p * x.log_softmax(-1)]


def sums_of_binary(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a binary cross entropy of the softmax."""
    p = x.softmax(-1)
    return [p, p / (1 - p).clamp(min=1e-12)]


FORMS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "The loss has no log_softmax: nll_loss() needs log-probabilities, and gets logits.": (
        lambda x: []
    ),
    "The loss is a binary cross entropy: it has a sigmoid for each class in place of a softmax.": (
        lambda x: [x.sigmoid()]
    ),
    "The loss is a squared error of the logits.": lambda x: [x],
    "The loss adds the squares of the logits.": lambda x: [x.softmax(-1), x],
    "The loss applies the softmax twice: its input is logits, not probabilities.": double_softmax,
    "The loss is a squared error of probabilities.": squared_probabilities,
    "The loss is a binary cross entropy of the softmax's probabilities.": sums_of_binary,
    "The loss adds a multiple of the entropy of the model's distribution.": entropy_terms,
}
"""functions of logits [N, V] in the gradient of a wrong loss, by the sentence of the mistake"""
