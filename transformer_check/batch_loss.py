"""Checks of ``training_loss``: which input, labels, smoothing and average explain its value.

The model's logits give the losses of all known training steps, correct and wrong. The checks look
for the first loss that equals training_loss() for two batches, and report its mistakes.

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
    words_of_targets,
)
from .findings import Finding, differs, error, passed, variant, waits_for
from .registry import check_of
from .subject import AdapterError, Subject, describe
from .token_ids import INPUT, LOSS, SOURCE, Mistake
from .training_call import Call

LENGTHS = {31: ((7, 5, 4), (6, 3, 4)), 33: ((6, 7, 4), (4, 6, 5))}
"""the lengths of sources and targets, by seed: so that all numbers of tokens are different"""
EQUAL = 2e-5
"""two losses are equal if their relative difference is at most this"""


class Step(NamedTuple):
    """The model's inputs in a training step, and the labels: the tokens that it has to predict."""

    name: str
    """a sentence that says what is wrong in this step; empty for the correct step"""
    source: Tensor
    inputs: Tensor
    """the decoder's input"""
    labels: Tensor
    concerns: str = INPUT
    """where the mistake is: in the source, in the decoder's input or in the loss"""


class Fit(NamedTuple):
    """A step, a smoothing and an average whose loss equals training_loss().

    Each text is a sentence that says what differs from the paper; it is empty if nothing does.
    """

    step: str
    concerns: str
    """where the mistake of the step is, as in :class:`Step`"""
    smoothing: str
    average: str
    is_variant: bool
    """whether the smoothing is the paper's or a common variant, and the softmax is correct"""


class Batch:
    """A batch with sources and targets of several lengths."""

    def __init__(self, subject: Subject, seed: int) -> None:
        c = subject.config
        self.subject = subject
        self.source = subject.words(3, 7, seed=seed)  # [B, S]
        self.target = words_of_targets(subject, 3, 6, seed=seed + 1)  # [B, T]
        for n, (of_source, of_target) in enumerate(zip(*LENGTHS[seed], strict=True)):
            self.source[n, of_source - 1] = c.end
            self.source[n, of_source:] = c.pad
            self.target[n, of_target - 1] = c.end
            self.target[n, of_target:] = c.pad
        self.value = self.call()

    def call(self) -> float:
        """Return the value of training_loss for this batch.

        Raises:
            AdapterError: the value is not one finite number.
        """
        subject = self.subject
        source, target = self.source.clone(), self.target.clone()
        value = subject.call("training_loss", subject.model, source, target)
        subject.model.eval()
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"training_loss returned {describe(value)}"
            raise AdapterError(found, "training_loss", "one number, as a tensor")
        parameters = [p for p in subject.model.parameters() if p.requires_grad]
        gradients = (
            torch.autograd.grad(value.sum(), parameters, allow_unused=True)
            if value.requires_grad
            else ()
        )
        self.has_gradient = any(gradient is not None for gradient in gradients)
        return float(value.detach())

    def steps(self) -> Iterator[Step]:
        """Yield the correct training step, then steps with one mistake each."""
        c = self.subject.config
        source, target = self.source, self.target

        def after(first: int, ids: Tensor) -> Tensor:
            return torch.cat([torch.full_like(ids[:, :1], first), ids[:, :-1]], dim=1)

        right = after(c.start, target)
        after_pad = after(c.pad, target)
        after_end = after(c.end, target)
        left = torch.cat([target[:, 1:], torch.full_like(target[:, :1], c.pad)], dim=1)
        without_ends = target.masked_fill(target == c.end, c.pad)
        repeats = "The decoder is trained to repeat its input: input and labels are both shifted."
        by_two = "The target is shifted by two tokens."
        no_start = "The decoder's input has no start token: the first token is never predicted."
        alone = "The decoder's input is the start token alone: it has no token of the target."
        empty = "The decoder's input is padding alone: it has no token of the target."
        yield Step("", source, right, target)
        for name, inputs, labels in (
            ("The target is not shifted: each token is predicted from itself.", target, target),
            ("The decoder starts with padding instead of start.", after_pad, target),
            ("The decoder starts with the end token instead of start.", after_end, target),
            ("The decoder starts with the last column of the target.", target.roll(1, 1), target),
            (by_two, after(c.start, right), target),
            (by_two, after(c.pad, right), target),
            (by_two, after(c.end, right), target),
            (no_start, target[:, :-1], target[:, 1:]),
            (repeats, right, right),
            (
                "The decoder's input is shifted left: it has the tokens after the label.",
                left,
                target,
            ),
            ("The decoder is trained to predict the token before its input.", target, right),
            ("The decoder's input is reversed.", after(c.start, target.flip(1)), target),
            (alone, torch.full_like(target, c.start), target),
            (empty, torch.full_like(target, c.pad), target),
        ):
            yield Step(name, source, inputs, labels)
        for name, inputs, labels in (
            ("It leaves out the first token of every target.", right, drop(target, c.pad)),
            ("It leaves out the last column of the target.", right[:, :-1], target[:, :-1]),
            ("It leaves out the end tokens.", right, without_ends),
        ):
            yield Step(name, source, inputs, labels, concerns=LOSS)
        swapped = after(c.start, source)
        mixed = "The sources of a batch are mixed: their order is not that of the targets."
        for name, encoder_input, inputs, labels in (
            ("Source and target are swapped.", target, swapped, source),
            ("The model reads the target in place of the source.", target, right, target),
            ("The source is reversed.", source.flip(1), right, target),
            ("The model predicts the source in place of the target.", source, swapped, source),
            (mixed, source.roll(1, 0), right, target),
            (mixed, source.roll(-1, 0), right, target),
        ):
            yield Step(name, encoder_input, inputs, labels, concerns=SOURCE)
        shifted = after(c.start, source)
        yield Step("The source is shifted.", shifted, right, target, concerns=SOURCE)

    def logits(self, step: Step) -> Tensor:
        """Return the logits of a step, shape [B, T, V]."""
        with torch.no_grad():
            logits = self.subject.call("logits", self.subject.model, step.source, step.inputs)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.float()


