"""Numbers, dates and times as English, German and French write and say them.

Words come from num2words. What it gets wrong, or what depends on the sentence, is corrected here,
with the reason beside each correction.
"""

from functools import lru_cache

from num2words import num2words

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}


@lru_cache(maxsize=None)
def _num2words(number: int, language: str, kind: str) -> str:
    """The library's words."""
    return str(num2words(number, lang=language, to=kind))


GERMAN_ONE = {  # "ein" before a noun, by gender and case; alone it is "eins"
    "m": {"nom": "ein", "acc": "einen", "dat": "einem"},
    "f": {"nom": "eine", "acc": "eine", "dat": "einer"},
    "n": {"nom": "ein", "acc": "ein", "dat": "einem"},
}


def cardinal_words(
    number: int, language: str, gender: str = "", case: str = "nom", counted: bool = True
) -> str:
    """A cardinal in words, as before a noun of ``gender`` (m, f, n) or, with "", on its own.

    ``case`` (nom, acc, dat) matters only for the German 1. ``counted=False`` is for a number that
    names rather than counts (a room, a year): French then drops the plural s of "deux cents" and
    "quatre-vingts".
    """
    text = _num2words(number, language, "cardinal")
    if language == "en":
        return text.replace(",", "")  # num2words: "one thousand, two hundred"
    if language == "de":
        return GERMAN_ONE[gender][case] if number == 1 and gender else text
    if gender == "f" and text.endswith("un"):
        return text + "e"
    return text if counted else _without_plural_s(text)


def _without_plural_s(french: str) -> str:
    """ "deux cents" → "deux cent", "quatre-vingts" → "quatre-vingt"; nothing else is changed."""
    return french[:-1] if french.endswith(("cents", "vingts")) else french


def year_words(year: int, language: str) -> str:
    """A year in words ("nineteen eighty-seven", "neunzehnhundertsiebenundachtzig")."""
    text = _num2words(year, language, "year")
    # num2words treats French years as counts ("mille neuf cent quatre-vingts"); a year is a name.
    return _without_plural_s(text) if language == "fr" else text.replace(",", "")


def ordinal_words(number: int, language: str, ending: str = "") -> str:
    """An ordinal in words; ``ending`` is what German adds to "dritte" (n, r, s), or French's f."""
    text = _num2words(number, language, "ordinal").replace(",", "")
    if language == "de":
        return text + ending
    if language == "fr":
        # num2words keeps the plural s inside: "quatre-vingtsième", "deux centsième".
        text = text.replace("vingtsième", "vingtième").replace("centsième", "centième")
        return "première" if number == 1 and ending == "f" else text
    return text


def ordinal_digits(number: int, language: str, gender: str = "m") -> str:
    """An ordinal in digits: 3rd, 3., 3e (num2words writes "3me"; French usage is 1er, 1re, 3e)."""
    if language == "de":
        return f"{number}."
    if language == "fr":
        return f"{number}e" if number > 1 else "1re" if gender == "f" else "1er"
    endings = {1: "st", 2: "nd", 3: "rd"}
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else endings.get(number % 10, 'th')}"


def digits(hundredths: int, language: str, places: int = 0) -> str:
    """A number in digits with ``places`` decimals: 1,234.50, 1.234,50, 1 234,50.

    French groups digits with a plain space: a no-break space would not survive tokenisation, and
    then a translation could never equal its reference.
    """
    whole, cents = divmod(hundredths, 100)
    text = f"{whole:,}" + (f".{cents:02d}"[: places + 1] if places else "")
    marks = {"en": ",.", "de": ".,", "fr": " ,"}[language]
    return text.translate(str.maketrans(",.", marks))


def date_text(day: int, month: int, language: str) -> str:
    """A day and month in digits, without an article: "3 March", "3. März", "3 mars", "1er mars"."""
    number = f"{day}." if language == "de" else f"{day}"
    if language == "fr" and day == 1:
        number = "1er"
    return f"{number} {MONTHS[language].split()[month - 1]}"


def date_words(day: int, month: int, language: str, ending: str = "n") -> str:
    """A day and month in words: "third of March", "dritten März", "trois mars"."""
    name = MONTHS[language].split()[month - 1]
    if language == "fr":  # only the first of the month is an ordinal
        return f"{cardinal_words(day, 'fr') if day > 1 else 'premier'} {name}"
    ordinal = ordinal_words(day, language, ending if language == "de" else "")
    return f"{ordinal} {name}" if language == "de" else f"{ordinal} of {name}"


