"""Checks of ``loss``, ``training_loss``, ``learning_rate`` and ``optimizer`` (5.3, 5.4, 3.1).

Shape letters: B batch, S source, T target, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from .card import DIFFERS, ERROR, ON_PURPOSE, Result, check_of, not_checked
from .subject import AdapterError, Subject, shown

# ---- 5.3 Optimizer -------------------------------------------------------------------------------


def equation_3(step: int) -> float:
    """Of the base model; written again, so that a mistake in this project's own is seen, too."""
    return float(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


@check_of("5.3", "the learning rate is equation 3", "learning_rate")
def rate(subject: Subject) -> Result:
    """Of the base model: at the first step, around the peak, and far behind it."""
    seen = {}
    for step in (1, 2000, 3999, 4000, 4001, 100_000):
        value = subject.call("learning_rate", step)
        if not isinstance(value, (int, float)):
            raise AdapterError(
                f"learning_rate({step}) returned {shown(value)}: expected a number", "learning_rate"
            )
        seen[step] = float(value)
    expected = {step: equation_3(step) for step in seen}
    wrong = [n for n in seen if not abs(seen[n] / expected[n] - 1) <= 1e-6]  # NaN is wrong
    if not wrong:
        return Result()
    factors = {n: seen[n] / expected[n] for n in seen}
    n = wrong[0]
    meaning = f"Steps with another rate: {', '.join(map(str, wrong))}."
    if max(factors.values()) - min(factors.values()) < 1e-6:
        meaning = f"It is {factors[n]:.4g} times the paper's at each step."
    elif all(abs(seen[n] / equation_3(n - 1) - 1) < 1e-6 for n in wrong if n > 1):
        meaning = "Each is the rate of the step before."
    return Result(
        DIFFERS,
        f"{expected[n]:.4g} at step {n:,} (d_model 512, warm-up 4,000; steps count from 1)",
        f"{seen[n]:.4g}",
        meaning,
    )


def optimizer_of(subject: Subject) -> torch.optim.Optimizer:
    """What ``optimizer`` gives for the subject's model."""
    optimizer = subject.call("optimizer", subject.model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise AdapterError(
            f"optimizer returned {shown(optimizer)}: expected a torch.optim.Optimizer", "optimizer"
        )
    return optimizer


@check_of("5.3", "Adam has β = (0.9, 0.98) and ε = 1e-9", "optimizer")
def adam(subject: Subject) -> Result:
    """As each of the optimizer's groups says."""
    optimizer = optimizer_of(subject)
    expected: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0}
    name = type(optimizer).__name__
    described = ", ".join(f"{key} {value}" for key, value in expected.items())
    for number, group in enumerate(optimizer.param_groups, start=1):
        seen = {key: group.get(key, "nothing") for key in expected}
        if "betas" in group:
            seen["betas"] = tuple(group["betas"])
        if seen != expected or "Adam" not in name:
            where = f" in group {number}" if len(optimizer.param_groups) > 1 else ""
            return Result(
                DIFFERS,
                f"Adam, {described}",
                f"{name}, {', '.join(f'{key} {value}' for key, value in seen.items())}{where}",
                "β2 says over how many steps variances are averaged: 50 with 0.98, 1,000 with "
                "0.999.",
            )
    return Result()


@check_of("5.3", "the optimizer has the model's parameters", "optimizer")
def optimized_parameters(subject: Subject) -> Result:
    """All that need a gradient, and no others."""
    optimizer = optimizer_of(subject)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): n for n, p in subject.model.named_parameters() if p.requires_grad}
    missing = [name for key, name in named.items() if key not in held]
    own = {id(p) for p in subject.model.parameters()}
    foreign = len(held - own)
    if not missing and not foreign:
        return Result()
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    parts = [f"{foreign} tensors that are not the model's"] if foreign else []
    parts += [f"not {', '.join(missing[:3])}{more}"] if missing else []
    return Result(
        DIFFERS,
        f"all {len(named)} parameters of the model",
        "; ".join(parts),
        "What the optimizer does not hold is never trained.",
    )


# ---- 5.4 Label smoothing, 3.1 The target shifted right -------------------------------------------

PADDING = "padding is left out of the loss"
OVER_WORDS = "the loss is a sum or a mean over words"
UNEVEN = "A word weighs more in a batch of short sentences, or in a short sentence."


