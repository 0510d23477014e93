"""Checks of ``loss`` (5.4).

Shape letters: B batch, T target, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .cross_entropies import words_of_targets
from .findings import DIFFERENCE, VARIANT, Finding, differs, error, not_run, passed, waits_for
from .loss_gradient import (
    FITS,
    MISPLACED,
    NORMALISER,
    has_normaliser,
    name_distribution,
    name_form,
    name_tokens,
    name_weights,
)
from .registry import check_of
from .subject import AdapterError, Subject, describe

MIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "The softmax of the loss is over the positions instead of the vocabulary.": (
        lambda logits: logits.log_softmax(1)
    ),
    "The softmax of the loss is over the sentences instead of the vocabulary.": (
        lambda logits: logits.log_softmax(0)
    ),
}
"""wrong log-probabilities of logits [B, T, V], with which padding changes the loss of tokens"""


class LossOfLogits:
    """The gradient of ``loss``: a multiple of probabilities minus the target's distribution.

    That holds whatever the loss is divided by, and whatever constant it adds. Two sets of logits
    for one target give the multiple of each word, and then the distribution.
    """

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.target = words_of_targets(subject, 2, 5, seed=5)
        self.target[0, -1] = c.end
        self.target[1, 2:] = torch.tensor([c.end, c.pad, c.pad])
        self.real = self.target.ne(c.pad)
        numbers = torch.Generator().manual_seed(6)
        first = torch.randn(2, 5, c.vocabulary, generator=numbers)
        second = torch.randn(2, 5, c.vocabulary, generator=numbers)
        gradient = self.gradient(subject, first)
        other = self.gradient(subject, second)
        again = self.gradient(subject, first)
        self.is_random = float((again - gradient).norm()) > 1e-4 * float(gradient.norm())
        self.of_pads = float(gradient[~self.real].abs().max() / gradient.abs().max())
        p = first.softmax(-1)[self.real]  # [N, V]
        p_other = second.softmax(-1)[self.real]
        change = gradient[self.real] - other[self.real]
        by = p - p_other
        multiples = (change * by).sum(-1) / (by * by).sum(-1)  # [N]
        self.multiples = multiples
        self.left_out = int((multiples.abs() < 1e-6 * multiples.abs().max()).sum())
        self.multiple = float(multiples.mean())
        self.is_constant = float(change.norm()) < 1e-6 * float(gradient.norm())
        """whether the gradient does not depend on the logits"""
        misfit = float((change - multiples[:, None] * by).norm() / change.norm())
        self.misfit = math.inf if self.is_constant else misfit
        self.distribution = p - gradient[self.real] / multiples[:, None]  # [N, V]
        sums = self.distribution.sum(-1)
        is_one = float((sums - 1).abs().max()) < 1e-3
        self.is_distribution = is_one and float(self.distribution.min()) > -1e-4
        self.is_mixed = False
        """whether a token's loss depends on logits of other positions"""
        self.mistake = self.name_of_mistake(subject, first, gradient)

    def name_of_mistake(self, subject: Subject, logits: Tensor, gradient: Tensor) -> str:
        """Return the sentence of the wrong loss that has this gradient, or nothing."""
        if self.is_random:
            return "The loss is random: it has another gradient at each call."
        labels = self.target[self.real]
        rows = (logits[self.real], gradient[self.real])
        if has_normaliser(*rows):
            return NORMALISER
        misplaced = self.name_misplaced(subject, logits, gradient)
        if self.misfit > FITS and not self.left_out:
            mistake = name_form(*rows, labels, subject.config.pad)
            if mistake:
                return mistake
        if self.misfit <= FITS or self.left_out:
            self.is_mixed = bool(misplaced)
            return misplaced
        mistake = ""
        seen = gradient[self.real].flatten()
        best = 0.95
        for says, function in MIXED.items():
            numbers = logits.clone().requires_grad_()
            terms = function(numbers).gather(-1, self.target[..., None])[self.real]
            expected = torch.autograd.grad(-terms.sum(), numbers)[0][self.real].flatten()
            likeness = float(torch.cosine_similarity(seen, expected, dim=0))
            if likeness > best:
                best = likeness
                mistake = says
        mistake = mistake or misplaced
        self.is_mixed = bool(mistake)
        return mistake

    def name_misplaced(self, subject: Subject, logits: Tensor, gradient: Tensor) -> str:
        """Return the sentence for labels that are compared with another position's logits."""
        target = self.target
        self.target = target.clone()
        self.target[0, 1] = target[0, 2]
        change = (self.gradient(subject, logits) - gradient).abs().amax(-1)  # [B, T]
        self.target = target
        position = int(change.argmax())
        others = change.clone()
        others[0, 1] = 0.0
        if position == 1 and float(others.max()) < 0.1 * float(change.max()):
            return ""
        if int(change.gt(1e-6 * change.max()).sum()) == 1 and position in (0, 2):
            side = "before" if position < 1 else "after"
            return f"The loss compares each label with the logits of the position {side} it."
        return MISPLACED

    def gradient(self, subject: Subject, logits: Tensor) -> Tensor:
        """Return the gradient of the loss with respect to the logits [B, T, V].

        Raises:
            AdapterError: the loss is not one number, or its gradient is zero or not finite.
        """
        logits = logits.clone().requires_grad_()
        loss = subject.call("loss", logits, self.target)
        if isinstance(loss, Tensor) and loss.numel() == 1 and not loss.requires_grad:
            raise AdapterError(
                "loss() has no gradient: expected a differentiable function of the logits, without "
                "argmax(), detach(), item() or no_grad()",
                "loss",
            )
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise AdapterError(
                f"loss() returned {describe(loss)}: expected one number, as a tensor with a "
                "gradient",
                "loss",
            )
        gradient = torch.autograd.grad(loss.sum(), logits)[0]
        if not gradient.isfinite().all() or not gradient.abs().max() > 0:
            raise AdapterError(
                "the gradient of loss() is zero or not finite: expected finite numbers that are "
                "not all zero",
                "loss",
            )
        return gradient


