"""Means over seeds and differences between rows, each with its 95 % interval (Student's t)."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import t as student

LEVEL = 0.975
"""Of a two-sided interval of 95 %."""


SEEDS_OF_AN_INTERVAL = 3
"""A difference over fewer is never called shown."""


class Interval(NamedTuple):
    """A value and half the width of its interval; None with fewer than two values."""

    value: float
    width: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is shown."""
        return self.width is not None and abs(self.value) > self.width

    def text(self, form: str = "+.2f") -> str:
        """``+1.77 ± 0.98``."""
        if self.width is None:
            return format(self.value, form)
        return f"{self.value:{form}} ± {self.width:{form.lstrip('+')}}"


def quantile(degrees: int) -> float:
    """Of Student's t with so many degrees of freedom."""
    return float(student.ppf(LEVEL, degrees))


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of several values."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return Interval(mean, None)
    error = statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, quantile(len(values) - 1) * error)


def paired_interval(values: dict[int, float], reference: dict[int, float]) -> Interval | None:
    """The mean difference of the seeds that both have; None if there is none.

    Seeds share their batches' order, so that differences vary less than the values.
    """
    differences = [values[seed] - reference[seed] for seed in sorted(values) if seed in reference]
    return mean_interval(differences) if differences else None


def pooled_width(groups: Sequence[Sequence[float]]) -> float:
    """Half the interval of one value, if all groups vary alike: by the pooled variance of each."""
    degrees = sum(len(values) - 1 for values in groups)
    squares = 0.0
    for values in groups:
        mean = statistics.mean(values)
        squares += sum((value - mean) ** 2 for value in values)
    return quantile(degrees) * (squares / degrees) ** 0.5


def mean_text(values: Sequence[float], form: str = ".2f") -> str:
    """The mean over the seeds, from three on with its interval, and each value in brackets."""
    if not values:
        return "–"
    interval = mean_interval(values)
    text = format(interval.value, form)
    if len(values) >= SEEDS_OF_AN_INTERVAL:
        text = interval.text(form)
    each = [format(value, form).removesuffix(".0") for value in values]
    return f"{text} ({', '.join(each)})" if len(set(each)) > 1 else text
