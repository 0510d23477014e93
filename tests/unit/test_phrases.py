"""The demo text: is it right German and French, and the same text everywhere?"""

import hashlib

import pytest

from vaswani.common.errors import UserError
from vaswani.demo import lexicon
from vaswani.demo.phrases import (
    LANGUAGE_PAIRS,
    SIZES,
    VERSION,
    generate,
    has_number,
    write,
)
from vaswani.demo.quantities import counted
from vaswani.demo.templates import TEMPLATES

pytest.importorskip("num2words")

# Sentences of the text, translated by hand: German, French.
BY_HAND = {
    "Anna was born on the 1st of July 1908.": (
        "Anna wurde am 1. Juli 1908 geboren.",
        "Anna est née le 1er juillet 1908.",
    ),
    "The king died in Berlin on the third of January.": (
        "Der König starb am dritten Januar in Berlin.",
        "Le roi est mort à Berlin le trois janvier.",
    ),
    "The teacher paid eighty dollars for the carpet.": (
        "Die Lehrerin hat achtzig Dollar für den Teppich bezahlt.",
        "La professeure a payé quatre-vingts dollars pour le tapis.",
    ),
    "Bus two hundred and eighty stops in front of the station.": (
        "Bus zweihundertachtzig hält vor dem Bahnhof.",
        "Le bus deux cent quatre-vingt s'arrête devant la gare.",
    ),
    "The match lasts eight hundred and eighty-one minutes.": (
        "Das Spiel dauert achthunderteinundachtzig Minuten.",
        "Le match dure huit cent quatre-vingt-une minutes.",
    ),
    "Laura wants fifty-one pounds sixty-eight for the radio.": (
        "Laura will einundfünfzig Pfund achtundsechzig für das Radio haben.",
        "Laura veut cinquante et une livres soixante-huit pour la radio.",
    ),
    "In 1324, the ticket cost £4,515.97.": (
        "Im Jahr 1324 kostete die Fahrkarte 4.515,97 £.",
        "En 1324, le billet coûtait 4 515,97 £.",
    ),
    "In two thousand and four, 552 women came to Paris.": (
        "Im Jahr zweitausendvier kamen 552 Frauen nach Paris.",
        "En deux mille quatre, 552 femmes sont venues à Paris.",
    ),
    "Maria travels with fourteen players to Cologne.": (
        "Maria reist mit vierzehn Spielern nach Köln.",
        "Maria voyage avec quatorze joueurs à Cologne.",
    ),
    "The forty-first woman won a prize.": (
        "Die einundvierzigste Frau hat einen Preis gewonnen.",
        "La quarante et unième femme a gagné un prix.",
    ),
    "Emma spoke with the four hundred and sixty-first woman.": (
        "Emma hat mit der vierhunderteinundsechzigsten Frau gesprochen.",
        "Emma a parlé avec la quatre cent soixante et unième femme.",
    ),
    "The night train from Amsterdam arrives at 10:19 am.": (
        "Der Nachtzug aus Amsterdam kommt um 10.19 Uhr an.",
        "Le train de nuit d'Amsterdam arrive à 10 h 19.",
    ),
    "The train to Cologne leaves at 12:05 am.": (
        "Der Zug nach Köln fährt um 0.05 Uhr ab.",
        "Le train pour Cologne part à 0 h 05.",
    ),
    "The ferry to Hamburg leaves at half past three in the afternoon.": (
        "Die Fähre nach Hamburg fährt um halb vier nachmittags ab.",
        "Le ferry pour Hambourg part à trois heures et demie de l'après-midi.",
    ),
    "Together, 1,562 eggs cost €91.": (
        "Zusammen kosten 1.562 Eier 91 €.",
        "Ensemble, 1 562 œufs coûtent 91 €.",
    ),
}


@pytest.mark.parametrize("pair, column", [("en-de", 0), ("en-fr", 1)])
def test_sentences_are_translated_as_by_hand(pair, column):
    targets = {e.source: e.target for part in generate(pair).values() for e in part}
    for english, translations in BY_HAND.items():
        assert targets[english] == translations[column]


