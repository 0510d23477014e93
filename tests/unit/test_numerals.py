"""Numbers as one writes and says them: the expected words are from the grammars, by hand."""

import builtins

import pytest

from vaswani.common.errors import UserError
from vaswani.demo import numerals
from vaswani.demo.quantities import Dice

pytest.importorskip("num2words")


@pytest.mark.parametrize(
    "number, language, gender, case, expected",
    [
        (1, "de", "", "nom", "eins"),
        (1, "de", "m", "nom", "ein"),
        (1, "de", "m", "acc", "einen"),
        (1, "de", "f", "acc", "eine"),
        (1, "de", "n", "dat", "einem"),
        (1, "de", "f", "dat", "einer"),
        (21, "de", "f", "acc", "einundzwanzig"),
        (16, "de", "", "nom", "sechzehn"),
        (17, "de", "", "nom", "siebzehn"),
        (30, "de", "", "nom", "dreißig"),
        (101, "de", "", "nom", "einhunderteins"),
        (347, "de", "n", "acc", "dreihundertsiebenundvierzig"),
        (3412, "de", "n", "acc", "dreitausendvierhundertzwölf"),
        (1, "fr", "f", "", "une"),
        (1, "fr", "m", "", "un"),
        (21, "fr", "f", "", "vingt et une"),
        (71, "fr", "f", "", "soixante et onze"),
        (80, "fr", "m", "", "quatre-vingts"),
        (81, "fr", "m", "", "quatre-vingt-un"),
        (81, "fr", "f", "", "quatre-vingt-une"),
        (95, "fr", "m", "", "quatre-vingt-quinze"),
        (200, "fr", "m", "", "deux cents"),
        (203, "fr", "m", "", "deux cent trois"),
        (280, "fr", "m", "", "deux cent quatre-vingts"),
        (1000, "fr", "m", "", "mille"),
        (2000, "fr", "m", "", "deux mille"),
        (347, "en", "", "", "three hundred and forty-seven"),
        (1347, "en", "", "", "one thousand three hundred and forty-seven"),
    ],
)
def test_cardinals_in_words(number, language, gender, case, expected):
    assert numerals.cardinal_words(number, language, gender, case) == expected


@pytest.mark.parametrize(
    "number, expected", [(80, "quatre-vingt"), (200, "deux cent"), (203, "deux cent trois")]
)
def test_a_french_number_that_names_has_no_plural_s(number, expected):
    assert numerals.cardinal_words(number, "fr", counted=False) == expected


@pytest.mark.parametrize(
    "number, language, ending, expected",
    [
        (3, "de", "n", "dritten"),
        (1, "de", "", "erste"),
        (7, "de", "n", "siebten"),
        (8, "de", "", "achte"),
        (20, "de", "n", "zwanzigsten"),
        (347, "de", "", "dreihundertsiebenundvierzigste"),
        (1, "fr", "", "premier"),
        (1, "fr", "f", "première"),
        (5, "fr", "", "cinquième"),
        (9, "fr", "", "neuvième"),
        (21, "fr", "", "vingt et unième"),
        (80, "fr", "", "quatre-vingtième"),
        (200, "fr", "", "deux centième"),
        (203, "en", "", "two hundred and third"),
    ],
)
def test_ordinals_in_words(number, language, ending, expected):
    assert numerals.ordinal_words(number, language, ending) == expected


def test_ordinals_in_digits():
    english = [numerals.ordinal_digits(n, "en") for n in (1, 2, 3, 11, 12, 13, 21, 112, 123)]
    assert english == ["1st", "2nd", "3rd", "11th", "12th", "13th", "21st", "112th", "123rd"]
    assert numerals.ordinal_digits(1, "de") == "1."
    french = [numerals.ordinal_digits(n, "fr", g) for n, g in ((1, "m"), (1, "f"), (2, "m"))]
    assert french == ["1er", "1re", "2e"]