@check_of(
    "label-smoothing",
    "5.4",
    passes="The loss is cross entropy with label smoothing ε_ls.",
    fails="The loss is not cross entropy with label smoothing ε_ls.",
    needs=("loss",),
    explains=("training-loss",),
)
def label_smoothing(subject: Subject) -> Finding:
    """Compare the target distribution: 1 - ε on the target, ε / (V - 1) on each other token."""
    loss = LossOfLogits(subject)
    epsilon = subject.config.label_smoothing
    if loss.left_out and not loss.mistake:
        return waits_for("loss-average")
    if loss.mistake or loss.misfit > FITS:
        return differs(
            "a gradient that is not a multiple of softmax minus the smoothed labels",
            "the gradient of a cross entropy",
            says=loss.mistake or "The loss is not a cross entropy of the softmax.",
            explains=("loss-padding", "loss-average") if loss.is_mixed else (),
        )
    types = subject.config.vocabulary
    classes = loss.target[loss.real].unsqueeze(-1)
    distribution = loss.distribution

    def fits(on_target: float, on_others: float, on_pad: float) -> bool:
        expected = torch.full_like(distribution, on_others)
        expected[:, subject.config.pad] = on_pad
        return bool((distribution - expected.scatter(1, classes, on_target)).abs().max() < 1e-4)

    per_class = epsilon / (types - 1)
    if fits(1 - epsilon, per_class, per_class):
        return passed()
    share = epsilon / types
    usual = {
        "Label smoothing spreads ε over all V classes.": (1 - epsilon + share, share, share),
        "Label smoothing gives padding no probability.": (1 - epsilon, epsilon / (types - 2), 0.0),
    }
    near = [says for says, shares in usual.items() if epsilon and fits(*shares)]
    says = near[0] if near else ""
    if fits(1.0, 0.0, 0.0):
        says = "The loss has no label smoothing."
    on_target = float(distribution.gather(1, classes).mean())
    on_others = float(
        distribution.scatter(1, classes, 0.0).sum() / (len(distribution) * (types - 1))
    )
    for scale in (loss.multiple, loss.multiple * len(classes)):
        is_usual = min(abs(on_target * scale - 1), abs(on_target * scale - 1 + epsilon)) < 1e-4
        if not says and is_usual and abs(scale - 1) > 1e-3:
            return differs(
                f"target probability {on_target * scale:.4f}, {on_others * scale:.5f} for each "
                "other token",
                f"{1 - epsilon:.4f} and {per_class:.5f}",
                says=f"The smoothed labels sum to {scale:.3g} instead of 1.",
                explains=("loss-average", "loss-padding"),
            )
    says = says or name_distribution(on_target, on_others, types, epsilon)
    return Finding(
        VARIANT if near else DIFFERENCE,
        f"target probability {on_target:.4f}, {on_others:.5f} for each other token",
        f"{1 - epsilon:.4f} and {per_class:.5f}",
        says=says,
        fix=""
        if near
        else "Give the right token 1 - ε_ls, and each other token an equal share of ε_ls.",
    )


