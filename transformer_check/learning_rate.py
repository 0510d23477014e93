"""Check of ``learning_rate``, and the description of a wrong one: its warm-up and decay (5.3)."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch

from .findings import Finding, differs, passed
from .registry import check_of
from .subject import AdapterError, Subject, describe

Schedule = Callable[[int], float]
"""step → learning rate"""
LAST = 100_000


def equation_3(step: int) -> float:
    """Return the learning rate of the base model.

    It is written again here, so that a mistake in this project's own schedule is found, too.
    """
    return float(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


STEPS = (1, 2, 3, 100, 777, 2000, 3999, 4000, 4001, 6000, 12_345, 16_000, 50_001, 100_000)


@check_of(
    "learning-rate",
    "5.3",
    passes="The learning rate is equation 3.",
    fails="The learning rate is not equation 3.",
    needs=("learning_rate",),
)
def rate(subject: Subject) -> Finding:
    """Compare the learning rates at the first steps, around the peak and long after it."""

    def rate_of_step(step: int) -> float:
        value = subject.call("learning_rate", step)
        if not isinstance(value, (int, float)):
            raise AdapterError(
                f"learning_rate({step}) returned {describe(value)}: expected a number",
                "learning_rate",
            )
        return float(value)

    seen = {step: rate_of_step(step) for step in STEPS}
    expected = {step: equation_3(step) for step in seen}
    wrong = [n for n in seen if not abs(seen[n] / expected[n] - 1) <= 1e-6]  # NaN counts as wrong
    if not wrong:
        return passed()
    n = wrong[0]
    return differs(
        f"{seen[n]:.4g} at step {n:,}, wrong at {len(wrong)} of {len(seen)} steps",
        f"{expected[n]:.4g} (d_model 512, 4,000 warm-up steps; steps count from 1)",
        says=name_rate(rate_of_step),
    )


SCHEDULES: dict[str, Schedule] = {
    "is {factor}": equation_3,
    "has the larger of the two terms: max() in place of min()": lambda n: (
        512**-0.5 * max(n**-0.5, n * 4000**-1.5)
    ),
    "is that of the step before": lambda n: equation_3(max(n - 1, 1)),
    "is that of the step after": lambda n: equation_3(n + 1),
}


def name_rate(rate: Schedule) -> str:
    """Return the sentence that says how a learning rate differs from equation 3."""
    seen = {step: rate(step) for step in STEPS}
    infinite = [step for step, value in seen.items() if not math.isfinite(value)]
    if infinite:
        return f"The learning rate is {seen[infinite[0]]} at step {infinite[0]:,}."
    negative = [step for step, value in seen.items() if value < 0]
    if negative:
        return f"The learning rate is negative: {seen[negative[0]]:.4g} at step {negative[0]:,}."
    if len(set(seen.values())) == 1:
        return f"The learning rate is constant ({next(iter(seen.values())):g})."
    for says, expected in SCHEDULES.items():
        factor = ratio_to(expected, seen)
        if factor is not None:
            times = f", and is {factor:.4g} times too large"
            is_said = "{factor}" in says or abs(factor - 1) < 1e-4
            says = says.format(factor=factor_in_words(factor))
            return f"The learning rate {says}{'' if is_said else times}."
    is_close = all(abs(value / equation_3(step) - 1) < 0.1 for step, value in seen.items())
    for name, dtype in {"float16": torch.float16, "bfloat16": torch.bfloat16}.items():
        rounded = torch.tensor([*seen.values()]).to(dtype)
        if is_close and rounded.tolist() == [*seen.values()]:
            return f"The learning rate is rounded to {name}."
    return name_bounded(seen) or name_two_factors(rate) or describe_curve(rate)


def name_bounded(seen: dict[int, float]) -> str:
    """Return the sentence for equation 3 with a lower or an upper bound; empty if it is another."""
    wrong = {n: value for n, value in seen.items() if abs(value / equation_3(n) - 1) > 1e-6}
    bounds = set(wrong.values())
    bound = min(bounds)
    if len(bounds) != 1 or len(wrong) > len(seen) - 2 or not 0 < bound < equation_3(4000):
        return ""
    if all(bound > equation_3(n) for n in wrong):
        return f"The learning rate never falls below {bound:.4g}."
    return f"The learning rate never rises above {bound:.4g}."


def name_two_factors(rate: Schedule) -> str:
    """Return the sentence for another factor to equation 3 from a step on; empty if it is none."""
    steps = geometric_steps()
    factors = [round(rate(n) / equation_3(n), 4) for n in steps]
    changes = [i for i, (a, b) in enumerate(pairwise(factors)) if abs(a - b) > 2e-4]
    if len(changes) != 1:
        return ""
    low, high = steps[changes[0]], steps[changes[0] + 1]
    before, after = factors[0], factors[-1]
    while high - low > 1:
        middle = (low + high) // 2
        is_before = abs(rate(middle) / equation_3(middle) - before) < 2e-4
        low, high = (middle, high) if is_before else (low, middle)
    return (
        f"The learning rate is {before:.4g} times equation 3 until step {low:,}, and {after:.4g} "
        "times after it."
    )


def ratio_to(expected: Schedule, seen: dict[int, float]) -> float | None:
    """Return the factor from a schedule to the rates; None unless all steps have the same."""
    ratios = [value / expected(step) for step, value in seen.items()]
    is_one = max(ratios) - min(ratios) < 1e-4 * abs(max(ratios))
    return ratios[0] if is_one else None


def factor_in_words(factor: float) -> str:
    """Name the factor from equation 3 to the learning rates."""
    names = {512**0.5: "√d_model =", 512.0: "d_model =", 512**-0.5: "1/√d_model ="}
    near = [name for value, name in names.items() if abs(factor / value - 1) < 1e-3]
    width = 512 / factor**2 if factor > 0 else 0.0
    is_width = 8 <= width <= 8192 and abs(width / 8 - round(width / 8)) < 1e-3
    of_width = f", as with d_model = {width:.0f}" if is_width and not near else ""
    return f"{near[0] if near else ''} {factor:.4g} times equation 3{of_width}".strip()


def first_change(rate: Schedule, step: int) -> int:
    """Return the first step after ``step`` whose rate is another; ``LAST`` if there is none."""
    low = step
    high = min(step + 1, LAST)
    while high < LAST and rate(high) == rate(step):
        low = high
        high = min(LAST, 2 * high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if rate(middle) == rate(step):
            low = middle
        else:
            high = middle
    return high


def geometric_steps() -> list[int]:
    """Return steps from 1 to ``LAST``, each larger than the step before by a quarter."""
    steps = [1]
    while steps[-1] < LAST:
        steps.append(min(LAST, max(steps[-1] + 1, steps[-1] * 5 // 4)))
    return steps


def step_of_maximum(rate: Schedule) -> int:
    """Return the first step after which the rate falls; ``LAST`` if it never does."""
    steps = geometric_steps()
    falls = [i for i, (a, b) in enumerate(pairwise(map(rate, steps))) if b < a * (1 - 1e-9)]
    before = falls[0] if falls else len(steps) - 2
    low, high = steps[max(before - 1, 0)], steps[before + 1]
    while high - low > 2:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        low, high = (left, high) if rate(left) < rate(right) else (low, right)
    peak = max(range(low, high + 1), key=rate)
    low = max([0, *(n for n in steps if rate(n) < rate(peak) and n < peak)])
    while peak - low > 1 and rate(peak - 1) == rate(peak):  # a maximum of several steps
        middle = (low + peak) // 2
        low, peak = (low, middle) if rate(middle) == rate(peak) else (middle, peak)
    return peak


def line_through(points: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the value at 0 and the slope of the line through points; None if there is none."""
    (x, y), (x_last, y_last) = points[0], points[-1]
    if x_last == x or y_last == y:
        return None
    slope = (y_last - y) / (x_last - x)
    start = y - slope * x
    close = 1e-3 * abs(y_last - y)
    return (start, slope) if all(abs(start + slope * x - y) <= close for x, y in points) else None


