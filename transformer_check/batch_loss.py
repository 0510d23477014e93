"""Checks of ``training_loss``: which input, tokens, smoothing and average give its value.

Every combination of what a training loop may do is computed from the model's logits; the one with
the fewest mistakes that gives the value of two batches is named.

Shape letters: B batch, S source, T target, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .findings import Finding, differs, error, passed, variant, waits_for
from .registry import check_of
from .subject import AdapterError, Subject, shown

SOURCE, INPUT, LOSS = "source", "input", "loss"
EQUAL = 2e-5
"""relative difference of equal losses"""


class Step(NamedTuple):
    """What the model is given and what it is to predict."""

    name: str
    """the sentence of the mistake; empty if there is none"""
    source: Tensor
    inputs: Tensor
    words: Tensor
    concerns: str = INPUT
    """the source, the decoder's input or the loss"""


class Fit(NamedTuple):
    """A combination that gives the value of training_loss."""

    step: str
    concerns: str
    smoothing: str
    average: str
    is_variant: bool
    """whether smoothing is a usual variant"""


class Batch:
    """A batch with sources and targets of several lengths."""

    def __init__(self, subject: Subject, seed: int) -> None:
        c = subject.config
        self.subject = subject
        self.source = subject.words(3, 7, seed=seed)  # [B, S]
        self.target = subject.words(3, 6, seed=seed + 1)  # [B, T]
        lengths = zip((7, 5, 6), (6, 3, 4), strict=True)
        for n, (of_source, of_target) in enumerate(lengths):
            self.source[n, of_source - 1] = c.end
            self.source[n, of_source:] = c.pad
            self.target[n, of_target - 1] = c.end
            self.target[n, of_target:] = c.pad
        self.value = self.call()

    def call(self) -> float:
        """Return the value of training_loss.

        Raises:
            AdapterError: it is not one number.
        """
        subject = self.subject
        with torch.no_grad():
            source, target = self.source.clone(), self.target.clone()
            value = subject.call("training_loss", subject.model, source, target)
        subject.model.eval()
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"training_loss returned {shown(value)}"
            raise AdapterError(found, "training_loss", "one number, as a tensor")
        if not value.isfinite().all():
            raise AdapterError("training_loss returned NaN or infinity", "training_loss")
        return float(value)

    def steps(self) -> Iterator[Step]:
        """Yield what a training loop may give the model, the right step first."""
        c = self.subject.config
        source, target = self.source, self.target

        def after(first: int, ids: Tensor) -> Tensor:
            return torch.cat([torch.full_like(ids[:, :1], first), ids[:, :-1]], dim=1)

        right = after(c.start, target)
        after_pad = after(c.pad, target)
        after_end = after(c.end, target)
        left = torch.cat([target[:, 1:], torch.full_like(target[:, :1], c.pad)], dim=1)
        without_ends = target.masked_fill(target == c.end, c.pad)
        repeats = "The decoder is to repeat its own input: both are shifted."
        by_two = "The target is shifted by two tokens."
        no_start = "The target has no start: its first token is never predicted."
        yield Step("", source, right, target)
        for name, inputs, words in (
            ("The target is not shifted: each token is predicted from itself.", target, target),
            ("The decoder starts with padding instead of start.", after_pad, target),
            ("The decoder starts with the end token instead of start.", after_end, target),
            ("The decoder starts with the last token of the row.", target.roll(1, 1), target),
            (by_two, after(c.start, right), target),
            (by_two, after(c.pad, right), target),
            (by_two, after(c.end, right), target),
            (no_start, target[:, :-1], target[:, 1:]),
            (repeats, right, right),
            ("The decoder's input is shifted left: it has the token after the next.", left, target),
            ("The decoder is to predict the token before its input.", target, right),
            ("The decoder's input is reversed.", after(c.start, target.flip(1)), target),
        ):
            yield Step(name, source, inputs, words)
        for name, inputs, words in (
            ("It leaves out the first token of every target.", right, drop(target, c.pad)),
            ("It leaves out the last column of the target.", right[:, :-1], target[:, :-1]),
            ("It leaves out the end tokens.", right, without_ends),
        ):
            yield Step(name, source, inputs, words, concerns=LOSS)
        swapped = after(c.start, source)
        for name, one, inputs, words in (
            ("Source and target are swapped.", target, swapped, source),
            ("The model reads the target in place of the source.", target, right, target),
            ("The source is reversed.", source.flip(1), right, target),
            ("The model predicts the source in place of the target.", source, swapped, source),
            ("The sources of a batch are mixed.", source.roll(1, 0), right, target),
            ("The sources of a batch are mixed.", source.roll(-1, 0), right, target),
        ):
            yield Step(name, one, inputs, words, concerns=SOURCE)
        shifted = after(c.start, source)
        yield Step("The source is shifted.", shifted, right, target, concerns=SOURCE)

    def logits(self, step: Step) -> Tensor:
        """Return the logits of a step [B, T, V]."""
        with torch.no_grad():
            logits = self.subject.call("logits", self.subject.model, step.source, step.inputs)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.float()


