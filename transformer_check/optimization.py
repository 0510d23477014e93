"""Checks of ``learning_rate`` and ``optimizer`` (5.3)."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from .findings import Finding, differs, passed, waits_for
from .optimizers import EXPECTED, algorithm_of, probe_group
from .registry import check_of
from .subject import AdapterError, Subject, describe

Schedule = Callable[[float], float]


def equation_3(step: int) -> float:
    """Return the learning rate of the base model.

    It is written again here, so that a mistake in this project's own schedule is found, too.
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
    """Compare the learning rates at the first steps, around the peak and long after it."""
    seen = {}
    for step in (1, 2, 2000, 3999, 4000, 4001, 6000, 16_000, 100_000):
        value = subject.call("learning_rate", step)
        if not isinstance(value, (int, float)):
            raise AdapterError(
                f"learning_rate({step}) returned {describe(value)}: expected a number",
                "learning_rate",
            )
        seen[step] = float(value)
    expected = {step: equation_3(step) for step in seen}
    wrong = [n for n in seen if not abs(seen[n] / expected[n] - 1) <= 1e-6]  # NaN counts as wrong
    if not wrong:
        return passed()
    says = name_rate(seen)
    n = wrong[0]
    return differs(
        f"{seen[n]:.4g} at step {n:,}, wrong at {len(wrong)} of {len(seen)} steps",
        f"{expected[n]:.4g} (d_model 512, 4,000 warm-up steps; steps count from 1)",
        says=says,
    )


def schedule(width: float = 512, warmup: float = 4000, decay: float = 0.5) -> Schedule:
    """Return equation 3 with other hyperparameters, continuous at the end of warm-up."""

    def rate_of_step(step: float) -> float:
        peak = width**-0.5 * warmup**-0.5
        return peak * min(step / warmup, (warmup / step) ** decay)

    return rate_of_step


def shift_steps(by: int) -> Schedule:
    """Return equation 3, evaluated at a step that is ``by`` later."""
    return lambda step: schedule()(max(step + by, 1))


SCHEDULES: dict[str, Schedule] = {
    "has the larger of the two terms: max() in place of min()": lambda n: (
        512**-0.5 * max(n**-0.5, n * 4000**-1.5)
    ),
    "has no warm-up": lambda n: 512**-0.5 * n**-0.5,
    "never decreases after warm-up": lambda n: schedule()(min(n, 4000)),
    "only increases": lambda n: 512**-0.5 * n * 4000**-1.5,
    "is that of the step before": shift_steps(-1),
    "is that of the step after": shift_steps(1),
    "decreases with 1/step after warm-up": schedule(decay=1.0),
    "decreases with 1/step² after warm-up": schedule(decay=2.0),
    "has the exponent -1 in place of -1.5 for warm-up": lambda n: (
        512**-0.5 * min(n**-0.5, n * 4000**-1.0)
    ),
}
WARMUPS = (400, 1000, 2000, 8000, 10_000, 16_000, 40_000)


def name_rate(seen: dict[int, float]) -> str:
    """Return the sentence for a usual mistake in the learning rate; empty if it is another."""
    infinite = [step for step, value in seen.items() if not math.isfinite(value)]
    if infinite:
        return f"The learning rate is {seen[infinite[0]]} at step {infinite[0]:,}."
    if len(set(seen.values())) == 1:
        return f"The learning rate is constant ({next(iter(seen.values())):g})."
    factor = ratio_to(schedule(), seen)
    if factor is not None:
        return f"The learning rate is {factor_in_words(factor)} equation 3."
    schedules = dict(SCHEDULES)
    for warmup in WARMUPS:
        schedules[f"has {warmup:,} warm-up steps"] = schedule(warmup=warmup)
    for says, expected in schedules.items():
        factor = ratio_to(expected, seen)
        if factor is None:
            continue
        times = "" if abs(factor - 1) < 1e-4 else f", and is {factor:.4g} times too large"
        return f"The learning rate {says}{times}."
    says = name_bounded(seen) or name_powers(seen) or name_jump(seen)
    if says:
        return says
    after = [(step, value) for step, value in seen.items() if step >= 4000]
    slopes = [(b - a) / (n - m) for (m, a), (n, b) in pairwise(after)]
    if max(slopes) - min(slopes) < 1e-2 * abs(min(slopes)):
        return "The learning rate decreases linearly after warm-up."
    if is_cosine(seen):
        return "The learning rate decreases with a cosine after warm-up."
    if after[-1][1] <= 0:
        return "The learning rate decreases to 0: its decay is not the inverse square root."
    return ""