def describe_part(points: list[tuple[int, float]], low: float, high: float) -> str:
    """Return the change of a rate from step to step, such as "decreases with step^-0.5".

    Args:
        points: a step and its rate, of at least two steps
        low: the rate at which a decrease ends
        high: the rate at which it begins
    """
    if points[-1][1] == points[0][1]:
        return "is constant" if len({value for _, value in points}) == 1 else "rises and falls"
    is_rise = points[-1][1] > points[0][1]
    verb = "rises" if is_rise else "decreases"
    if min(value for _, value in points) > 0:
        power = line_through([(math.log(n), math.log(value)) for n, value in points])
        if power:
            return f"{verb} with step^{power[1]:.3g}"
    line = line_through([*points])
    if line and is_rise:
        start = -line[0] / line[1]
        step, value = (start, 0.0) if start >= 1 else points[0]
        step, value = (0, line[0]) if line[0] > 0 else (step, value)
        return f"rises linearly from {value:.4g} at step {step:,.0f}"
    if line:
        return f"decreases linearly, to {low:.4g} at step {(low - line[0]) / line[1]:,.0f}"
    shares = [(n, (value - low) / (high - low)) for n, value in points if value > low]
    exponential = line_through([(n, math.log(share)) for n, share in shares])
    if exponential:
        times = "doubles" if is_rise else "halves"
        length = math.log(2) / abs(exponential[1])
        return f"{verb} exponentially (it {times} every {length:,.0f} steps)"
    for exponent in (-0.5, -1.0, 2.0) if not is_rise else ():
        root = line_through([(n, share ** (1 / exponent)) for n, share in shares])
        if root:
            zero = -root[0] / root[1]
            sign = "-" if zero > 0 else "+"
            base = f"{zero:,.0f} - step" if exponent > 0 else f"step {sign} {abs(zero):,.0f}"
            return f"decreases with ({base})^{exponent:g}"
    cosine = line_through([(n, math.acos(min(1.0, max(-1.0, 2 * s - 1)))) for n, s in shares])
    if cosine and not is_rise:
        end = (math.pi - cosine[0]) / cosine[1]
        return f"decreases with a cosine, to {low:.4g} at step {end:,.0f}"
    logs = [(math.log(n), math.log(value)) for n, value in points if value > 0]
    if len(logs) < 3:
        return f"{verb} by no power of the step"
    first, last = ((b[1] - a[1]) / (b[0] - a[0]) for a, b in (logs[:2], logs[-2:]))
    return f"{verb} by no power of the step (from step^{first:.2g} to step^{last:.2g})"


