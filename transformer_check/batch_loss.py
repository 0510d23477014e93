"""Checks of ``training_loss``: which input, labels, smoothing and average explain its value.

The model's logits give the losses of all known training steps, correct and wrong. The checks look
for the first loss that equals training_loss() for two batches, and report its mistakes.

Shape letters: B batch, S source, T target, V vocabulary.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch

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
from .decoding import without_mask
from .findings import Finding, differs, error, passed, variant, waits_for
from .registry import check_of
from .subject import AdapterError, Subject
from .token_ids import INPUT, LOSS, SOURCE, Batch, Mistake, Step
from .training_call import Call

EQUAL = 2e-5
"""two losses are equal if their relative difference is at most this"""


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
        return self.observe_runs()

    def observe_runs(self) -> Mistake | None:
        """Return the mistake of a loss in few bits, or of a model without one of its masks."""
        values = torch.tensor([batch.value for batch in self.batches])
        for kind in (torch.bfloat16, torch.float16):
            if torch.equal(values.to(kind).float(), values):
                name = str(kind).removeprefix("torch.")
                return Mistake(f"training_loss() is computed in {name}.", LOSS)
        alone = [batch.first_sentence() for batch in self.batches]  # without padding to mask
        shapes = {(batch.target.size(1), batch.target.size(1)) for batch in alone}
        says = "Training has no causal mask: the decoder reads the labels."
        if self.fits_without_mask(alone, shapes):
            return Mistake(says, LOSS)
        s, t = self.batches[0].source.size(1), self.batches[0].target.size(1)
        masks = {
            "Training does not mask the source's padding.": {(s, s), (t, s)},
            "Training does not mask the source's padding in the encoder.": {(s, s)},
            "Training does not mask the source's padding in cross-attention.": {(t, s)},
        }
        for says, shapes in masks.items():
            if self.fits_without_mask(self.batches, shapes):
                return Mistake(says, LOSS)
        return None

    def fits_without_mask(self, batches: list[Batch], shapes: set[tuple[int, int]]) -> bool:
        """Return whether losses of batches are those of a model without masks of these shapes."""
        own = self.batches
        self.batches = batches
        step, same = (next(batch.steps()) for batch in batches)
        try:
            with without_mask(self.subject, shapes):
                return self.search_of_step(step, same, "") is not None
        finally:
            self.batches = own

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
    untrained = parameters_without_gradient(losses)
    if untrained:
        more = f" and {len(untrained) - 1} more" if len(untrained) > 1 else ""
        return differs(
            f"training_loss() has no gradient of {untrained[0]}{more}, and logits() has",
            "gradients of the same parameters",
            says=f"Training gives no gradient to {untrained[0]}{more}: they are not trained.",
            fix="Look for no_grad() and detach() around a part of the model in training.",
            modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in untrained)),
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


def parameters_without_gradient(losses: Losses) -> list[str]:
    """Return the names of parameters with a gradient of logits(), and none of training_loss()."""
    subject = losses.subject
    batch = losses.batches[0]
    named = {name: p for name, p in subject.model.named_parameters() if p.requires_grad}
    step = next(batch.steps())
    seen = []
    for call in (
        lambda: subject.logits(step.source, step.inputs).sum(),
        lambda: subject.call("training_loss", subject.model, batch.source, batch.target).sum(),
    ):
        total = call()
        subject.model.eval()
        if not total.requires_grad:
            return []
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        seen.append([gradient is not None for gradient in gradients])
    return [name for name, has, lost in zip(named, *seen, strict=True) if has and not lost]