def name_bounded(seen: dict[int, float]) -> str:
    """Return the sentence for equation 3 with a lower or an upper bound; empty if it is another."""
    wrong = {n: value for n, value in seen.items() if abs(value / equation_3(n) - 1) > 1e-6}
    bounds = set(wrong.values())
    if len(bounds) != 1 or len(wrong) > len(seen) - 2:
        return ""
    bound = bounds.pop()
    if all(bound > equation_3(n) for n in wrong):
        return f"The learning rate never falls below {bound:.4g}."
    return f"The learning rate never rises above {bound:.4g}."


def name_powers(seen: dict[int, float]) -> str:
    """Return the sentence for the minimum of two powers of the step; empty if it is no such."""
    if min(seen.values()) <= 0:
        return ""
    rise = math.log2(seen[2] / seen[1])
    fall = math.log(seen[100_000] / seen[16_000]) / math.log(100 / 16)
    if rise - fall < 1e-3:
        return ""
    scale = seen[100_000] * 100_000.0**-fall
    for step, value in seen.items():
        expected = min(seen[1] * step**rise, scale * step**fall)
        if abs(value / expected - 1) > 1e-3:
            return ""
    peak = (scale / seen[1]) ** (1 / (rise - fall))
    first = "is constant" if abs(rise) < 1e-3 else f"changes with step^{rise:.3g}"
    return (
        f"The learning rate {first} until step {peak:,.0f}, and decreases with step^{fall:.3g} "
        "after it: equation 3 has step^1 until step 4,000, then step^-0.5."
    )


def name_jump(seen: dict[int, float]) -> str:
    """Return the sentence for a rate that jumps after the warm-up; empty if it does not."""
    before, after = seen[4000], seen[4001]
    if before <= 0 or 0.9 < after / before < 1.1:
        return ""
    ratios = [seen[n] * (n - 4000) ** 0.5 for n in seen if n > 4000]
    is_restart = max(ratios) - min(ratios) < 1e-3 * abs(max(ratios))
    cause = ": its decay counts steps from the end of warm-up" if is_restart else ""
    return (
        f"The learning rate jumps from {before:.4g} at step 4,000 to {after:.4g} at step "
        f"4,001{cause}."
    )


def is_cosine(seen: dict[int, float]) -> bool:
    """Return whether the rates from the peak on are half a cosine to zero, of any length."""
    peak = seen[4000]
    shares = {step: value / peak for step, value in seen.items() if step >= 4000}
    if not 0 < shares[16_000] < 1:
        return False
    length = 12_000 * math.pi / math.acos(2 * shares[16_000] - 1)
    for step, share in shares.items():
        angle = math.pi * min(1.0, (step - 4000) / length)
        if abs(share - 0.5 * (1 + math.cos(angle))) > 1e-3:
            return False
    return True


def ratio_to(expected: Schedule, seen: dict[int, float]) -> float | None:
    """Return the factor from a schedule to the rates; None unless all steps have the same."""
    ratios = [value / expected(step) for step, value in seen.items()]
    is_one = max(ratios) - min(ratios) < 1e-4 * abs(max(ratios))
    return ratios[0] if is_one else None


def factor_in_words(factor: float) -> str:
    """Name the factor from equation 3 to the learning rates."""
    names = {512**0.5: "√d_model =", 512.0: "d_model =", 512**-0.5: "1/√d_model ="}
    near = [name for value, name in names.items() if abs(factor / value - 1) < 1e-3]
    return f"{near[0] if near else ''} {factor:.4g} times".strip()