def drop(target: Tensor, pad: int) -> Tensor:
    """Return a copy of the target whose first column is padding."""
    labels = target.clone()
    labels[:, 0] = pad
    return labels


class Losses:
    """The values of training_loss() for two batches, and the known loss that equals them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.batches = [Batch(subject, seed) for seed in (31, 33)]
        self.tried = 0
        self.fit = self.search()
        self.mistake = self.observe() if self.fit is None else None
        is_finite = all(math.isfinite(batch.value) for batch in self.batches)
        if not is_finite and (self.fit is None or not self.fit.step):
            raise AdapterError("training_loss returned NaN or infinity", "training_loss")

    def observe(self) -> Mistake | None:
        """Return the mistake that a run of training_loss() shows, if its value is unknown."""
        for batch in self.batches:  # the mistake may not change one of them, such as an order
            if math.isfinite(batch.value):
                mistake = Call(self.subject, batch.source, batch.target).name_mistake()
                if mistake is not None:
                    return mistake
        return None

    def search(self) -> Fit | None:
        """Return the first combination whose loss equals training_loss() for both batches.

        Combinations without a mistake come first. The result is None if no loss is equal.
        """
        first, second = self.batches
        for step, same in zip(first.steps(), second.steps(), strict=True):
            for softmax in SOFTMAXES:
                fit = self.search_of_step(step, same, softmax)
                if fit is not None:
                    return fit
        return None

    def search_of_step(self, step: Step, same: Step, softmax: str) -> Fit | None:
        """Return the first smoothing and average with which a step's loss equals training_loss().

        Args:
            step: the step in the first batch
            same: the same step in the second batch
            softmax: a key of ``SOFTMAXES``
        """
        first, second = self.batches
        pad = self.subject.config.pad
        types = self.subject.config.vocabulary
        try:
            raw = [first.logits(step), second.logits(same)]
        except AdapterError:  # the model refuses this input, so no training uses it
            return None
        tables = [SOFTMAXES[softmax](each) for each in raw]
        averages = {**RIGHT, **AVERAGES}
        for smoothing, (epsilon, over) in smoothings(self.subject.config.label_smoothing).items():
            for offset in (0.0, entropy(epsilon, over, types)):
                losses = []
                for table, labels in zip(tables, (step.labels, same.labels), strict=True):
                    each = cross_entropies(table, labels, epsilon, over, pad) - offset
                    losses.append((each, labels.ne(pad)))
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
        """Return the sentence of the factor by which training_loss() is larger than two losses.

        Args:
            values: a loss of the first batch, and of the second

        Returns:
            an empty sentence for equal losses; None if no known factor fits both batches
        """
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
    """Return the losses of a model under check; all checks share this result."""
    return Losses(subject)


@check_of(
    "target-shift",
    "3.1",
    passes="The decoder's input is the target shifted right, and its labels are the target.",
    fails="The decoder's input is not the target shifted right.",
    needs=("training_loss",),
    explains=("training-loss",),
)
def target_shift(subject: Subject) -> Finding:
    """Report a mistake in the decoder's input or in the labels of training_loss()."""
    return finding_of_step(
        losses_of(subject),
        INPUT,
        "the loss of predicting each token from the start token and the tokens before the label",
        "Call the model with (source, start + target[:, :-1]); the labels are target.",
    )