def clock_digits(hour: int, minute: int, language: str, am_pm: bool = False) -> str:
    """A time in digits: "14:35" or with ``am_pm`` "2:35 pm"; "14.35 Uhr"; "14 h 35".

    The full hour is "2 pm" or "14:00", "14 Uhr" and "14 h".
    """
    if language == "de":
        return f"{hour}.{minute:02d} Uhr" if minute else f"{hour} Uhr"
    if language == "fr":
        return f"{hour} h {minute:02d}" if minute else f"{hour} h"
    if not am_pm:
        return f"{hour}:{minute:02d}"
    half = "am" if hour < 12 else "pm"
    return f"{hour % 12 or 12}:{minute:02d} {half}" if minute else f"{hour % 12 or 12} {half}"


_ENGLISH_CLOCK = {
    0: "{h} o'clock",
    5: "five past {h}",
    10: "ten past {h}",
    15: "quarter past {h}",
    20: "twenty past {h}",
    25: "twenty-five past {h}",
    30: "half past {h}",
    35: "twenty-five to {n}",
    40: "twenty to {n}",
    45: "quarter to {n}",
    50: "ten to {n}",
    55: "five to {n}",
}
_GERMAN_CLOCK = {
    0: "{h} Uhr",
    5: "fünf nach {h}",
    10: "zehn nach {h}",
    15: "Viertel nach {h}",
    20: "zwanzig nach {h}",
    25: "fünf vor halb {n}",
    30: "halb {n}",
    35: "fünf nach halb {n}",
    40: "zwanzig vor {n}",
    45: "Viertel vor {n}",
    50: "zehn vor {n}",
    55: "fünf vor {n}",
}
_FRENCH_CLOCK = {
    0: "{h}",
    5: "{h} cinq",
    10: "{h} dix",
    15: "{h} et quart",
    20: "{h} vingt",
    25: "{h} vingt-cinq",
    30: "{h} et demie",
    35: "{n} moins vingt-cinq",
    40: "{n} moins vingt",
    45: "{n} moins le quart",
    50: "{n} moins dix",
    55: "{n} moins cinq",
}
_PART_OF_DAY = {
    "morning": ("in the morning", "morgens", "du matin"),
    "late morning": ("in the morning", "vormittags", "du matin"),
    "afternoon": ("in the afternoon", "nachmittags", "de l'après-midi"),
    "evening": ("in the evening", "abends", "du soir"),
}


def can_be_spoken(hour: int, minute: int) -> bool:
    """Whether ``clock_words`` can say this time: daytime five-minute steps, not named after twelve.

    Noon and midnight have their own names ("midi et demi"), which are left out.
    """
    named = hour + (1 if minute > 30 else 0)
    return minute % 5 == 0 and 5 <= hour <= 22 and named % 12 != 0


def clock_words(hour: int, minute: int, language: str) -> str:
    """A time as spoken, with its part of the day: "twenty-five to three in the afternoon",
    "fünf nach halb drei nachmittags", "trois heures moins vingt-cinq de l'après-midi".
    """
    part = "morning" if hour < 10 else "late morning" if hour < 12 else "afternoon"
    part_of_day = _PART_OF_DAY["evening" if hour >= 18 else part]
    this_hour, next_hour = (hour - 1) % 12 + 1, hour % 12 + 1
    if language == "en":
        pattern, part_name = _ENGLISH_CLOCK[minute], part_of_day[0]
        spoken = [cardinal_words(number, "en") for number in (this_hour, next_hour)]
    elif language == "de":
        pattern, part_name = _GERMAN_CLOCK[minute], part_of_day[1]
        spoken = [
            cardinal_words(number, "de", "n" if not minute else "")
            for number in (this_hour, next_hour)
        ]
    else:
        pattern, part_name = _FRENCH_CLOCK[minute], part_of_day[2]
        spoken = [
            f"{cardinal_words(number, 'fr', 'f')} {'heure' if number == 1 else 'heures'}"
            for number in (this_hour, next_hour)
        ]
    return f"{pattern.format(h=spoken[0], n=spoken[1])} {part_name}"