def drop(target: Tensor, pad: int) -> Tensor:
    """Leave out the first column of the words to predict."""
    words = target.clone()
    words[:, 0] = pad
    return words


# ---- Cross entropies -----------------------------------------------------------------------------


def smoothings(epsilon: float) -> dict[str, tuple[float, str]]:
    """Return ε and over which classes it is spread, by the sentence of the mistake."""
    kinds = {"": (epsilon, "others")}
    kinds["It spreads ε over all V classes."] = (epsilon, "all")
    kinds["It gives padding no probability."] = (epsilon, "no pad")
    kinds["It has no label smoothing."] = (0.0, "others")
    for other in (0.1, 0.2, 0.05, 0.3, 0.01):
        if abs(other - epsilon) > 1e-6:
            kinds[f"Its label smoothing is {other}."] = (other, "others")
            kinds[f"Its label smoothing is {other}, spread over all V classes."] = (other, "all")
    kinds["It smooths labels twice."] = (2 * epsilon - epsilon**2, "others")
    return kinds


USUAL = ("", "It spreads ε over all V classes.", "It gives padding no probability.")


def cross_entropies(log_p: Tensor, words: Tensor, epsilon: float, over: str, pad: int) -> Tensor:
    """Return the loss of each position [B, T]."""
    types = log_p.size(-1)
    of_word = -log_p.gather(-1, words[..., None])[..., 0]
    everything = -log_p.sum(-1)
    if over == "all":
        return (1 - epsilon) * of_word + epsilon / types * everything
    others = everything - of_word
    if over == "no pad":
        return (1 - epsilon) * of_word + epsilon / (types - 2) * (others + log_p[..., pad])
    return (1 - epsilon) * of_word + epsilon / (types - 1) * others


def entropy(epsilon: float, over: str, types: int) -> float:
    """Return the entropy of the smoothed distribution, which a KL divergence subtracts."""
    if not epsilon:
        return 0.0
    count = {"all": types, "others": types - 1, "no pad": types - 2}[over]
    right = 1 - epsilon + (epsilon / types if over == "all" else 0.0)
    each = epsilon / count
    rest = (count - 1 if over == "all" else count) * each * math.log(each)
    return -right * math.log(right) - rest


Average = Callable[[Tensor, Tensor], Tensor]
"""(the loss of each position [B, T], which positions are tokens) → one number"""


def mean_of_steps(each: Tensor, real: Tensor) -> Tensor:
    """Return the sum over steps of the means over sentences."""
    return ((each * real).sum(0) / real.sum(0).clamp(min=1)).sum()


