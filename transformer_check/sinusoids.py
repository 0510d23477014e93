"""The sinusoids in a table of positions (3.5): exponent, base, order, phase and factor.

Shape letters: L positions, D d_model.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BASE = 10000.0
FITS = 1e-3
"""largest difference of a value from its formula"""
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Formula:
    """How a table differs from the paper's, and the fix; all empty if it does not."""

    differences: tuple[str, ...] = ()
    fix: str = ""
    is_variant: bool = False
    """whether a linear map turns it into the paper's, so that a model can learn the same"""


PAPER = Formula()


# ---- Parts of a formula --------------------------------------------------------------------------


def exponents(width: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return exponents of sines and of cosines, 2i / d_model first, by name of the mistake."""
    i = torch.arange(width // 2, dtype=torch.float64)
    both = {
        "": 2 * i / width,
        "the exponent is 4i/d_model": 4 * i / width,
        "the exponent is i/d_model": i / width,
        "the exponent is 2i/(d_model - 2)": 2 * i / max(width - 2, 1),
        "the exponent is (2i + 2)/d_model": (2 * i + 2) / width,
        "the exponent is (2i + 1)/d_model": (2 * i + 1) / width,
        "positions are multiplied by 10000^(2i/d_model)": -2 * i / width,
    }
    pairs = {name: (e, e) for name, e in both.items()}
    own = (2 * i + 1) / width
    pairs["odd dimensions have the exponent (2i + 1)/d_model"] = (2 * i / width, own)
    pairs["the exponent of dimension j is 2j/d_model"] = (4 * i / width, 2 * own)
    pairs["odd dimensions have the exponent (2i + 2)/d_model"] = (
        2 * i / width,
        (2 * i + 2) / width,
    )
    pairs["the cosines have the exponent 2(2i + 1)/d_model"] = (2 * i / width, 2 * own)
    return pairs


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "": (torch.sin, torch.cos),
    "cosines come first": (torch.cos, torch.sin),
    "all dimensions are sines": (torch.sin, torch.sin),
    "all dimensions are cosines": (torch.cos, torch.cos),
    "the cosines have a minus sign": (torch.sin, lambda angle: -angle.cos()),
    "the sines have a minus sign": (lambda angle: -angle.sin(), torch.cos),
    "the cosines are of the sines, not of the angles": (torch.sin, lambda a: a.sin().cos()),
    "sines and cosines are squared": (lambda a: a.sin() ** 2, lambda a: a.cos() ** 2),
    "it is the angle itself, without sine and cosine": (lambda angle: angle, lambda angle: angle),
}
FIRST = {"": 0.0, "positions start at 1": 1.0, "positions start at 2": 2.0}
FIRST["positions start at -1"] = -1.0
FACTORS = {"": 1.0, "positions are doubled": 2.0, "positions are halved": 0.5}
FACTORS["positions are multiplied by 2π"] = 2 * math.pi
FACTORS["positions are multiplied by π"] = math.pi
FACTORS["positions are in degrees (π/180)"] = math.pi / 180

FIXES = {
    "the exponent is 4i/d_model": "torch.arange(0, d_model, 2) is already 2i: remove the factor 2.",
    "the exponent of dimension j is 2j/d_model": (
        "Dimensions 2i and 2i + 1 share the exponent 2i/d_model: use 2 * (j // 2) / d_model."
    ),
    "the exponent is i/d_model": "Use torch.arange(0, d_model, 2) / d_model.",
    "the exponent is 2i/(d_model - 2)": "Divide by d_model.",
    "the exponent is (2i + 2)/d_model": "Start i at 0.",
    "the exponent is (2i + 1)/d_model": "Start at 2i = 0.",
    "positions start at 1": "Start positions at 0.",
    "positions start at 2": "Start positions at 0.",
    "cosines come first": "Put sines into dimensions 2i and cosines into 2i + 1.",
}
VARIANTS = {
    "sines in the first half, cosines in the second",
    "cosines come first",
    "positions start at 1",
    "positions start at 2",
    "positions start at -1",
    "the cosines have a minus sign",
    "the sines have a minus sign",
    "the exponent is 2i/(d_model - 2)",
}
"""differences that a linear map undoes, at least nearly; common in published code"""
HALVES = "sines in the first half, cosines in the second"


def join(pair: Pair, in_halves: bool) -> Tensor:
    """Return the table [L, D] of sines and cosines, interleaved or in halves."""
    return torch.cat(pair, dim=1) if in_halves else torch.stack(pair, dim=2).flatten(1)


def formula_with(names: list[str]) -> Formula:
    """Return the formula with these differences, and their fixes."""
    differences = tuple(name for name in names if name)
    fixes = [FIXES[name] for name in differences if name in FIXES]
    is_variant = bool(differences) and set(differences) <= VARIANTS
    return Formula(differences, " ".join(fixes), is_variant)


def candidates(length: int, width: int) -> Iterator[tuple[Formula, Tensor]]:
    """Yield formulas with their tables [L, D], those with the fewest differences first."""
    rows = torch.arange(length, dtype=torch.float64)[:, None]
    parts = []
    for exponent, pair in exponents(width).items():
        for function in FUNCTIONS:
            for first in FIRST:
                for factor in FACTORS:
                    for halves in ("", HALVES):
                        names = [exponent, function, first, factor, halves]
                        count = sum(bool(name) for name in names)
                        if count <= 2 or (count == 3 and halves and not factor):
                            parts.append((count, names, pair))
    parts.sort(key=lambda part: part[0])
    for _, names, (of_sine, of_cosine) in parts:
        _, function, first, factor, halves = names
        positions = FACTORS[factor] * (rows + FIRST[first])
        sine, cosine = FUNCTIONS[function]
        pair = sine(positions * BASE**-of_sine), cosine(positions * BASE**-of_cosine)
        yield formula_with(names), join(pair, bool(halves))


# ---- The formula of a table ----------------------------------------------------------------------


def formula_of(table: Tensor) -> Formula | None:
    """Return the formula of a table [L, D] of positions 0 to L - 1, or None if it has none."""
    table = table.double()
    for formula, values in candidates(*table.shape):
        amplitude = float((values * table).sum() / (values * values).sum())
        if is_far(table, values):
            if abs(amplitude) > 1e-6 and not is_far(table / amplitude, values):
                return add_factor(formula, amplitude)
            continue
        return formula
    return of_other_positions(table) or of_other_factor(table) or of_other_wavelengths(table)


def is_far(table: Tensor, values: Tensor) -> bool:
    """Return whether two tables differ by more than rounding."""
    return float((table - values).abs().max()) > FITS


def add_factor(formula: Formula, amplitude: float) -> Formula:
    """Return a formula with the factor of the whole table among its differences."""
    note = f"sines and cosines are multiplied by {amplitude:.4g}"
    fix = f"{formula.fix} Add the sinusoids without a factor.".strip()
    return Formula((*formula.differences, note), fix)


def paper_rows(positions: Tensor, width: int, in_halves: bool) -> Tensor:
    """Return the paper's sinusoids [L, D] of positions [L]."""
    angles = positions.double()[:, None] / BASE ** exponents(width)[""][0]
    return join((angles.sin(), angles.cos()), in_halves)


def of_other_positions(table: Tensor) -> Formula | None:
    """Return the formula of a table whose rows are the paper's at other positions, or None."""
    length, width = table.shape
    positions = torch.arange(-length, 2 * length + 1)
    for in_halves in (False, True):
        rows = paper_rows(positions, width, in_halves)
        distances = (table[:, None] - rows[None]).abs().amax(2)
        nearest = distances.argmin(1)
        if float(distances.amin(1).max()) < FITS:
            return Formula(
                (describe_positions(positions[nearest].tolist()),),
                "Row p of the sum needs the sinusoids of position p.",
            )
    return None


def describe_positions(seen: list[int]) -> str:
    """Describe the positions that rows 0, 1, 2 … have."""
    length = len(seen)
    last = max(seen)
    first = seen[0]
    if len(set(seen)) == 1:
        return f"all words have the same position, {first}"
    if seen == [min(n, last) for n in range(length)]:
        return f"positions are clamped: all words from position {last} on have the same one"
    if seen == [first - n for n in range(length)]:
        return "positions are counted from the end: their order is reversed"
    period = next((n for n in range(1, length) if seen[n] == first), 0)
    if period and seen == [first + n % period for n in range(length)]:
        return f"positions repeat after {period} words"
    return f"positions of the first words are {', '.join(map(str, seen[:5]))}"


def of_other_factor(table: Tensor) -> Formula | None:
    """Return the formula with the factor of positions that fits, or None.

    The factor is measured at the slowest sine, which is nearly equal to its angle.
    """
    length, width = table.shape
    rows = torch.arange(length, dtype=torch.float64)
    slowest = rows * BASE ** -exponents(width)[""][0][-1]
    for in_halves in (False, True):
        column = table[:, width // 2 - 1] if in_halves else table[:, width - 2]
        factor = float((column * slowest).sum() / (slowest * slowest).sum())
        values = paper_rows(rows * factor, width, in_halves)
        if abs(factor) > 1e-4 and float((table - values).abs().mean()) < 0.01:
            names = [f"positions are multiplied by {factor:.4g}", HALVES if in_halves else ""]
            formula = formula_with(names)
            return Formula(formula.differences, "Use positions 0, 1, 2 … without a factor.")
    return None


def of_other_wavelengths(table: Tensor) -> Formula | None:
    """Return the formula with the base and the first frequency that fit, or None.

    A sinusoid x of frequency ω has x[p + 1] + x[p - 1] = 2 cos(ω) x[p].
    """
    for in_halves in (False, True):
        width = table.size(1)
        halves = (table[:, : width // 2], table[:, width // 2 :])
        sines, cosines = halves if in_halves else (table[:, ::2], table[:, 1::2])
        formula = fit_wavelengths(table, sines, cosines, in_halves)
        if formula is not None:
            return formula
    return None


def frequencies(columns: Tensor) -> Tensor:
    """Return the frequency ω [N] of sinusoids [L, N]; NaN where it cannot be measured."""
    middle = columns[1:-1]
    cosine = ((columns[2:] + columns[:-2]) * middle).sum(0) / (2 * (middle * middle).sum(0))
    angles = cosine.clamp(-1, 1).acos()
    return angles.where((angles > 0.02) & (angles < 3.1), torch.nan)


def fit_wavelengths(
    table: Tensor, sines: Tensor, cosines: Tensor, in_halves: bool
) -> Formula | None:
    """Return the formula with the base and the factor of positions that fit, or None."""
    angles = frequencies(cosines)
    i = torch.arange(len(angles), dtype=torch.float64)
    is_measured = angles.isfinite()
    if int(is_measured.sum()) < 2:
        return None
    first, second = (int(n) for n in is_measured.nonzero().flatten()[:2])
    slope = float((angles[second] / angles[first]).log()) / (second - first)
    start = float(angles[first].log()) - slope * first
    base = math.exp(-slope * len(angles))
    if base <= 1 or base > 1e12:
        return None
    positions = torch.arange(len(table), dtype=torch.float64)[:, None]
    expected = positions * torch.exp(start + slope * i)
    values = join((expected.sin(), expected.cos()), in_halves)
    loosely = float((table - values).abs().mean())
    if loosely > 0.02:
        return None
    differences = []
    fix = ""
    if abs(math.log(base / BASE)) > 0.02:
        differences.append(f"the base is {round_base(base)}")
        fix = "The base is 10000."
    factor = math.exp(start)
    if abs(start) > 0.005:
        differences.append(f"positions are multiplied by {factor:.4g}")
        fix = f"{fix} Use positions 0, 1, 2 … without a factor.".strip()
    if in_halves:
        differences.append(HALVES)
    return Formula(tuple(differences), fix) if differences else None


def round_base(base: float) -> str:
    """Return a measured base as text, rounded to a power of ten if it is close to one."""
    power = round(math.log10(base))
    if abs(math.log10(base) - power) < 0.01:
        return f"{10**power:,}"
    return f"{base:.4g}"