def optimizer_of(subject: Subject) -> torch.optim.Optimizer:
    """Return the optimizer of the subject's model.

    Raises:
        AdapterError: the function returned another type.
    """
    optimizer = subject.call("optimizer", subject.model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise AdapterError(
            f"optimizer() returned {describe(optimizer)}: expected a torch.optim.Optimizer",
            "optimizer",
        )
    return optimizer


FIX = "Use torch.optim.Adam(parameters, lr, betas=(0.9, 0.98), eps=1e-9)."


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
    if held_twice(optimizer):
        return waits_for("optimizer-parameters")
    algorithm = algorithm_of(optimizer)
    if algorithm != "Adam":
        return differs(
            f"the updates of {algorithm}",
            "the updates of Adam",
            says=ALGORITHMS.get(algorithm, f"The optimizer is {algorithm}, not Adam."),
            fix=FIX,
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
                says=name_options(seen, wrong),
                fix=FIX,
            )
    groups = optimizer.param_groups
    rates = sorted({float(group.get("lr", 0)) for group in groups})
    if len(rates) > 1:
        return differs(
            f"lr = {', '.join(f'{rate:g}' for rate in rates)} in {len(groups)} groups",
            "one learning rate for all parameters",
            says="The parameter groups of Adam have different learning rates.",
        )
    return look_at_probe(optimizer)


def look_at_probe(optimizer: torch.optim.Optimizer) -> Finding:
    """Return the finding on the ε and the weight decay that one update of each group shows."""
    epsilon = EXPECTED["eps"]
    for group in optimizer.param_groups:
        if max(p.numel() for p in group["params"]) < 4:
            continue
        probe = probe_group(optimizer, group)
        if not abs(probe.decay) < 1e-3:  # NaN is a division of 0 by 0
            return differs(
                f"an update of {-probe.decay:.3g} × lr for a parameter of 1 with the gradient 0",
                "0",
                says="Adam divides 0 by 0 where a gradient is 0: it has no eps."
                if math.isnan(probe.decay)
                else f"The optimizer decays weights, by {probe.decay:.3g} × lr.",
                fix=FIX,
            )
        if not 0.5 * epsilon < probe.epsilon < 10 * epsilon:  # 7 with ε before the correction
            is_root = abs(probe.epsilon / epsilon**0.5 - 1) < 0.05
            return differs(
                f"an update with eps = {probe.epsilon:.3g} for a gradient of {epsilon:g}",
                f"eps={epsilon:g}, added to the root of the second mean",
                says=f"Adam's eps is inside the root: it acts as √eps = {probe.epsilon:.2g}."
                if is_root
                else f"Adam's eps acts as {max(probe.epsilon, 0):.2g}.",
                fix=FIX,
            )
    return passed()


def held_twice(optimizer: torch.optim.Optimizer) -> int:
    """Return how many parameters an optimizer holds more than once."""
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    return sum(number > 1 for number in Counter(held).values())


ALGORITHMS = {
    "Adam with amsgrad": "Adam has amsgrad=True.",
    "Adam with maximize": "Adam has maximize=True: it makes the loss larger.",
    "AdamW": "The optimizer is AdamW, which decays the weights; the paper's is Adam.",
    "NAdam without momentum decay": "The optimizer is NAdam, not Adam.",
    "Adam without bias correction": "Adam has no bias correction: its first updates are too small.",
    "Adam with a constant bias correction": (
        "Adam's bias correction is the same at every step: it does not depend on β^t."
    ),
    "Adam without bias correction of the first mean": (
        "Adam has no bias correction of the first mean (momentum)."
    ),
    "Adam without bias correction of the second mean": (
        "Adam has no bias correction of the second mean: its first updates are too large."
    ),
    "Adam with the bias correction of the next step": (
        "Adam's bias correction is that of the next step: steps are counted from 2."
    ),
    "Adam with gradients clipped by norm": "The optimizer clips the norm of the gradient.",
    "Adam with gradients clipped by value": "The optimizer clips each element of the gradient.",
}


def name_options(seen: dict[str, Any], wrong: list[str]) -> str:
    """Return the sentence for a usual mistake in Adam's options; empty if it is another."""
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
    """Compare the optimizer's parameters with the trained parameters of the model."""
    optimizer = optimizer_of(subject)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): n for n, p in subject.model.named_parameters() if p.requires_grad}
    missing = [name for key, name in named.items() if key not in held]
    own = {id(p) for p in subject.model.parameters()}
    foreign = len(held - own)
    twice = held_twice(optimizer)
    if twice:
        return differs(
            f"{twice} of {len(held)} parameters more than once",
            f"the {len(named)} parameters of the model, each once",
            says=f"The optimizer holds {twice} parameters twice: each step updates them twice.",
        )
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