def finding_of_step(losses: Losses, concerns: str, expected: str, fix: str) -> Finding:
    """Return the finding on the decoder's input or on the source of training_loss()."""
    if losses.fit is None:
        mistake = losses.mistake
        if mistake is None or mistake.concerns != concerns:
            return waits_for("training-loss")
        return error(mistake.found, expected, says=mistake.says, fix=fix)
    if losses.fit.concerns != concerns or not losses.fit.step:
        return passed()
    value = losses.batches[0].value
    found = f"training_loss() = {value:.4f}, the value of the loss with this mistake"
    return error(found, expected, says=losses.fit.step, fix=fix)


@check_of(
    "training-source",
    "3.1",
    passes="The encoder reads the source.",
    fails="The encoder does not read the source.",
    needs=("training_loss",),
    explains=("training-loss",),
)
def training_source(subject: Subject) -> Finding:
    """Report a mistake in the source of training_loss()."""
    return finding_of_step(
        losses_of(subject),
        SOURCE,
        "the loss of translating the source into the target",
        "Call the model with (source, start + target[:, :-1]).",
    )


@check_of(
    "training-loss",
    "5.4",
    passes="training_loss() is label-smoothed cross entropy, a sum or a mean over tokens.",
    fails="training_loss() is not a known loss of the batch.",
    needs=("training_loss",),
)
def training_loss(subject: Subject) -> Finding:
    """Report a mistake, or a variant, in the smoothing or the average of training_loss()."""
    losses = losses_of(subject)
    fit = losses.fit
    expected = "label-smoothed cross entropy of target, a sum or a mean over tokens"
    value = losses.batches[0].value
    if subject.output.requires_grad and not losses.batches[0].has_gradient:
        return error(
            "a number without gradient",
            "a loss with gradients of the model's parameters",
            says="training_loss() has no gradient: the model is not trained.",
            fix="Remove detach(), item() and no_grad() from the computation of the loss.",
        )
    if fit is None and losses.mistake is not None:
        mistake = losses.mistake
        return differs(
            mistake.found or f"training_loss() = {value:.4f}", expected, says=mistake.says
        )
    if fit is None:
        return differs(
            f"training_loss() = {value:.4f}; each of {losses.tried:,} combinations of input, "
            "labels, smoothing and average has another value",
            expected,
            fix="Find where training_loss() differs from the cross entropy of logits(): in its "
            "mask, its source, its reduction or a factor.",
        )
    left_out = fit.step if fit.concerns == LOSS else ""
    mistakes = " ".join(filter(None, (left_out, fit.smoothing, fit.average)))
    if not mistakes:
        return passed()
    says = f"training_loss(): {mistakes}"
    find = variant if fit.is_variant and mistakes == fit.smoothing else differs
    return find(f"training_loss() = {value:.4f}, the value of this loss", expected, says=says)
