"""Differences between the rows of a table, each with its 95 % interval and p: one rule for all.

A table has rows (systems, variations) and seeds. Its figures follow a two-way layout, value = row +
seed + error: seeds share the order of the batches, so a difference is that of the same seeds. The
variance of the error is pooled over all rows of the table, with its degrees of freedom. With every
cell there, a difference is the mean of the differences of the seeds; where cells are missing, it is
that of the least-squares fit. p is two-sided, of Student's t; Holm's method corrects it for the
number of rows that are compared with the reference.
"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

Values = dict[str, dict[int, float]]
"""Row → seed → figure. A row may lack seeds."""

LEVEL = 0.05
"""A difference is shown if its p, corrected, is below it; an interval is of 1 - LEVEL."""
SEEDS_OF_AN_INTERVAL = 3
"""A difference over fewer seeds is never called shown."""
DECIMALS = 9
"""Of a difference; figures have three at most."""


class Difference(NamedTuple):
    """A row minus the reference.

    Attributes:
        value: in the unit of the figures
        width: half of the interval; None without degrees of freedom
        degrees: of freedom, of the pooled variance
        p: two-sided, corrected by Holm's method for the rows of the table; None as the width
        seeds: how many seeds the row and the reference have in common
    """

    value: float
    width: float | None
    degrees: int
    p: float | None
    seeds: int

    @property
    def shown(self) -> bool:
        """Whether the difference is shown: by p, over enough seeds."""
        return self.p is not None and self.p < LEVEL and self.seeds >= SEEDS_OF_AN_INTERVAL

    def text(self, form: str = "+.2f") -> str:
        """Format the difference: ``+1.77 ± 0.76 (p 0.0016)``."""
        value = signed_text(self.value, form)
        if self.width is None or self.p is None:
            return value
        return f"{value} ± {self.width:{form.lstrip('+')}} ({p_text(self.p)})"


class Layout:
    """A two-way layout, row + seed, fitted by least squares.

    Args:
        values: the figures of a table

    Attributes:
        cells: row and seed of each figure, in the order of ``residuals`` and of weights
        degrees: of freedom that the fit leaves
    """

    def __init__(self, values: Values) -> None:
        self.rows = list(values)
        self.cells = [(row, seed) for row, by_seed in values.items() for seed in by_seed]
        self.figures = np.array([values[row][seed] for row, seed in self.cells])
        seeds = sorted({seed for _, seed in self.cells})
        self.design = np.zeros((len(self.cells), len(self.rows) + len(seeds)))
        for number, (row, seed) in enumerate(self.cells):
            self.design[number, self.rows.index(row)] = 1
            self.design[number, len(self.rows) + seeds.index(seed)] = 1
        self.solution = np.linalg.pinv(self.design)
        self.residuals = self.figures - self.design @ (self.solution @ self.figures)
        self.degrees = len(self.cells) - int(np.linalg.matrix_rank(self.design))

    @property
    def variance(self) -> float:
        """The variance of the error, pooled over the rows; it needs a degree of freedom."""
        return float(self.residuals @ self.residuals) / self.degrees

    def weights(self, row: str, reference: str) -> Any:
        """Return the weights of all figures in a row minus the reference, in the order of
        ``cells``.

        None if no chain of common seeds leads from the one to the other.
        """
        contrast = np.zeros(self.design.shape[1])
        contrast[self.rows.index(row)] += 1
        contrast[self.rows.index(reference)] -= 1
        weights = contrast @ self.solution
        return weights if np.allclose(weights @ self.design, contrast) else None


def differences(values: Values, reference: str) -> dict[str, Difference]:
    """Return each row minus the reference; rows that share no seed with another are left out.

    Args:
        values: the figures of a table, all of whose rows tell the variance
        reference: one of the rows
    """
    layout = Layout(values)
    estimates: dict[str, tuple[float, float | None]] = {}
    for row in values:
        weights = layout.weights(row, reference) if row != reference else None
        if weights is not None:
            error = None
            if layout.degrees:
                error = (layout.variance * float(weights @ weights)) ** 0.5
            # a tie such as 0.225 is to be printed alike, however a processor rounds the sum
            estimates[row] = (round(float(weights @ layout.figures), DECIMALS), error)
    corrected = holm(
        {
            row: two_sided_p(value, error, layout.degrees)
            for row, (value, error) in estimates.items()
            if error is not None
        }
    )
    result = {}
    for row, (value, error) in estimates.items():
        width = None if error is None else quantile(layout.degrees) * error
        seeds = len(values[row].keys() & values[reference].keys())
        result[row] = Difference(value, width, layout.degrees, corrected.get(row), seeds)
    return result


def quantile(degrees: int) -> float:
    """Return Student's t quantile for these degrees of freedom and a two-sided interval."""
    return float(student.ppf(1 - LEVEL / 2, degrees))


def two_sided_p(value: float, error: float, degrees: int) -> float:
    """Return the two-sided p of Student's t test for a value with a standard error."""
    if error == 0:
        return 1.0 if value == 0 else 0.0
    return float(2 * student.sf(abs(value) / error, degrees))


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Correct several p by Holm's (1979) method.

    The smallest is multiplied by their number, the next by one less, and so on.
    """
    corrected: dict[str, float] = {}
    highest = 0.0
    ascending = sorted(p_values, key=p_values.__getitem__)
    for rank, name in enumerate(ascending):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = highest
    return corrected


def rule(values: Values, reference: str) -> str:
    """Return the sentence in a table on its intervals and p."""
    layout = Layout(values)
    count = len(differences(values, reference))
    rows = "1 row" if count == 1 else f"{count} rows"
    return (
        f"Minus {reference}: of the same seeds, with 95 % intervals (Student's t; two-way layout, "
        f"row and seed; variance pooled over rows, {layout.degrees} degrees of freedom). "
        f"p: two-sided t test, corrected by Holm's method for {rows}."
    )


def signed_text(value: float, form: str = "+.2f") -> str:
    """Format a difference with its sign; ``+0.00`` if it is rounded to zero."""
    text = format(value, form)
    return text if text.strip("-0.,") else text.replace("-", "+")


def p_text(p: float) -> str:
    """Format a p: ``p 0.012``, ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2g}"


def mean_text(values: Sequence[float], form: str = ".2f") -> str:
    """Format the mean over the seeds, and each value in brackets."""
    if not values:
        return "–"
    text = format(statistics.mean(values), form)
    each = [format(value, form).removesuffix(".0") for value in values]
    return f"{text} ({', '.join(each)})" if len(set(each)) > 1 else text
