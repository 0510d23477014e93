"""Fillings for the slots that are a number, a date, a time or an amount of money.

Each function draws a value that fits a part of the split and expresses it in the three languages.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from scripts.demo_text import numerals, split
from scripts.demo_text.lexicon import ARTICLES, CURRENCIES, NOUNS, UNITS, Noun

Item = TypeVar("Item")
CASES = ("nom", "acc", "dat")


class Dice:
    """A seeded random source that gives the same rolls in every Python version.

    Only ``random.Random.random`` is promised to stay the same; ``choice`` and ``shuffle`` are not.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        """One of ``items``."""
        return items[self.between(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred rolls."""
        return self.between(1, 100) <= percent


class Filling(NamedTuple):
    """A filled slot.

    ``forms`` holds the text by language and form ("en", "de:dat", "fr:"), ``surfaces`` the part
    of that text that is the number (empty for plain words), ``value`` its key in split.py.
    """

    forms: dict[str, str]
    surfaces: dict[str, str] = {}
    value: str = ""


def _first_that_fits(draw: Callable[[], Item], fits: Callable[[Item], bool]) -> Item:
    """The first drawn value that fits."""
    while True:
        value = draw()
        if fits(value):
            return value


def _draw_integer(dice: Dice, part: str, ranges: Sequence[tuple[int, int, int]]) -> int:
    """An integer of ``part`` from ``ranges`` (percent, low, high)."""

    def draw() -> int:
        roll = dice.between(1, 100)
        for chosen in ranges:
            roll -= chosen[0]
            if roll <= 0:
                break
        return dice.between(*chosen[1:])

    return _first_that_fits(draw, lambda number: split.number_fits(100 * number, part))


def count(dice: Dice, part: str, group: str, least: int = 1) -> Filling:
    """A number with its noun: "347 books", "three hundred and forty-seven books".

    ``one`` is always in words. 101, 201… before a noun are not put in words, since German
    grammars disagree on them.
    """
    ranges = ((12, least, 20), (13, 21, 100), (50, 101, 999), (18, 1000, 9999), (7, 10000, 99999))
    number = _draw_integer(dice, part, ranges)
    noun = dice.pick(NOUNS[group])
    in_words = number == 1 or (
        number < 10000 and (number < 100 or number % 100 != 1) and dice.chance(50)
    )
    return counted(number, noun, in_words)


def counted(number: int, noun: Noun, in_words: bool) -> Filling:
    """A number before a noun that agrees with it, in words or digits, in every German case."""
    forms: dict[str, str] = {}
    surfaces: dict[str, str] = {}

    def put(form: str, gender: str, case: str, name: str) -> None:
        language = form[:2]
        surfaces[form] = (
            numerals.cardinal_words(number, language, gender, case)
            if in_words
            else numerals.digits(100 * number, language)
        )
        forms[form] = f"{surfaces[form]} {name}"

    singular = number == 1
    put("en", "", "", noun.en if singular else noun.en_plural)
    for case in CASES:
        put(f"de:{case}", noun.de_gender, case, noun.de if singular else noun.german_plural(case))
    put("fr:", noun.fr_gender, "", noun.fr if singular else noun.fr_plural)
    # What the French plural adds to a participle: "sont venus", "sont venues".
    forms["fr:agreement"] = "s" if noun.fr_gender == "m" else "es"
    return Filling(forms, surfaces, split.number_key(100 * number))


def many(dice: Dice, part: str, group: str) -> Filling:
    """``count`` from two upwards, for subjects with a plural verb."""
    return count(dice, part, group, least=2)


def name_number(dice: Dice, part: str, group: str) -> Filling:
    """A number that names: a room, a page, a bus; up to 999, in digits or in words."""
    number = _draw_integer(dice, part, ((30, 1, 100), (70, 101, 999)))
    if dice.chance(50):
        texts = {
            lang: numerals.cardinal_words(number, lang, counted=False)
            for lang in ("en", "de", "fr")
        }
    else:
        texts = dict.fromkeys(("en", "de", "fr"), str(number))
    return _number_alone(texts, split.number_key(100 * number))


def _number_alone(texts: dict[str, str], value: str) -> Filling:
    """A filling whose text is its number, in one form per language."""
    forms = {"en": texts["en"], "fr:": texts["fr"]}
    forms.update({f"de:{case}": texts["de"] for case in CASES})
    return Filling(forms, forms, value)


def year(dice: Dice, part: str, group: str) -> Filling:
    """A year from 1100 to 2029, in digits or in words."""
    number = _draw_integer(dice, part, ((40, 1100, 1799), (60, 1800, 2029)))
    in_words = dice.chance(35)
    texts = {
        lang: numerals.year_words(number, lang) if in_words else str(number)
        for lang in ("en", "de", "fr")
    }
    return _number_alone(texts, split.number_key(100 * number))


def ordinal(dice: Dice, part: str, group: str) -> Filling:
    """A definite ordinal with its noun: "the 347th visitor", "der 347. Besucher"."""
    number = _draw_integer(dice, part, ((30, 1, 100), (70, 101, 999)))
    noun = dice.pick(NOUNS[group])
    in_words = dice.chance(50)
    write = numerals.ordinal_words if in_words else numerals.ordinal_digits
    surfaces = {
        "en": write(number, "en"),
        "fr:": write(number, "fr", noun.fr_gender),
    }
    forms = {
        "en": f"the {surfaces['en']} {noun.en}",
        "fr:": f"{'le' if noun.fr_gender == 'm' else 'la'} {surfaces['fr:']} {noun.fr}",
    }
    for case in CASES:
        weak_e = case == "nom" or (case == "acc" and noun.de_gender != "m")
        ordinal_text = write(number, "de", "" if weak_e else "n")
        surfaces[f"de:{case}"] = ordinal_text
        forms[f"de:{case}"] = f"{ARTICLES[noun.de_gender][case]} {ordinal_text} {noun.de}"
    return Filling(forms, surfaces, split.number_key(100 * number))


def date(dice: Dice, part: str, group: str) -> Filling:
    """A date: "3 March 1987", "the 3rd of March 1987", "3 March", "the third of March".

    Dates in words have no year, nor do some dates in digits. 29 February is left out.
    """
    lengths = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    style = dice.pick(("digits", "digits", "ordinal", "ordinal", "words"))
    with_year = style != "words" and dice.chance(65)

    def draw() -> tuple[int, int]:
        month = dice.between(1, 12)
        return dice.between(1, lengths[month - 1]), month

    day, month = _first_that_fits(draw, lambda drawn: split.date_fits(*drawn, 0, part))
    number = _draw_integer(dice, part, ((20, 1500, 1799), (80, 1800, 2029))) if with_year else 0
    if style == "words":
        texts = {lang: numerals.date_words(day, month, lang) for lang in ("en", "de", "fr")}
        texts["en"] = "the " + texts["en"]
    else:
        texts = {lang: numerals.date_text(day, month, lang) for lang in ("en", "de", "fr")}
        if style == "ordinal":
            texts["en"] = f"the {numerals.ordinal_digits(day, 'en')} of {texts['en'].split()[1]}"
        if number:
            texts = {lang: f"{text} {number}" for lang, text in texts.items()}
    return _number_alone(texts, split.date_key(day, month, number))


def time(dice: Dice, part: str, group: str) -> Filling:
    """A time of day: "2:35 pm", "14:35" or "twenty-five to three in the afternoon"."""
    style = dice.pick(("am_pm", "clock", "words"))

    def draw() -> tuple[int, int]:
        if style == "words":
            return dice.between(5, 22), 5 * dice.between(0, 11)
        # Full and half hours are a tenth of the times in digits, not a thirtieth.
        return dice.between(0, 23), dice.pick((0, 30)) if dice.chance(10) else dice.between(1, 59)

    hour, minute = _first_that_fits(
        draw,
        lambda drawn: (
            split.time_fits(*drawn, part) and (style != "words" or numerals.can_be_spoken(*drawn))
        ),
    )
    if style == "words":
        texts = {lang: numerals.clock_words(hour, minute, lang) for lang in ("en", "de", "fr")}
    else:
        texts = {
            lang: numerals.clock_digits(hour, minute, lang, style == "am_pm")
            for lang in ("en", "de", "fr")
        }
    return _number_alone(texts, split.time_key(hour, minute))


def _draw_amount(dice: Dice, part: str, percent_whole: int, most: int) -> int:
    """An amount of money of ``part`` in hundredths, from 1 up to ``most`` whole units."""
    whole = dice.chance(percent_whole)

    def draw() -> int:
        size = dice.pick((99, 99, 999, most))
        units = 100 * dice.between(1 if size == 99 else size // 10, size)
        return units if whole else units + dice.between(1, 99)

    return _first_that_fits(draw, lambda hundredths: split.number_fits(hundredths, part))


def price(dice: Dice, part: str, group: str) -> Filling:
    """An amount with its sign: "€1,234.50", "1.234,50 €", "1 234,50 €"."""
    hundredths = _draw_amount(dice, part, 40, 9999)
    sign = dice.pick(tuple(CURRENCIES))
    places = 2 if hundredths % 100 else 0
    texts = {lang: f"{numerals.digits(hundredths, lang, places)} {sign}" for lang in ("de", "fr")}
    texts["en"] = sign + numerals.digits(hundredths, "en", places)
    return _number_alone(texts, split.number_key(hundredths))


def money(dice: Dice, part: str, group: str) -> Filling:
    """An amount with the name of its currency: "12.50 euros", "twelve euros fifty"; accusative.

    The French plural starts at 2, so 1.50 only appears in words; 201, 301… (see ``count``) and
    cents under ten, which are not said without their unit, only appear in digits.
    """
    in_words = dice.chance(50)

    def fits(drawn: int) -> bool:
        units, cents = divmod(drawn, 100)
        if in_words:
            return (units < 100 or units % 100 != 1) and (not cents or cents >= 10)
        return units >= 2

    hundredths = _first_that_fits(lambda: _draw_amount(dice, part, 50, 2000), fits)
    units, cents = divmod(hundredths, 100)
    noun = CURRENCIES[dice.pick(tuple(CURRENCIES))]
    names = {"en": noun.en_plural, "de": noun.de_plural, "fr": noun.fr_plural}
    if units == 1:
        names = {"en": noun.en, "de": noun.de, "fr": noun.fr}
    if not in_words:
        places = 2 if cents else 0
        texts = {
            lang: f"{numerals.digits(hundredths, lang, places)} {name}"
            for lang, name in names.items()
        }
        return _number_alone(texts, split.number_key(hundredths))
    genders = {"en": "", "de": noun.de_gender, "fr": noun.fr_gender}
    texts = {
        lang: f"{numerals.cardinal_words(units, lang, genders[lang], 'acc')} {name}"
        for lang, name in names.items()
    }
    if cents:
        texts = {
            lang: f"{text} {numerals.cardinal_words(cents, lang)}" for lang, text in texts.items()
        }
    return _number_alone(texts, split.number_key(hundredths))


def measure(dice: Dice, part: str, group: str) -> Filling:
    """A number with one decimal and its unit: "3.5 litres", "3,5 Liter", "3,5 litres"."""
    tenths = _first_that_fits(
        lambda: dice.between(21, dice.pick((99, 999))),
        lambda drawn: drawn % 10 != 0 and split.number_fits(10 * drawn, part),
    )
    units = dict(zip(("en", "de", "fr"), dice.pick(UNITS[group]).split(), strict=True))
    texts = {
        lang: f"{numerals.digits(10 * tenths, lang, 1)} {unit}" for lang, unit in units.items()
    }
    return _number_alone(texts, split.number_key(10 * tenths))


QUANTITIES: dict[str, Callable[[Dice, str, str], Filling]] = {
    "count": count,
    "many": many,
    "num": name_number,
    "year": year,
    "ordinal": ordinal,
    "date": date,
    "time": time,
    "price": price,
    "sum": money,
    "measure": measure,
}