RISE = "rises with step^1 until step 4,000"
FALL = "decreases with step^-0.5"


def describe_rise(rate: Schedule, peak: int, end: int) -> str:
    """Return how a rate reaches its maximum, which it has from step ``peak`` to step ``end``."""
    if end == 1:
        return "has no warm-up"
    if peak == 1:
        return f"is constant until step {end:,}"
    steps = sorted({1, *(max(1, peak * n // 12) for n in range(1, 12)), peak - 1})
    points = [(n, rate(n)) for n in steps if rate(n) > 0]
    rise = describe_part([*points, (peak, rate(peak))], 0.0, rate(peak))
    if len(points) > 3 and "no power" in rise:  # the maximum may be the first step of the fall
        rise = describe_part(points, 0.0, rate(peak))
    if peak == LAST:
        return f"{rise} at every step"
    hold = f" and is constant until step {end:,}" if 1.01 * peak < end < LAST else ""
    return f"{rise} until step {4000 if abs(peak - 4000) < 2 else peak:,}{hold}"


def describe_fall(rate: Schedule, end: int) -> str:
    """Return how a rate falls after the step ``end``, the last one of its maximum."""
    if end == LAST:
        return "never decreases"
    points = [(n, rate(n)) for n in geometric_steps() if n > end]
    for (n, before), (m, after) in pairwise(points):
        if after > before * (1 + 1e-3):
            return f"decreases, and rises again between steps {n:,} and {m:,}"
    low = points[-1][1]
    is_floor = len(points) > 2 and points[-2][1] == low
    stays = f", and stays at {low:.4g}" if is_floor else ""
    falling = [(end, rate(end)), *(pair for pair in points if pair[1] > low or not is_floor)]
    if len(falling) < 3:
        return f"falls to {low:.4g} at step {end + 1:,}"
    return describe_part(falling, low if is_floor else 0.0, rate(end)) + stays


def describe_curve(rate: Schedule) -> str:
    """Return the sentence that says how a rate rises and falls, where that is not equation 3."""
    for step in (2500, 30_000):
        stair = first_change(rate, step)
        length = first_change(rate, stair) - stair
        if stair > step + 1 and 1 < length < LAST // 4:
            values = f"from {rate(stair - 1):.4g} to {rate(stair):.4g} at step {stair:,}"
            return f"The learning rate changes only every {length:,} steps, such as {values}."
    peak = step_of_maximum(rate)
    end = first_change(rate, peak) - 1 if peak < LAST else LAST
    end = LAST if rate(end + 1) == rate(peak) else end
    parts = {RISE: describe_rise(rate, peak, end), FALL: describe_fall(rate, end)}
    wrong = {right: says for right, says in parts.items() if right != says}
    if not wrong:
        return ""
    return (
        f"The learning rate {', then '.join(wrong.values())}: equation 3 {', then '.join(wrong)}."
    )