RIGHT: dict[str, Average] = {
    "": lambda each, real: (each * real).sum() / real.sum(),
    "sum": lambda each, real: (each * real).sum(),
}
"""what the paper leaves open: a mean or a sum over tokens"""
AVERAGES: dict[str, Average] = {
    "It is divided by the number of sentences.": lambda e, r: (e * r).sum() / len(e),
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


def scaled(averages: dict[str, Average], types: int) -> dict[str, tuple[Average, float]]:
    """Return each average with the factors that a loss may have, by the sentence of both."""
    factors = {
        "": 1.0,
        "It has a minus sign too many.": -1.0,
        "It is in bits (log 2), not in nats.": 1 / math.log(2),
        "It is divided by the vocabulary, too: use reduction='sum'.": 1 / types,
        "It is twice the loss.": 2.0,
        "It is half of the loss.": 0.5,
    }
    both = {}
    for factor, number in factors.items():
        for name, average in averages.items():
            parts = ("" if name == "sum" else name, factor)
            sentence = " ".join(filter(None, parts))
            both[f"{sentence}|{name}"] = (average, number)
    return both


def probabilities_as_logits(logits: Tensor) -> Tensor:
    """Return the log-probabilities of a softmax that is applied twice."""
    return logits.softmax(-1).log_softmax(-1)


def plain(logits: Tensor) -> Tensor:
    """Return log-probabilities."""
    return logits.log_softmax(-1)


def transposed(logits: Tensor) -> Tensor:
    """Return log-probabilities whose sentences and steps are mixed by a wrong reshape."""
    return logits.transpose(0, 1).reshape(logits.shape).log_softmax(-1)


SOFTMAXES: dict[str, Callable[[Tensor], Tensor]] = {
    "": plain,
    "It applies the softmax twice.": probabilities_as_logits,
    "It mixes sentences and steps of the logits: a view without a transpose.": transposed,
}


class Losses:
    """The value of training_loss for two batches, and the combinations that give it."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.batches = [Batch(subject, seed) for seed in (31, 33)]
        self.tried = 0
        self.fit = self.search()

    def search(self) -> Fit | None:
        """Return the combination with the fewest mistakes that gives both values."""
        first, second = self.batches
        others = zip(first.steps(), second.steps(), strict=True)
        for step, same in others:
            for softmax in SOFTMAXES:
                fit = self.search_of_step(step, same, softmax)
                if fit is not None:
                    return fit
        return None

    def search_of_step(self, step: Step, same: Step, softmax: str) -> Fit | None:
        """Return the combination of smoothing and average that fits a step of both batches."""
        first, second = self.batches
        pad = self.subject.config.pad
        types = self.subject.config.vocabulary
        try:
            raw = [first.logits(step), second.logits(same)]
        except AdapterError:  # the model refuses such an input, so it is not trained with it
            return None
        tables = [SOFTMAXES[softmax](each) for each in raw]
        averages = scaled({**RIGHT, **AVERAGES}, types)
        for smoothing, (epsilon, over) in smoothings(self.subject.config.label_smoothing).items():
            for offset in (0.0, entropy(epsilon, over, types)):
                losses = []
                for table, words in zip(tables, (step.words, same.words), strict=True):
                    each = cross_entropies(table, words, epsilon, over, pad) - offset
                    losses.append((each, words.ne(pad)))
                for name, (average, factor) in averages.items():
                    self.tried += 1
                    if all(
                        near(factor * float(average(*loss)), batch.value)
                        for loss, batch in zip(losses, self.batches, strict=True)
                    ):
                        said = " ".join(filter(None, (softmax, smoothing)))
                        of_average = name.split("|")[0]
                        usual = smoothing in USUAL and not softmax
                        return Fit(step.name, step.concerns, said, of_average, usual)
                if not offset and not epsilon:
                    break
        return None


def near(value: float, expected: float) -> bool:
    """Return whether two losses are equal; NaN is equal to NaN."""
    if math.isnan(value) or math.isnan(expected):
        return math.isnan(value) and math.isnan(expected)
    return abs(value - expected) <= EQUAL * abs(expected)


@lru_cache(maxsize=1)
def losses_of(subject: Subject) -> Losses:
    """Return the subject's; one for all checks."""
    return Losses(subject)


@check_of(
    "target-shift",
    "3.1",
    passes="The decoder's input is the target shifted right, and it predicts the target.",
    fails="The decoder's input is not the target shifted right.",
    needs=("training_loss",),
    explains=("training-loss",),
)
def target_shift(subject: Subject) -> Finding:
    """Find the decoder's input and the tokens to predict that give the value of training_loss."""
    losses = losses_of(subject)
    if losses.fit is None:
        return waits_for("training-loss")
    if losses.fit.concerns != INPUT or not losses.fit.step:
        return passed()
    return error(
        f"training_loss() = {losses.batches[0].value:.4f}, which that gives",
        "the loss of predicting each token from start and the tokens before it",
        says=losses.fit.step,
        fix="Give the decoder start and target[:, :-1], and predict target.",
    )


@check_of(
    "training-source",
    "3.1",
    passes="The encoder reads the source.",
    fails="The encoder does not read the source.",
    needs=("training_loss",),
    explains=("training-loss",),
)
def training_source(subject: Subject) -> Finding:
    """Find the source that gives the value of training_loss."""
    losses = losses_of(subject)
    if losses.fit is None:
        return waits_for("training-loss")
    if losses.fit.concerns != SOURCE:
        return passed()
    return error(
        f"training_loss() = {losses.batches[0].value:.4f}, which that gives",
        "the loss of translating the source into the target",
        says=losses.fit.step,
        fix="Call the model with (source, start + target[:, :-1]).",
    )


@check_of(
    "training-loss",
    "5.4",
    passes="training_loss() is label-smoothed cross entropy, a sum or a mean over tokens.",
    fails="training_loss() is no known loss of the batch.",
    needs=("training_loss",),
)
def training_loss(subject: Subject) -> Finding:
    """Find the smoothing and the average that give the value of training_loss."""
    losses = losses_of(subject)
    fit = losses.fit
    expected = "label-smoothed cross entropy of target, a sum or a mean over tokens"
    value = losses.batches[0].value
    if fit is None:
        return differs(
            f"{value:.4f}, which none of {losses.tried:,} combinations of input, target, "
            "smoothing and average gives",
            expected,
            fix="Look for a mask, a reduction or a source that logits() does not have.",
        )
    left_out = fit.step if fit.concerns == LOSS else ""
    mistakes = " ".join(filter(None, (left_out, fit.smoothing, fit.average)))
    if not mistakes:
        return passed()
    says = f"training_loss(): {mistakes}"
    find = variant if fit.is_variant and mistakes == fit.smoothing else differs
    return find(f"{value:.4f}, which that gives", expected, says=says)
