"""The sinusoids in a table of positions (3.5): exponent, base, order, phase and factor.

Shape letters: L positions, D d_model.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BASE = 10000.0
TIMES = "sines and cosines are multiplied by "
FITS = 1e-3
"""largest difference of a value from its formula"""
ROUNDING = 1e-6
"""relative error of an angle in float32"""
ROUNDING_OF_16_BITS = 0.012
"""relative error of an angle in bfloat16: three roundings of 2^-8"""
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
        **{
            f"the exponent has another sign: positions are multiplied by 10000^({n}i/d_model)": e
            for n, e in {"2": -2 * i / width, "4": -4 * i / width, "": -i / width}.items()
        },
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


def candidates(length: int, width: int) -> Iterator[tuple[Formula, Tensor, Tensor]]:
    """Yield formulas with their tables and angles [L, D], the fewest differences first."""
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
        angles = positions * BASE**-of_sine, positions * BASE**-of_cosine
        pair = sine(angles[0]), cosine(angles[1])
        yield formula_with(names), join(pair, bool(halves)), join(angles, bool(halves))


# ---- The formula of a table ----------------------------------------------------------------------


def formula_of(table: Tensor) -> Formula | None:
    """Return the formula of a table [L, D] of positions 0 to L - 1, or None if it has none."""
    table = table.double()
    for formula, values, angles in candidates(*table.shape):
        amplitude = float((values * table).sum() / (values * values).sum())
        if is_far(table, values, angles):
            if abs(amplitude) > 1e-6 and not is_far(table / amplitude, values, angles):
                return add_factor(formula, amplitude)
            continue
        return formula
    return (
        of_other_positions(table)
        or of_rounded_angles(table)
        or of_other_factor(table)
        or of_other_wavelengths(table)
    )


def is_far(table: Tensor, values: Tensor, angles: Tensor) -> bool:
    """Return whether two tables differ by more than rounding, that of large angles included."""
    return bool(((table - values).abs() > FITS + ROUNDING * angles.abs()).any())


def add_factor(formula: Formula, amplitude: float) -> Formula:
    """Return a formula with the factor of the whole table among its differences."""
    note = f"{TIMES}{amplitude:.4g}"
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


def constant_beside(table: Tensor) -> Tensor | None:
    """Return the vector [D] that a table has beside the paper's sinusoids, or None."""
    table = table.double()
    rows = torch.arange(len(table))
    for in_halves in (False, True):
        rest = table - paper_rows(rows, table.size(1), in_halves)
        constant = rest.mean(0)
        if float(constant.abs().max()) > FITS and float((rest - constant).abs().max()) < FITS:
            return constant
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


def in_pairs(table: Tensor) -> Iterator[tuple[Tensor, bool]]:
    """Yield cosines + i · sines [L, D / 2] of an interleaved table, then of one in halves."""
    half = table.size(1) // 2
    yield torch.complex(table[:, 1::2], table[:, ::2]), False
    yield torch.complex(table[:, half:], table[:, :half]), True


def of_rounded_angles(table: Tensor) -> Formula | None:
    """Return the formula of the paper's table computed in 16 bits, or None.

    Its angles have small relative errors of both signs; those of another factor or base are alike.
    """
    length, width = table.shape
    rows = torch.arange(1, length, dtype=torch.float64)[:, None]
    expected = rows / BASE ** exponents(width)[""][0]
    for pairs, in_halves in in_pairs(table):
        phases = (pairs[1:] * torch.polar(torch.ones_like(expected), -expected)).angle()
        errors = phases / expected
        largest = float(errors.abs().max())
        has_both_signs = float(errors.mean().abs()) < 0.5 * float(errors.abs().mean())
        is_circle = float((pairs.abs() - 1).abs().max()) < 0.02
        if is_circle and has_both_signs and largest < ROUNDING_OF_16_BITS:
            found = f"angles have relative errors of up to {largest:.1g}, as in float16 or bfloat16"
            differences = (found, HALVES) if in_halves else (found,)
            return Formula(differences, "Compute the sinusoids in float32.")
    return None


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
        if (
            abs(factor) > 1e-4
            and abs(factor - 1) > 1e-3
            and float((table - values).abs().mean()) < 0.01
        ):
            names = [f"positions are multiplied by {factor:.4g}", HALVES if in_halves else ""]
            formula = formula_with(names)
            return Formula(formula.differences, "Use positions 0, 1, 2 … without a factor.")
    return None


def of_other_wavelengths(table: Tensor) -> Formula | None:
    """Return the formula with the frequencies that fit, or None.

    With frequency ω, cosine + i · sine is multiplied by exp(iω) from each position to the next.
    """
    rows = torch.arange(len(table), dtype=torch.float64)[:, None]
    for pairs, in_halves in in_pairs(table):
        frequencies = (pairs[1:] * pairs[:-1].conj()).sum(0).angle()  # [D / 2], from -π to π
        expected = torch.polar(torch.ones_like(pairs.real), rows * frequencies)
        if float((pairs - expected).abs().mean()) < 0.02:
            return describe_frequencies(frequencies, in_halves)
    return None