def test_a_counted_noun_agrees_with_its_number():
    lamp, table, child = (
        next(noun for group in lexicon.NOUNS.values() for noun in group if noun.en == english)
        for english in ("lamp", "table", "child")
    )
    one = [counted(1, noun, True).forms for noun in (lamp, table, child)]
    assert [forms["de:acc"] for forms in one] == ["eine Lampe", "einen Tisch", "ein Kind"]
    assert [forms["de:dat"] for forms in one] == ["einer Lampe", "einem Tisch", "einem Kind"]
    assert [forms["fr:"] for forms in one] == ["une lampe", "une table", "un enfant"]
    assert one[0]["en"] == "one lamp"
    assert counted(3, child, False).forms["de:dat"] == "3 Kindern"
    assert counted(3, lamp, True).forms["de:dat"] == "drei Lampen"
    assert counted(21, lamp, True).forms["fr:"] == "vingt et une lampes"


@pytest.mark.parametrize("pair", LANGUAGE_PAIRS)
def test_sizes_and_no_source_twice(pair):
    parts = generate(pair)
    assert {part: len(examples) for part, examples in parts.items()} == {
        "train": 20000,
        "valid": 500,
        "test": 500,
    }
    sources = [example.source for examples in parts.values() for example in examples]
    assert len(set(sources)) == sum(SIZES.values())
    assert all(example.values for examples in parts.values() for example in examples)


def test_one_source_has_one_target():
    """Also beyond the sentences drawn: no English pattern or word stands twice in the tables."""
    tables = [lexicon.PEOPLE, lexicon.CITIES, lexicon.WHEN, lexicon.THINGS, lexicon.BUILDINGS]
    for english in (
        [pattern[0] for pattern in TEMPLATES],
        [row[0] for table in tables for row in table],
    ):
        assert len(english) == len(set(english))
    meaning = {}
    for noun in (noun for group in lexicon.NOUNS.values() for noun in group):
        assert meaning.setdefault(noun.en_plural, noun) == noun


@pytest.mark.parametrize("pair", LANGUAGE_PAIRS)
def test_the_numbers_are_in_the_target(pair):
    for examples in generate(pair).values():
        for example in examples:
            assert len(example.surfaces) == len(example.values)
            assert all(has_number(text, example.target) for text in example.surfaces), example


def test_a_number_counts_only_when_it_is_whole():
    assert has_number("47", "Es sind 47 Kinder.") and has_number("47", "Zimmer 47.")
    for text in ("147 Kinder", "47,5 Liter", "1.047 Kinder", "1 047 enfants", "47 500 enfants"):
        assert not has_number("47", text)
    assert not has_number("deux cent trois", "mille deux cent trois livres")
    assert not has_number("deux cent", "deux cent trois livres")
    assert has_number("deux cent trois", "avec deux cent trois amis")
    assert not has_number("siebenundvierzig", "dreihundertsiebenundvierzig Kinder")


@pytest.mark.parametrize("pair", LANGUAGE_PAIRS)
def test_targets_survive_tokenisation(pair):
    """Else a perfect translation, detokenised, could not equal its reference."""
    moses = pytest.importorskip("sacremoses")
    language = pair.split("-")[1]
    tokenizer, joiner = moses.MosesTokenizer(language), moses.MosesDetokenizer(language)
    for example in generate(pair)["test"][:200]:
        assert joiner.detokenize(tokenizer.tokenize(example.target)) == example.target


@pytest.mark.parametrize(
    "pair, fingerprint", [("en-de", "3719c772343d758d"), ("en-fr", "348bcd9543e04582")]
)
def test_the_text_is_the_same_everywhere(pair, fingerprint):
    """A guard, not a proof of correctness: the published scores belong to exactly this text."""
    text = "".join(
        f"{part}\t{example.source}\t{example.target}\n"
        for part, examples in generate(pair).items()
        for example in examples
    )
    found = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
    assert (VERSION, found) == (1, fingerprint), "another text: raise phrases.VERSION"


def test_write(tmp_path):
    write("en-de", tmp_path)
    lines = {
        path.name: path.read_text(encoding="utf-8").splitlines() for path in tmp_path.iterdir()
    }
    assert set(lines) == {
        *(f"{part}.{language}" for part in SIZES for language in ("en", "de")),
        "test.values.tsv",
    }
    for part, size in SIZES.items():
        assert len(lines[f"{part}.en"]) == len(lines[f"{part}.de"]) == size
    test = generate("en-de")["test"]
    rows = [line.split("\t") for line in lines["test.values.tsv"]]
    assert rows[0] == ["sentence", "value", "text"]
    assert len(rows) == 1 + sum(len(example.values) for example in test)
    for number, _, text in rows[1:]:
        assert text in lines["test.de"][int(number) - 1]


def test_an_unknown_pair_is_refused():
    with pytest.raises(UserError, match="'en-it': choose en-de or en-fr"):
        generate("en-it")
