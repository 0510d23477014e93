"""The split of the demo text: nothing that is tested is read in training, in any form."""

import re

import pytest

from vaswani.demo import numerals, split
from vaswani.demo.phrases import LANGUAGE_PAIRS, UNSEEN_SENTENCES, generate

num2words = pytest.importorskip("num2words").num2words

HELD_OUT = ("valid", "test")


def parts_of_dates(key):
    """Every key that ``key`` tells: a full date also its day and its year."""
    if key.startswith("date:") and key.count("-") == 2:
        year, month, day = key[5:].split("-")
        return {key, f"date:{month}-{day}", f"number:{year}"}
    return {key}


@pytest.mark.parametrize("pair", LANGUAGE_PAIRS)
def test_no_value_is_in_two_parts(pair):
    values = {
        part: set().union(*(parts_of_dates(key) for example in examples for key in example.values))
        for part, examples in generate(pair).items()
    }
    assert not values["train"] & (values["valid"] | values["test"])
    assert not values["valid"] & values["test"]
    assert len(values["test"]) > 300  # the test is not the same few numbers again and again


def number_surfaces(number, language):
    """All ways to write an integer or a decimal (a string), from num2words and by hand."""
    marks = {"en": ",.", "de": ".,", "fr": " ,"}[language]
    if "." in number:
        whole, decimals = number.split(".")
        texts = [f"{int(whole):,}.{decimals}", f"{int(whole):,}.{decimals:0<2}"]
        said = [num2words(int(part), lang=language) for part in (whole, decimals.ljust(2, "0"))]
        names = ["euros", "dollars", "pounds", "Euro", "Dollar", "Pfund", "livres"]
        words = [f"{said[0]} {name} {said[1]}" for name in names]
    else:
        texts = [f"{int(number):,}"]
        words = [num2words(int(number), lang=language, to=k) for k in ("cardinal", "year")]
        ordinal = num2words(int(number), lang=language, to="ordinal")
        words += [ordinal, f"{ordinal}n"]
        words += [word[:-1] for word in words if word.endswith(("cents", "vingts"))]
        words += [f"{word}e" for word in words if word.endswith("un")]
    surfaces = {text.translate(str.maketrans(",.", marks)) for text in texts}
    if "." not in number:
        endings = ("", "st", "nd", "rd", "th") if language == "en" else ("", "e", "er", "re")
        surfaces |= {number + ending for ending in endings}
    return {text.lower() for text in surfaces} | {word.replace(",", "").lower() for word in words}


def date_surfaces(key, language):
    """A day and month ("date:03-31") as each language writes it, in digits and words."""
    month, day = (int(part) for part in key[5:].split("-"))
    name = numerals.MONTHS[language].split()[month - 1].lower()
    ordinal = num2words(day, lang=language, to="ordinal")
    if language == "en":
        digits = [f"{day}{ending}" for ending in ("st", "nd", "rd", "th")]
        return {f"{day} {name}", *(f"{text} of {name}" for text in [*digits, ordinal])}
    if language == "de":
        return {f"{day}. {name}", f"{ordinal}n {name}"}
    return {f"{text} {name}" for text in (str(day), "1er", num2words(day, lang="fr"), ordinal)} - (
        {f"1er {name}"} if day != 1 else set()
    )


def time_surfaces(key, language):
    """A time in digits on both clocks and, in English and German, as one says it."""
    hour, minute = (int(part) for part in key[5:].split(":"))
    form = {"en": "{}:{:02d}", "de": "{}.{:02d} uhr", "fr": "{} h {:02d}"}[language]
    texts = {form.format(h, minute) for h in {hour % 12, hour % 12 + 12, (hour % 12) or 12}}
    past, distance = minute < 30, min(minute, 60 - minute)
    if language == "fr" or distance % 5 or (language == "de" and distance == 25):
        return texts
    named = num2words((hour if past else hour + 1) % 12 or 12, lang=language)
    quarter, after, before = {"en": ("quarter", "past", "to"), "de": ("viertel", "nach", "vor")}[
        language
    ]
    said = quarter if distance == 15 else num2words(distance, lang=language)
    return texts | {f"{said} {after if past else before} {named}"}


def surfaces_of(key, language):
    """Every text of a key in a language."""
    kind, value = key.split(":", 1)
    if kind == "number":
        return number_surfaces(value, language)
    return date_surfaces(key, language) if kind == "date" else time_surfaces(key, language)


def phrases_of(sentence):
    """Every run of up to nine words, in lower case, without the marks and signs at its ends."""
    words = [word for word in re.split(r"\s+", sentence.lower().replace("'", "' ")) if word]
    for start in range(len(words)):
        for end in range(start + 1, min(start + 9, len(words)) + 1):
            phrase = " ".join(words[start:end])
            yield phrase.strip("€$£,?! ")
            yield phrase.strip("€$£,.?! ")


@pytest.mark.parametrize("pair", LANGUAGE_PAIRS)
def test_no_held_out_number_is_written_in_training(pair):
    """By the text alone, not by ``values``: a naive search of training for the held-out numbers."""
    parts = generate(pair)
    keys = {
        key
        for part in HELD_OUT
        for example in parts[part]
        for value in example.values
        for key in parts_of_dates(value)
        if not (key.startswith("date:") and key.count("-") == 2)
    }
    for language, side in zip(pair.split("-"), ("source", "target"), strict=True):
        held_out = {surface: key for key in keys for surface in surfaces_of(key, language)}
        training = {
            phrase for example in parts["train"] for phrase in phrases_of(getattr(example, side))
        }
        assert not {text: held_out[text] for text in training & set(held_out)}
        # The same search does find the numbers of the test where they are.
        found = {
            held_out[phrase]
            for part in HELD_OUT
            for example in parts[part]
            for phrase in phrases_of(getattr(example, side))
            if phrase in held_out
        }
        assert len(found) > 0.9 * len(keys)


def test_what_a_value_is():
    """The same value has one key in every form; what is read inside a number is not held out."""
    assert split.number_key(35000) == "number:350"
    assert split.number_key(350) == "number:3.5"
    assert split.date_key(3, 3, 1987) == "date:1987-03-03"
    assert split.date_key(3, 3) == "date:03-03"
    assert split.time_key(14, 5) == "time:14:05"
    held = next(n for n in range(201, 999) if split.number_part(100 * n) == "test")
    for number in (held, 1000 + held, 1000 * held + 30):
        assert not split.number_fits(100 * number, "train")
    assert not split.number_fits(100 * held + 50, "train")  # 347.50 is not read in training either
    assert all(split.number_part(100 * n) == "train" for n in [*range(201), 340, 2000, 1006])
    assert all(
        split.time_part(h, m) == split.time_part(h + 12, m) for h in range(12) for m in range(60)
    )


def test_unseen_sentences_hold_numbers_of_the_test_and_no_known_sentence():
    values = {  # read off the sentences by hand
        "number": [36700, 192900, 30800, 8240, 189900],
        "time": [(21, 10), (22, 40)],
        "date": [(25, 2)],
    }
    assert {split.number_part(number) for number in values["number"]} == {"test"}
    assert {split.time_part(*time) for time in values["time"]} == {"test"}
    assert split.date_parts(*values["date"][0]) == ["test"]
    for pair in LANGUAGE_PAIRS:
        sources = {example.source for part in generate(pair).values() for example in part}
        assert len(UNSEEN_SENTENCES[pair]) == 5
        assert not sources & set(UNSEEN_SENTENCES[pair])