def describe_frequencies(frequencies: Tensor, in_halves: bool) -> Formula:
    """Return the formula with these frequencies [D / 2]: another base and factor if they fit."""
    i = torch.arange(len(frequencies), dtype=torch.float64)
    factor = float(frequencies[0])
    slope = float((frequencies[1] / factor).log())
    powers = factor * torch.exp(slope * i)
    away = torch.polar(torch.ones_like(powers), powers - frequencies).angle().abs()
    logarithm = -slope * len(i)  # of the base
    differences = []
    fix = ""
    if abs(logarithm) < 50 and bool((away < 1e-3 * abs(factor) + 1e-4 * powers.abs()).all()):
        if logarithm < 0:
            base = round_base(math.exp(-logarithm))
            differences.append(
                f"the exponent has another sign: positions are multiplied by {base}^(2i/d_model)"
            )
        elif abs(logarithm - math.log(BASE)) > 0.005:
            times = logarithm / math.log(BASE)
            is_power = abs(times - round(times)) < 0.005
            power = f" = 10000^{times:.0f}" if is_power else ""
            differences.append(f"the base is {round_base(math.exp(logarithm))}{power}")
            fix = "The base is 10000, and the exponent 2i/d_model."
        if abs(factor - 1) > 0.005:
            differences.append(f"positions are multiplied by {factor:.4g}")
            fix = f"{fix} Use positions 0, 1, 2 … without a factor.".strip()
    if not differences:
        of_paper = BASE ** -exponents(2 * len(i))[""][0]
        seen, expected = (
            ", ".join(f"{round(number, 6) + 0.0:.4g}" for number in numbers[:4].tolist())
            for numbers in (frequencies, of_paper)
        )
        differences.append(f"positions are multiplied by {seen} … instead of {expected} …")
        again = (frequencies[1:] - frequencies[0]).abs() < 1e-6
        if bool(again.any()):
            size = 2 * (1 + int(again.nonzero()[0]))
            differences.append(f"frequencies are repeated after {size} dimensions")
        fix = "Multiply positions by 10000^(-2i/d_model)."
    if in_halves:
        differences.append(HALVES)
    return Formula(tuple(differences), fix)


def round_base(base: float) -> str:
    """Return a measured base as text, rounded to a power of ten if it is close to one."""
    power = round(math.log10(base))
    if power >= 0 and abs(math.log10(base) - power) < 0.001:
        return f"{10**power:,}" if power < 9 else f"10^{power}"
    return f"{base:,.0f}" if base > 100 else f"{base:.4g}"


def name_columns(table: Tensor) -> str:
    """Return what is wrong in the dimensions of a table [L, D] that has no known formula."""
    table = table.double()
    width = table.size(1)
    for name, rounded in {"down": torch.floor, "to whole numbers": torch.round}.items():
        angles = torch.arange(len(table), dtype=torch.float64)[:, None]
        angles = rounded(angles / BASE ** exponents(width)[""][0])
        if float((table - join((angles.sin(), angles.cos()), False)).abs().max()) < FITS:
            return f"the angles are rounded {name}"
    zero = [n for n in range(width) if float(table[:, n].abs().max()) < FITS]
    if zero:
        some = " …" if len(zero) > 4 else ""
        names = ", ".join(map(str, zero[:4]))
        return f"dimensions {names}{some} are zero" if zero[1:] else f"dimension {names} is zero"
    if all(frequency_of(column) is None for column in table.unbind(1)):
        return "no dimension is a sine or cosine of the position"
    expected = paper_rows(torch.arange(len(table)), width, in_halves=False)
    wrong = (table - expected).abs().amax(0) > FITS
    first = int(wrong.nonzero()[0])
    seen, right = (frequency_of(numbers[:, first]) for numbers in (table, expected))
    count = f"{int(wrong.sum())} of {width} dimensions differ"
    if seen is None:
        return f"{count}, and dimension {first} is no sine or cosine"
    if right is None or abs(seen - right) < 1e-3:
        return f"{count}, the first by a factor or a phase: {first}"
    return (
        f"{count}, for example dimension {first} of 0 to {width - 1}, which has the frequency "
        f"{seen:.4g} instead of {right:.4g}"
    )


def frequency_of(column: Tensor) -> float | None:
    """Return the frequency, from 0 to π, of a sine or cosine [L]; None if it has none.

    The sum of the neighbours of each number is 2 cos(frequency) times the number.
    """
    middle = column[1:-1]
    neighbours = column[:-2] + column[2:]
    cosine = float(neighbours @ middle / (middle @ middle)) / 2
    rest = neighbours - 2 * cosine * middle
    if abs(cosine) > 1 or float(rest.abs().max()) > FITS * float(column.abs().max()):
        return None
    return math.acos(cosine)