class LossOfLogits:
    """The gradient of ``loss``: a multiple of probabilities minus the target's distribution.

    That holds whatever the loss is divided by, and whatever constant it adds. Two sets of logits
    for one target give the multiple of each word, and then the distribution.
    """

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.target = subject.words(2, 5, seed=5)
        self.target[0, -1] = c.end
        self.target[1, 2:] = torch.tensor([c.end, c.pad, c.pad])
        self.real = self.target.ne(c.pad)
        numbers = torch.Generator().manual_seed(6)
        first = torch.randn(2, 5, c.vocabulary, generator=numbers)
        second = torch.randn(2, 5, c.vocabulary, generator=numbers)
        gradient = self.gradient(subject, first)
        other = self.gradient(subject, second)
        self.of_pads = float(gradient[~self.real].abs().max() / gradient.abs().max())
        p = first.softmax(-1)[self.real]  # [N, V]
        p_other = second.softmax(-1)[self.real]
        change = gradient[self.real] - other[self.real]
        by = p - p_other
        multiples = (change * by).sum(-1) / (by * by).sum(-1)  # [N]
        self.multiples = multiples
        self.left_out = int((multiples.abs() < 1e-6 * multiples.abs().max()).sum())
        self.multiple = float(multiples.mean())
        self.misfit = float((change - multiples[:, None] * by).norm() / change.norm())
        self.distribution = p - gradient[self.real] / multiples[:, None]  # [N, V]

    def gradient(self, subject: Subject, logits: Tensor) -> Tensor:
        """Of the loss, with respect to the logits [B, T, V]."""
        logits = logits.clone().requires_grad_()
        loss = subject.call("loss", logits, self.target)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise AdapterError(
                f"loss returned {shown(loss)}: expected one number, as a tensor with a gradient",
                "loss",
            )
        gradient = torch.autograd.grad(loss.sum(), logits)[0]
        if not gradient.isfinite().all() or not gradient.abs().max() > 0:
            raise AdapterError(
                "loss has a gradient that is zero or not finite: expected one", "loss"
            )
        return gradient


@check_of("5.4", "the loss is label-smoothed cross entropy", "loss")
def smoothed(subject: Subject) -> Result:
    """1 - ε on the right class, ε / (V - 1) on each other."""
    loss = LossOfLogits(subject)
    epsilon = subject.config.label_smoothing
    if loss.left_out:
        return not_checked(f"see '{OVER_WORDS}'")
    if loss.misfit > 1e-3:
        return Result(
            DIFFERS,
            "a cross entropy of the softmax",
            "another function of the logits",
            "Its gradient is no multiple of probabilities minus a distribution.",
        )
    types = subject.config.vocabulary
    classes = loss.target[loss.real].unsqueeze(-1)
    distribution = loss.distribution

    def fits(on_right: float, on_others: float, on_pad: float) -> bool:
        expected = torch.full_like(distribution, on_others)
        expected[:, subject.config.pad] = on_pad
        return bool((distribution - expected.scatter(1, classes, on_right)).abs().max() < 1e-4)

    per_class = epsilon / (types - 1)
    if fits(1 - epsilon, per_class, per_class):
        return Result()
    usual = {
        "ε is shared with the right class": (
            1 - epsilon + epsilon / types,
            epsilon / types,
            epsilon / types,
        ),
        "padding has no share": (1 - epsilon, epsilon / (types - 2), 0.0),
    }
    near = [note for note, shares in usual.items() if epsilon and fits(*shares)]
    on_target = float(distribution.gather(1, classes).mean())
    on_each_other = float(
        distribution.scatter(1, classes, 0.0).sum() / (len(distribution) * (types - 1))
    )
    return Result(
        ON_PURPOSE if near else DIFFERS,
        f"{1 - epsilon:.4f} on the right class, {epsilon / (types - 1):.5f} on each other",
        f"{on_target:.4f} and {on_each_other:.5f}",
        f"{near[0]}: a difference of about ε / V."
        if near
        else "Labels are smoothed otherwise, or not at all.",
    )


@check_of("5.4", PADDING, "loss")
def loss_without_padding(subject: Subject) -> Result:
    """It has no gradient, and no part in what a mean is divided by."""
    loss = LossOfLogits(subject)
    real = int(loss.real.sum())
    places = loss.target.numel()
    if loss.of_pads > 1e-5:
        return Result(
            ERROR,
            "no gradient at padding",
            f"up to {loss.of_pads:.0%} of the greatest elsewhere",
            "Pads are learned as if they were words, and flatter the loss.",
        )
    if loss.misfit < 1e-3 and abs(loss.multiple * places - 1) < 1e-3 and not loss.left_out:
        return Result(
            DIFFERS,
            f"a sum, or a mean over {real} words",
            f"a mean over {places} places, pads included",
            "The loss and its gradient depend on how much padding a batch has.",
        )
    return Result()


