"""Which part of the demo text a number, a date or a time of day belongs to: train, valid or test.

Splitting sentences at random would let "347 books" in training give away "347 letters" in the
test. Here the *values* are split, by a hash of the value alone, before any sentence is made. A
value has one key, whatever its form:

* ``number:347``: an integer, whether a count, a year, a room, an ordinal or an amount of money, in
  words or digits, in any currency; ``number:3.5``: a decimal, so "€3.50" and "3.5 litres" are one
  value;
* ``date:03-31``: a day and month; ``date:1987-03-31``: the same with a year;
* ``time:14:35``: a time of day on the 24-hour clock.

Some values are always in training, since a language must be learnt from something: integers up to
200 and round ones (see ``is_basic``), and full and half hours.
"""

import hashlib
from collections.abc import Iterator

PARTS = ("train", "valid", "test")
HELD_OUT_PERCENT = 6  # of the values, for each of valid and test


def number_key(hundredths: int) -> str:
    """The key of a number given in hundredths (34700 → ``number:347``, 350 → ``number:3.5``)."""
    whole, cents = divmod(hundredths, 100)
    return f"number:{whole}.{cents:02d}".rstrip("0").rstrip(".") if cents else f"number:{whole}"


def date_key(day: int, month: int, year: int = 0) -> str:
    """The key of a date; year 0 stands for a date without a year."""
    return f"date:{year}-{month:02d}-{day:02d}" if year else f"date:{month:02d}-{day:02d}"


def time_key(hour: int, minute: int) -> str:
    """The key of a time of day, hour 0 to 23."""
    return f"time:{hour:02d}:{minute:02d}"


def is_basic(number: int) -> bool:
    """Whether an integer is always in training.

    Up to 200: the words for the numbers, and "cent quarante-sept", which ends every French
    hundred with 47. Multiples of ten ("three hundred and forty" begins "three hundred and
    forty-seven"), and a thousand with one digit ("mille six" begins "mille six cents"): if held
    out, these would still occur in training, inside another number.
    """
    return number <= 200 or number % 10 == 0 or number % 1000 < 10


def _hashed_part(key: str) -> str:
    """The part given by the hash of ``key``: the same in every Python version, on every machine."""
    bucket = int.from_bytes(hashlib.sha256(key.encode("utf-8")).digest()[:4], "big") % 100
    if bucket >= 2 * HELD_OUT_PERCENT:
        return "train"
    return "valid" if bucket < HELD_OUT_PERCENT else "test"


def number_part(hundredths: int) -> str:
    """The part of a number given in hundredths."""
    whole, cents = divmod(hundredths, 100)
    return "train" if not cents and is_basic(whole) else _hashed_part(number_key(hundredths))


def time_part(hour: int, minute: int) -> str:
    """The part of a time: by its place on the dial, so that 2:35 and 14:35 belong together."""
    return "train" if minute in (0, 30) else _hashed_part(f"dial:{hour % 12}:{minute}")


def date_parts(day: int, month: int, year: int = 0) -> list[str]:
    """The parts of the day with its month and, if there is one, of the year (a number)."""
    parts = [_hashed_part(date_key(day, month))]
    return parts + [number_part(100 * year)] if year else parts


def _read_inside(hundredths: int) -> Iterator[int]:
    """Every number in hundredths that can be read inside this one, itself included.

    347 is read in 1 347 and in 347 120, 1987 in "deux mille neuf cent quatre-vingt-sept" (2987),
    234.50 in 1 234,50, and 76.50 in "one hundred and seventy-six euros fifty".
    """
    whole, cents = divmod(hundredths, 100)
    yield hundredths
    for number in (whole, whole // 1000, whole % 1000, 1000 + whole % 1000 if whole > 999 else 0):
        yield 100 * number
    if cents:
        for units in (whole % 1000, whole % 100, 100 + whole % 100 if whole > 99 else 0):
            yield 100 * units + cents


def number_fits(hundredths: int, part: str) -> bool:
    """Whether sentences of ``part`` may hold this number.

    Training may not hold a number in which a held-out one can be read; the held-out parts
    hold only their own numbers.
    """
    if part == "train":
        return all(number_part(inner) == "train" for inner in _read_inside(hundredths))
    return number_part(hundredths) == part


def date_fits(day: int, month: int, year: int, part: str) -> bool:
    """Whether sentences of ``part`` may hold this date: day and year must both belong to it."""
    return set(date_parts(day, month, year)) == {part} and (
        not year or number_fits(100 * year, part)
    )


def time_fits(hour: int, minute: int, part: str) -> bool:
    """Whether sentences of ``part`` may hold this time of day."""
    return time_part(hour, minute) == part
