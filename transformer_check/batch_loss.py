"""Checks of ``training_loss``: which input, labels, smoothing and average give its value.

The losses of all known training steps, correct and wrong, are computed from the model's logits. The
check reports the one with the fewest mistakes that equals training_loss() for two batches.

Shape letters: B batch, S source, T target, V vocabulary.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .cross_entropies import (
    AVERAGES,
    RIGHT,
    SOFTMAXES,
    USUAL,
    cross_entropies,
    entropy,
    factors,
    smoothings,
)
from .findings import Finding, differs, error, passed, variant, waits_for
from .registry import check_of
from .subject import AdapterError, Subject, describe

SOURCE, INPUT, LOSS = "source", "input", "loss"
EQUAL = 2e-5
"""relative difference of equal losses"""


class Step(NamedTuple):
    """The inputs of the model in a training step, and the tokens that it has to predict."""

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
        """Return the value of training_loss for this batch.

        Raises:
            AdapterError: it is not one finite number.
        """
        subject = self.subject
        with torch.no_grad():
            source, target = self.source.clone(), self.target.clone()
            value = subject.call("training_loss", subject.model, source, target)
        subject.model.eval()
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"training_loss returned {describe(value)}"
            raise AdapterError(found, "training_loss", "one number, as a tensor")
        if not value.isfinite().all():
            raise AdapterError("training_loss returned NaN or infinity", "training_loss")
        return float(value)

    def steps(self) -> Iterator[Step]:
        """Yield inputs and labels of training steps: the correct step first, then mistakes."""
        c = self.subject.config
        source, target = self.source, self.target

        def after(first: int, ids: Tensor) -> Tensor:
            return torch.cat([torch.full_like(ids[:, :1], first), ids[:, :-1]], dim=1)

        right = after(c.start, target)
        after_pad = after(c.pad, target)
        after_end = after(c.end, target)
        left = torch.cat([target[:, 1:], torch.full_like(target[:, :1], c.pad)], dim=1)
        without_ends = target.masked_fill(target == c.end, c.pad)
        repeats = "The decoder repeats its own input: input and labels are both shifted."
        by_two = "The target is shifted by two tokens."
        no_start = "The target has no start: its first token is never predicted."
        alone = "The decoder's input is the start token alone: it never sees the target."
        empty = "The decoder's input is padding alone: it never sees the target."
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
            ("The decoder is trained to predict the token before its input.", target, right),
            ("The decoder's input is reversed.", after(c.start, target.flip(1)), target),
            (alone, torch.full_like(target, c.start), target),
            (empty, torch.full_like(target, c.pad), target),
        ):
            yield Step(name, source, inputs, words)
        for name, inputs, words in (
            ("It leaves out the first token of every target.", right, drop(target, c.pad)),
            ("It leaves out the last column of the target.", right[:, :-1], target[:, :-1]),
            ("It leaves out the end tokens.", right, without_ends),
        ):
            yield Step(name, source, inputs, words, concerns=LOSS)
        swapped = after(c.start, source)
        for name, encoder_input, inputs, words in (
            ("Source and target are swapped.", target, swapped, source),
            ("The model reads the target in place of the source.", target, right, target),
            ("The source is reversed.", source.flip(1), right, target),
            ("The model predicts the source in place of the target.", source, swapped, source),
            ("The sources of a batch are mixed.", source.roll(1, 0), right, target),
            ("The sources of a batch are mixed.", source.roll(-1, 0), right, target),
        ):
            yield Step(name, encoder_input, inputs, words, concerns=SOURCE)
        shifted = after(c.start, source)
        yield Step("The source is shifted.", shifted, right, target, concerns=SOURCE)

    def logits(self, step: Step) -> Tensor:
        """Return the logits of a step, shape [B, T, V]."""
        with torch.no_grad():
            logits = self.subject.call("logits", self.subject.model, step.source, step.inputs)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.float()


def drop(target: Tensor, pad: int) -> Tensor:
    """Return the tokens to predict, with padding in place of the first column."""
    words = target.clone()
    words[:, 0] = pad
    return words


class Losses:
    """The values of training_loss for two batches, and the combination that gives them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.batches = [Batch(subject, seed) for seed in (31, 33)]
        self.tried = 0
        self.fit = self.search()

    def search(self) -> Fit | None:
        """Return the combination with the fewest mistakes that gives both values, or None."""
        first, second = self.batches
        pairs = zip(first.steps(), second.steps(), strict=True)
        for step, same in pairs:
            for softmax in SOFTMAXES:
                fit = self.search_of_step(step, same, softmax)
                if fit is not None:
                    return fit
        return None

    def search_of_step(self, step: Step, same: Step, softmax: str) -> Fit | None:
        """Return the smoothing and average with which a step gives both values, or None."""
        first, second = self.batches
        pad = self.subject.config.pad
        types = self.subject.config.vocabulary
        try:
            raw = [first.logits(step), second.logits(same)]
        except AdapterError:  # the model refuses such an input, so it is not trained with it
            return None
        tables = [SOFTMAXES[softmax](each) for each in raw]
        averages = {**RIGHT, **AVERAGES}
        for smoothing, (epsilon, over) in smoothings(self.subject.config.label_smoothing).items():
            for offset in (0.0, entropy(epsilon, over, types)):
                losses = []
                for table, words in zip(tables, (step.words, same.words), strict=True):
                    each = cross_entropies(table, words, epsilon, over, pad) - offset
                    losses.append((each, words.ne(pad)))
                for name, average in averages.items():
                    values = [float(average(*loss)) for loss in losses]
                    factor = self.factor_of(values)
                    if factor is None:
                        continue
                    of_average = " ".join(filter(None, ("" if name == "sum" else name, factor)))
                    sentences = " ".join(filter(None, (softmax, smoothing)))
                    usual = smoothing in USUAL and not softmax
                    return Fit(step.name, step.concerns, sentences, of_average, usual)
                if not offset and not epsilon:
                    break
        return None

    def factor_of(self, values: list[float]) -> str | None:
        """Return the sentence for the factor from losses to training_loss, or None without one."""
        for says, factor in factors(self.subject.config.vocabulary).items():
            self.tried += 1
            pairs = zip(values, self.batches, strict=True)
            if all(is_near(factor * value, batch.value) for value, batch in pairs):
                return says
        return None


def is_near(value: float, expected: float) -> bool:
    """Return whether two losses are equal up to rounding; NaN is equal to NaN."""
    if math.isnan(value) or math.isnan(expected):
        return math.isnan(value) and math.isnan(expected)
    return abs(value - expected) <= EQUAL * abs(expected)


@lru_cache(maxsize=1)
def losses_of(subject: Subject) -> Losses:
    """Return the losses of a subject, computed once for all checks."""
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
    """Find the decoder's input and the labels that give the value of training_loss."""
    losses = losses_of(subject)
    if losses.fit is None:
        return waits_for("training-loss")
    if losses.fit.concerns != INPUT or not losses.fit.step:
        return passed()
    return error(
        f"training_loss() = {losses.batches[0].value:.4f}, which is the value with this mistake",
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
        f"training_loss() = {losses.batches[0].value:.4f}, which is the value with this mistake",
        "the loss of translating the source into the target",
        says=losses.fit.step,
        fix="Call the model with (source, start + target[:, :-1]).",
    )


@check_of(
    "training-loss",
    "5.4",
    passes="training_loss() is label-smoothed cross entropy, a sum or a mean over tokens.",
    fails="training_loss() is not a known loss of the batch.",
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
    return find(f"{value:.4f}, which is the value with this mistake", expected, says=says)