@check_of("5.4", OVER_WORDS, "loss")
def loss_over_words(subject: Subject) -> Result:
    """Each word and each end has the same part in it, whatever sentence it is of."""
    loss = LossOfLogits(subject)
    if loss.misfit > 1e-3:
        return not_checked("the loss is no cross entropy of the softmax")
    sentences, length = loss.target.shape
    words = int(loss.real.sum())
    expected = f"a sum, or a mean over {words} words"
    if loss.left_out:
        seen = f"{loss.left_out} of {words} without a gradient"
        return Result(DIFFERS, expected, seen, "Likely the ends of sentences are left out.")
    if float((loss.multiples / loss.multiple - 1).abs().max()) > 1e-3:
        seen = "words of a short sentence that weigh more than those of a long one"
        return Result(DIFFERS, expected, seen, f"{UNEVEN} Likely it is a mean of means.")
    if abs(loss.multiple * sentences * length - 1) < 1e-3:
        return not_checked(f"see '{PADDING}'")
    return divided(1 / loss.multiple, expected, words, sentences, length)


def divided(by: float, expected: str, words: int, sentences: int, length: int) -> Result:
    """As in the paper if a sum is divided by one or the words."""
    divisors = {
        1: "",
        words: "",
        sentences * length: f"{sentences * length} places, pads included",
        sentences: f"{sentences} sentences",
        length: f"the {length} words of the longest sentence",
    }
    for divisor, what in divisors.items():
        if abs(by / divisor - 1) < 1e-3:
            if not what:
                return Result()
            return Result(DIFFERS, expected, f"a sum divided by {what}", UNEVEN)
    return Result(DIFFERS, expected, f"a sum divided by {by:.4g}", "The loss is scaled.")


class TrainingLoss:
    """``training_loss`` of a batch, and what ``loss`` gives for its logits, shifted and not."""

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        target = subject.words(2, 5, seed=7)
        target[:, -1] = c.end
        target[1, 3:] = torch.tensor([c.end, c.pad])
        self.target = target
        self.words = int(target.ne(c.pad).sum())
        previous = torch.cat([torch.full((2, 1), c.start), target[:, :-1]], dim=1)
        with torch.no_grad():
            seen = subject.call("training_loss", subject.model, subject.source, target)
            if not isinstance(seen, Tensor) or seen.numel() != 1:
                raise AdapterError(
                    f"training_loss returned {shown(seen)}: expected one number, as a tensor",
                    "training_loss",
                )
            if not seen.isfinite().all():
                raise AdapterError("training_loss returned NaN or infinity", "training_loss")
            self.seen = float(seen)
            self.shifted = self.expected(subject, previous, target)
            self.unshifted = {
                "the target itself": self.expected(subject, target, target),
                "words that are to be repeated": self.expected(subject, previous, previous),
            }

    def expected(self, subject: Subject, decoder_input: Tensor, words: Tensor) -> float:
        """The loss of what the decoder is given and what it is to predict."""
        return float(subject.call("loss", subject.logits(subject.source, decoder_input), words))

    def ratio(self) -> float | None:
        """By what ``loss`` of the target shifted right is multiplied, if by nothing else."""
        ratio = self.seen / self.shifted if self.shifted else 1.0
        sentences, length = self.target.shape
        sizes = {1, self.words, sentences, length, sentences * length}
        usual = {a / b for a in sizes for b in sizes}
        near = [each for each in usual if abs(ratio / each - 1) < 1e-4]
        return near[0] if near else None


@check_of("3.1", "the decoder's input is the target shifted right", "loss", "training_loss")
def shifted(subject: Subject) -> Result:
    """``training_loss`` is ``loss`` of the logits of start and target against the target."""
    loss = TrainingLoss(subject)
    seen = [n for n, value in loss.unshifted.items() if abs(value - loss.seen) < 1e-3 * abs(value)]
    if abs(loss.shifted - loss.seen) < 1e-3 * abs(loss.shifted):
        return Result()
    if not seen and loss.ratio() is not None:
        return Result()
    if not seen:
        return not_checked("training_loss is none that loss gives for this batch, shifted or not")
    return Result(
        ERROR,
        f"a loss of {loss.shifted:.4f}, each word predicted from those before it",
        f"{loss.seen:.4f}, of {seen[0]}",
        "The word to predict is in the input: the loss falls to nothing, and nothing is learned.",
    )


@check_of("5.4", "training_loss is a sum or a mean over words", "loss", "training_loss")
def training_loss_over_words(subject: Subject) -> Result:
    """By what ``loss`` is multiplied in it, and what that is divided by itself."""
    own = LossOfLogits(subject)
    training = TrainingLoss(subject)
    ratio = training.ratio()
    if loss_over_words(subject).expected:
        return not_checked(f"see '{OVER_WORDS}'")
    if ratio is None:
        return not_checked("training_loss is no multiple of what loss gives for this batch")
    is_sum = abs(own.multiple - 1) < 1e-3
    divisor = (1 if is_sum else training.words) / ratio
    expected = f"a sum, or a mean over {training.words} words"
    return divided(divisor, expected, training.words, *training.target.shape)
