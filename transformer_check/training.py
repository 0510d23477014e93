"""Checks of ``loss``, ``training_loss``, ``learning_rate`` and ``optimizer`` (5.3, 5.4, 3.1).

Shape letters: B batch, S source, T target, V vocabulary.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .findings import DIFFERENCE, VARIANT, Finding, differs, error, not_run, passed, waits_for
from .optimizers import EXPECTED, algorithm_of
from .registry import check_of
from .subject import AdapterError, Subject, shown

Schedule = Callable[[float], float]

# ---- 5.3 Optimizer -------------------------------------------------------------------------------


def equation_3(step: int) -> float:
    """Return the learning rate of the base model.

    Written again here, so that a mistake in this project's own schedule is seen, too.
    """
    return float(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


@check_of(
    "learning-rate",
    "5.3",
    passes="The learning rate is equation 3.",
    fails="The learning rate is not equation 3.",
    needs=("learning_rate",),
)
def rate(subject: Subject) -> Finding:
    """Compare at the first step, around the peak, and far behind it."""
    seen = {}
    for step in (1, 2, 2000, 3999, 4000, 4001, 6000, 16_000, 100_000):
        value = subject.call("learning_rate", step)
        if not isinstance(value, (int, float)):
            raise AdapterError(
                f"learning_rate({step}) returned {shown(value)}: expected a number", "learning_rate"
            )
        seen[step] = float(value)
    expected = {step: equation_3(step) for step in seen}
    wrong = [n for n in seen if not abs(seen[n] / expected[n] - 1) <= 1e-6]  # NaN is wrong
    if not wrong:
        return passed()
    says = named_rate(seen)
    n = wrong[0]
    return differs(
        f"{seen[n]:.4g} at step {n:,}, wrong at {len(wrong)} of {len(seen)} steps",
        f"{expected[n]:.4g} (d_model 512, 4,000 warm-up steps; steps count from 1)",
        says=says,
    )


def schedule(width: float = 512, warmup: float = 4000, decay: float = 0.5) -> Schedule:
    """Return equation 3 with other numbers; it is continuous at the end of warm-up."""

    def rate_of_step(step: float) -> float:
        peak = width**-0.5 * warmup**-0.5
        return peak * min(step / warmup, (warmup / step) ** decay)

    return rate_of_step


def late(by: int) -> Schedule:
    """Return equation 3 of another step."""
    return lambda step: schedule()(max(step + by, 1))


SCHEDULES: dict[str, Schedule] = {
    "has the larger of the two terms: max() in place of min()": lambda n: (
        512**-0.5 * max(n**-0.5, n * 4000**-1.5)
    ),
    "has no warm-up": lambda n: 512**-0.5 * n**-0.5,
    "never decreases after warm-up": lambda n: schedule()(min(n, 4000)),
    "only increases": lambda n: 512**-0.5 * n * 4000**-1.5,
    "is that of the step before": late(-1),
    "is that of the step after": late(1),
    "decreases with 1/step after warm-up": schedule(decay=1.0),
    "decreases with 1/step² after warm-up": schedule(decay=2.0),
    "has the exponent -1 in place of -1.5 for warm-up": lambda n: (
        512**-0.5 * min(n**-0.5, n * 4000**-1.0)
    ),
}
WARMUPS = (400, 1000, 2000, 8000, 10_000, 16_000, 40_000)


def named_rate(seen: dict[int, float]) -> str:
    """Return the sentence for a usual mistake in the learning rate; empty if it is none."""
    if len(set(seen.values())) == 1:
        return f"The learning rate is constant ({next(iter(seen.values())):g})."
    factor = ratio_to(schedule(), seen)
    if factor is not None:
        return f"The learning rate is {factor_in_words(factor)} equation 3."
    others = dict(SCHEDULES)
    for warmup in WARMUPS:
        others[f"has {warmup:,} warm-up steps"] = schedule(warmup=warmup)
    for says, expected in others.items():
        factor = ratio_to(expected, seen)
        if factor is None:
            continue
        times = "" if abs(factor - 1) < 1e-4 else f", and is {factor:.4g} times too large"
        return f"The learning rate {says}{times}."
    after = [(step, value) for step, value in seen.items() if step >= 4000]
    slopes = [(b - a) / (n - m) for (m, a), (n, b) in pairwise(after)]
    if max(slopes) - min(slopes) < 1e-2 * abs(min(slopes)):
        return "The learning rate decreases linearly after warm-up."
    if after[-1][1] <= 0:
        return "The learning rate decreases to 0: its decay is not the inverse square root."
    return ""


def ratio_to(expected: Schedule, seen: dict[int, float]) -> float | None:
    """Return by what a schedule is multiplied at each step; None if that differs."""
    ratios = [value / expected(step) for step, value in seen.items()]
    is_one = max(ratios) - min(ratios) < 1e-4 * abs(max(ratios))
    return ratios[0] if is_one else None


def factor_in_words(factor: float) -> str:
    """Name the factor of a schedule."""
    names = {512**0.5: "√d_model =", 512.0: "d_model =", 512**-0.5: "1/√d_model ="}
    near = [name for value, name in names.items() if abs(factor / value - 1) < 1e-3]
    return f"{near[0] if near else ''} {factor:.4g} times".strip()


def optimizer_of(subject: Subject) -> torch.optim.Optimizer:
    """Return the optimizer of the subject's model."""
    optimizer = subject.call("optimizer", subject.model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise AdapterError(
            f"optimizer returned {shown(optimizer)}: expected a torch.optim.Optimizer", "optimizer"
        )
    return optimizer


@check_of(
    "adam",
    "5.3",
    passes="The optimizer is Adam with betas=(0.9, 0.98) and eps=1e-09.",
    fails="The optimizer is not Adam with betas=(0.9, 0.98) and eps=1e-09.",
    needs=("optimizer",),
)
def adam(subject: Subject) -> Finding:
    """Compare the optimizer's updates with Adam's, and the options of each of its groups."""
    optimizer = optimizer_of(subject)
    algorithm = algorithm_of(optimizer)
    if algorithm != "Adam":
        return differs(
            f"the updates of {algorithm}",
            "the updates of Adam",
            says=ALGORITHMS.get(algorithm, f"The optimizer is {algorithm}, not Adam."),
            fix="Use torch.optim.Adam(parameters, lr, betas=(0.9, 0.98), eps=1e-9).",
        )
    for number, group in enumerate(optimizer.param_groups, start=1):
        seen = {key: group.get(key, value) for key, value in EXPECTED.items()}
        seen["betas"] = tuple(seen["betas"])
        wrong = [key for key, value in EXPECTED.items() if seen[key] != value]
        if wrong:
            where = f" in group {number}" if len(optimizer.param_groups) > 1 else ""
            return differs(
                ", ".join(f"{key}={seen[key]}" for key in wrong) + where,
                ", ".join(f"{key}={EXPECTED[key]}" for key in wrong),
                says=named_options(seen, wrong),
            )
    return passed()


ALGORITHMS = {
    "Adam with amsgrad": "Adam has amsgrad=True.",
    "Adam with maximize": "Adam has maximize=True: it makes the loss larger.",
    "AdamW": "The optimizer is AdamW, which decays the weights; the paper's is Adam.",
    "NAdam without momentum decay": "The optimizer is NAdam, not Adam.",
    "Adam without bias correction": "Adam has no bias correction: its first updates are too small.",
}


def named_options(seen: dict[str, Any], wrong: list[str]) -> str:
    """Return the sentence for Adam's options, if they are a usual mistake."""
    if wrong == ["betas", "eps"] and seen["betas"] == (0.9, 0.999) and seen["eps"] == 1e-8:
        return "Adam has PyTorch's default betas and eps."
    if wrong == ["weight_decay"]:
        return f"Adam has a weight decay of {seen['weight_decay']}."
    if wrong == ["betas"] and seen["betas"] == (0.98, 0.9):
        return "Adam's betas are swapped."
    return ""


@check_of(
    "optimizer-parameters",
    "5.3",
    passes="The optimizer holds every parameter of the model, and no others.",
    fails="The optimizer does not hold exactly the parameters of the model.",
    needs=("optimizer",),
)
def optimized_parameters(subject: Subject) -> Finding:
    """Compare the optimizer's parameters with those of the model that need a gradient."""
    optimizer = optimizer_of(subject)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): n for n, p in subject.model.named_parameters() if p.requires_grad}
    missing = [name for key, name in named.items() if key not in held]
    own = {id(p) for p in subject.model.parameters()}
    foreign = len(held - own)
    if not missing and not foreign:
        return passed()
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    parts = [f"{foreign} tensors that are not parameters of the model"] if foreign else []
    parts += [f"not {', '.join(missing[:3])}{more}"] if missing else []
    return differs(
        "; ".join(parts),
        f"the {len(named)} parameters of the model",
        says="The optimizer does not hold every parameter of the model." if missing else "",
    )