@check_of(
    "loss-padding",
    "5.4",
    passes="The loss ignores padding.",
    fails="The loss includes padding.",
    needs=("loss",),
    explains=("loss-average", "training-loss"),
)
def loss_without_padding(subject: Subject) -> Finding:
    """Look for a gradient at padding, and for padding in the divisor of a mean."""
    loss = LossOfLogits(subject)
    real = int(loss.real.sum())
    places = loss.target.numel()
    if loss.of_pads > 1e-5:
        return error(
            f"the gradient at padding is up to {loss.of_pads:.0%} of the largest one at tokens",
            "0",
            fix="Pass ignore_index=pad to the loss.",
        )
    is_known = loss.misfit < FITS and not loss.mistake and not loss.left_out
    if is_known and loss.is_distribution and abs(loss.multiple * places - 1) < 1e-3:
        return differs(
            f"a mean over {places} positions, padding included",
            f"a sum, or a mean over {real} tokens",
            says="The loss is divided by the number of positions, padding included.",
        )
    return passed()


@check_of(
    "loss-average",
    "5.4",
    passes="The loss is a sum or a mean over tokens.",
    fails="The loss is neither a sum nor a mean over tokens.",
    needs=("loss",),
    explains=("training-loss",),
)
def loss_over_tokens(subject: Subject) -> Finding:
    """Compare the weights of all tokens in the loss, ends of sentences included."""
    loss = LossOfLogits(subject)
    if loss.mistake or loss.misfit > FITS:
        return not_run("the loss is no cross entropy of the softmax")
    sentences, length = loss.target.shape
    tokens = int(loss.real.sum())
    expected = f"a sum, or a mean over {tokens} tokens"
    weights = torch.zeros(loss.target.shape).masked_scatter(loss.real, loss.multiples)
    if loss.left_out:
        left_out = (weights.abs() < 1e-6 * weights.abs().max()) & loss.real
        return differs(
            f"{loss.left_out} of {tokens} tokens without a gradient",
            expected,
            says=f"The loss leaves out {name_tokens(left_out, loss.target, subject.config)}.",
        )
    says = name_weights(weights, loss.target, subject.config)
    if says:
        low, high = (loss.multiples / loss.multiple).aminmax()
        return differs(
            f"weights of tokens from {float(low):.3g} to {float(high):.3g} of their mean",
            expected,
            says=says,
        )
    if not loss.is_distribution:
        return waits_for("label-smoothing")
    if abs(loss.multiple * sentences * length - 1) < 1e-3:
        return waits_for("loss-padding")
    return look_at_divisor(1 / loss.multiple, expected, tokens, sentences, length)


def look_at_divisor(by: float, expected: str, tokens: int, sentences: int, length: int) -> Finding:
    """Return the finding on the divisor of a sum, which may be 1 or the number of tokens."""
    divisors = {
        1: "",
        tokens: "",
        sentences * length: f"{sentences * length} positions, padding included",
        sentences: f"{sentences} sentences",
        length: f"the {length} tokens of the longest sentence",
    }
    for divisor, what in divisors.items():
        if abs(by / divisor - 1) < 1e-3:
            return differs(f"a sum divided by {what}", expected) if what else passed()
    factors = {1 / math.log(2): ", in bits (log 2)", 1 / math.log(10): ", a logarithm to base 10"}
    factors[float(sentences)] = ", multiplied by the number of sentences"
    times = tokens / by
    name = next((name for factor, name in factors.items() if abs(times / factor - 1) < 1e-3), "")
    return differs(
        f"a sum divided by {by:.4g}",
        expected,
        says=f"The loss is {times:.4g} times the mean over tokens{name}.",
    )