@pytest.mark.parametrize(
    "year, english, german, french",
    [
        (
            1987,
            "nineteen eighty-seven",
            "neunzehnhundertsiebenundachtzig",
            "mille neuf cent quatre-vingt-sept",
        ),
        (1980, "nineteen eighty", "neunzehnhundertachtzig", "mille neuf cent quatre-vingt"),
        (1500, "fifteen hundred", "fünfzehnhundert", "mille cinq cent"),
        (2015, "twenty fifteen", "zweitausendfünfzehn", "deux mille quinze"),
    ],
)
def test_years_in_words(year, english, german, french):
    assert [numerals.year_words(year, lang) for lang in ("en", "de", "fr")] == [
        english,
        german,
        french,
    ]


def test_numbers_in_digits():
    message = [numerals.digits(123450, lang, 2) for lang in ("en", "de", "fr")]
    assert message == ["1,234.50", "1.234,50", "1 234,50"]
    assert [numerals.digits(350, lang, 1) for lang in ("en", "de", "fr")] == ["3.5", "3,5", "3,5"]
    assert [numerals.digits(9900, lang) for lang in ("en", "de", "fr")] == ["99", "99", "99"]


def test_dates():
    assert numerals.date_text(3, 3, "de") == "3. März"
    assert numerals.date_text(3, 3, "fr") == "3 mars"
    assert numerals.date_text(1, 8, "fr") == "1er août"
    assert numerals.date_words(3, 3, "en") == "third of March"
    assert numerals.date_words(3, 3, "de") == "dritten März"
    assert numerals.date_words(1, 2, "fr") == "premier février"
    assert numerals.date_words(21, 12, "fr") == "vingt et un décembre"


@pytest.mark.parametrize(
    "hour, minute, dial, english, german, french",
    [
        (14, 35, True, "2:35 pm", "14.35 Uhr", "14 h 35"),
        (21, 5, False, "21:05", "21.05 Uhr", "21 h 05"),
        (0, 7, True, "12:07 am", "0.07 Uhr", "0 h 07"),
        (12, 7, True, "12:07 pm", "12.07 Uhr", "12 h 07"),
        (14, 0, True, "2 pm", "14 Uhr", "14 h"),
    ],
)
def test_times_in_digits(hour, minute, dial, english, german, french):
    message = [numerals.clock_digits(hour, minute, lang, dial) for lang in ("en", "de", "fr")]
    assert message == [english, german, french]


@pytest.mark.parametrize(
    "hour, minute, english, german, french",
    [
        (
            14,
            35,
            "twenty-five to three in the afternoon",
            "fünf nach halb drei nachmittags",
            "trois heures moins vingt-cinq de l'après-midi",
        ),
        (
            7,
            30,
            "half past seven in the morning",
            "halb acht morgens",
            "sept heures et demie du matin",
        ),
        (
            13,
            15,
            "quarter past one in the afternoon",
            "Viertel nach eins nachmittags",
            "une heure et quart de l'après-midi",
        ),
        (
            13,
            0,
            "one o'clock in the afternoon",
            "ein Uhr nachmittags",
            "une heure de l'après-midi",
        ),
        (
            20,
            45,
            "quarter to nine in the evening",
            "Viertel vor neun abends",
            "neuf heures moins le quart du soir",
        ),
        (
            10,
            25,
            "twenty-five past ten in the morning",
            "fünf vor halb elf vormittags",
            "dix heures vingt-cinq du matin",
        ),
    ],
)
def test_times_in_words(hour, minute, english, german, french):
    message = [numerals.clock_words(hour, minute, lang) for lang in ("en", "de", "fr")]
    assert message == [english, german, french]


def test_dice_roll_as_the_mersenne_twister_does():
    """The first outputs of the generator seeded with 1, known from its documentation."""
    dice = Dice(1)
    assert [dice.between(0, 999) for _ in range(3)] == [134, 847, 763]


def test_missing_num2words_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "num2words":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"\[text\]"):
        numerals.cardinal_words(987654321, "en")  # not remembered from an earlier call