# ---- 5.4 Label smoothing, 3.1 The target shifted right -------------------------------------------


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
        self.has_softmax_twice = self.is_like_softmax_twice(first, gradient)
        self.distribution = p - gradient[self.real] / multiples[:, None]  # [N, V]

    def is_like_softmax_twice(self, logits: Tensor, gradient: Tensor) -> bool:
        """Return whether a gradient is that of a cross entropy of probabilities."""
        logits = logits.clone().requires_grad_()
        log_p = logits.softmax(-1).log_softmax(-1)
        loss = -log_p.gather(-1, self.target[..., None])[self.real].sum()
        expected = torch.autograd.grad(loss, logits)[0][self.real].flatten()
        seen = gradient[self.real].flatten()
        return bool(torch.cosine_similarity(seen, expected, dim=0) > 0.95)

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


@check_of(
    "label-smoothing",
    "5.4",
    passes="The loss is cross entropy with label smoothing ε_ls.",
    fails="The loss is not cross entropy with label smoothing ε_ls.",
    needs=("loss",),
    explains=("training-loss",),
)
def smoothed(subject: Subject) -> Finding:
    """Compare the target distribution: 1 - ε on the target, ε / (V - 1) on each other token."""
    loss = LossOfLogits(subject)
    epsilon = subject.config.label_smoothing
    if loss.left_out:
        return waits_for("loss-average")
    if loss.misfit > 1e-3:
        return differs(
            "a gradient that is no multiple of softmax minus a distribution",
            "the gradient of a cross entropy",
            says="The loss applies the softmax twice: its input is logits, not probabilities."
            if loss.has_softmax_twice
            else "The loss is not a cross entropy of the softmax.",
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
    if not says and abs(on_target + on_others * (types - 1) - 1) < 1e-3:
        says = f"The loss has label smoothing {round(1 - on_target, 2):g}."
    return Finding(
        VARIANT if near else DIFFERENCE,
        f"target probability {on_target:.4f}, {on_others:.5f} for each other token",
        f"{1 - epsilon:.4f} and {per_class:.5f}",
        says=says,
    )


@check_of(
    "loss-padding",
    "5.4",
    passes="Padding has no part in the loss.",
    fails="Padding has a part in the loss.",
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
            f"the gradient at padding is up to {loss.of_pads:.0%} of the largest elsewhere",
            "0",
            fix="Pass ignore_index=pad to the loss.",
        )
    if loss.misfit < 1e-3 and abs(loss.multiple * places - 1) < 1e-3 and not loss.left_out:
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
    """Compare the weights of all tokens, ends of sentences included."""
    loss = LossOfLogits(subject)
    if loss.misfit > 1e-3:
        return not_run("the loss is no cross entropy of the softmax")
    sentences, length = loss.target.shape
    tokens = int(loss.real.sum())
    expected = f"a sum, or a mean over {tokens} tokens"
    if loss.left_out:
        return differs(
            f"{loss.left_out} of {tokens} tokens without a gradient",
            expected,
            says="The loss leaves out tokens, such as the ends of sentences.",
        )
    if float((loss.multiples / loss.multiple - 1).abs().max()) > 1e-3:
        return differs(
            "tokens of a short sentence weigh more than those of a long one",
            expected,
            says="The loss is a mean of the sentences' means.",
        )
    if abs(loss.multiple * sentences * length - 1) < 1e-3:
        return waits_for("loss-padding")
    return divided(1 / loss.multiple, expected, tokens, sentences, length)


def divided(by: float, expected: str, tokens: int, sentences: int, length: int) -> Finding:
    """Return whether a sum is divided by one or by the number of tokens; else by what."""
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
    return differs(f"a sum divided by {by:.4g}", expected)
