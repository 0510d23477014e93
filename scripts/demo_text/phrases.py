"""The demo text: English sentences with numbers, and their German and French translations.

    python -m scripts.demo_text.phrases      writes examples/demo_text (pip install num2words)

``generate`` fills the patterns of templates.py with the words of lexicon.py and the numbers of
quantities.py. The same call gives the same text on every machine; no number, date or amount in
the held-out parts occurs in training (split.py says what that means).
"""

import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scripts.demo_text import lexicon
from scripts.demo_text.quantities import CASES, QUANTITIES, Dice, Filling
from scripts.demo_text.split import PARTS
from scripts.demo_text.templates import TEMPLATES

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "demo_text"
TARGETS = ("de", "fr")
SIZES = {"train": 20000, "valid": 500, "test": 500}  # sentence pairs
SEED = 2017  # the paper's year; both pairs share it, and so their English

_SLOT = re.compile(r"\{([a-z]+)(\d?)(?::([a-z]+))?\}")


class Example(NamedTuple):
    """A sentence pair with its numbers.

    ``values`` are the keys of its numbers, dates, times and amounts (see split.py);
    ``surfaces``, parallel to them, are the words or digits that stand for them in ``target``,
    which a right translation must contain.
    """

    source: str
    target: str
    values: tuple[str, ...]
    surfaces: tuple[str, ...]


def _without_number(english: str, german: str, french: str, **more: str) -> Filling:
    """A filling without a number, the same in every German case."""
    forms = {"en": english, "fr:": french}
    forms.update({f"de:{case}": german for case in CASES})
    forms.update({f"fr:{name}": text for name, text in more.items()})
    return Filling(forms)


def _name(dice: Dice) -> Filling:
    """A first name."""
    gender = dice.pick(("f", "m"))
    name = dice.pick(lexicon.NAMES[gender])
    return _without_number(name, name, name, agreement="e" if gender == "f" else "")


def _who(dice: Dice) -> Filling:
    """A subject: a name, or a person such as "my brother"."""
    if dice.chance(50):
        return _name(dice)
    english, german, french, gender = dice.pick(lexicon.PEOPLE)
    return _without_number(english, german, french, agreement="e" if gender == "f" else "")


def _thing(dice: Dice) -> Filling:
    """A thing with its article, in the German nominative or accusative."""
    english, german, french = dice.pick(lexicon.THINGS)
    gender, noun = german.split()
    forms = {"en": english, "fr:": french}
    forms.update({f"de:{case}": f"{lexicon.ARTICLES[gender][case]} {noun}" for case in CASES})
    return Filling(forms)


def _any_of(rows: list[tuple[str, ...]]) -> Callable[[Dice], Filling]:
    """A slot that takes any line of a table; a fourth cell gives the French agreement."""

    def draw(dice: Dice) -> Filling:
        row = dice.pick(rows)
        return _without_number(*row[:3], agreement=row[3] if len(row) > 3 else "")

    return draw


WORD_SLOTS: dict[str, Callable[[Dice], Filling]] = {
    "who": _who,
    "name": _name,
    "thing": _thing,
    "city": _any_of(lexicon.CITIES),
    "when": _any_of(lexicon.WHEN),
    "building": _any_of(lexicon.BUILDINGS),
    "place": _any_of(lexicon.PLACES),
    "vehicle": _any_of(lexicon.VEHICLES),
    "meeting": _any_of(lexicon.MEETINGS),
    "ingredient": _any_of(lexicon.INGREDIENTS),
    "liquid": _any_of(lexicon.LIQUIDS),
}


def _fill(english: str, dice: Dice, part: str) -> dict[str, Filling]:
    """Draw every slot of an English pattern; two slots of the same kind get different fillings."""
    fillings: dict[str, Filling] = {}
    for kind, number, group in _SLOT.findall(english):
        filling = None
        while filling is None or filling in fillings.values():
            filling = (
                QUANTITIES[kind](dice, part, group)
                if kind in QUANTITIES
                else WORD_SLOTS[kind](dice)
            )
        fillings[kind + number] = filling
    return fillings


def _agreement(kind: str, fillings: dict[str, Filling]) -> str:
    """The ending of a French participle, from the slot that governs it."""
    for governor in {"e": ("who", "name"), "f": ("place", "building"), "p": ("many",)}[kind]:
        if governor in fillings:
            return fillings[governor].forms["fr:agreement"]
    raise KeyError(kind)


def _render(pattern: str, language: str, fillings: dict[str, Filling]) -> tuple[str, list[str]]:
    """A pattern with its slots filled, and the surfaces of its numbers in the fillings' order."""
    surfaces: dict[str, str] = {}

    def text_of(match: "re.Match[str]") -> str:
        kind, number, form = match.groups()
        if kind in ("e", "f", "p"):
            return _agreement(kind, fillings)
        filling = fillings[kind + number]
        key = language if language == "en" else f"{language}:{form or ''}"
        if language == "de" and not form:
            key = "de:acc"
        surfaces[kind + number] = filling.surfaces.get(key, "")
        return filling.forms[key]

    text = _SLOT.sub(text_of, pattern)
    text = re.sub(r"\b([Dd])e~(?=[AEIOUYÉÈÎ])", r"\1'", text).replace("e~", "e ")
    text = text[0].upper() + text[1:]
    ordered = [surfaces[slot] for slot, filling in fillings.items() if filling.value]
    # A number that begins the sentence has been capitalised.
    return text, [
        phrase if phrase in text else phrase[0].upper() + phrase[1:] for phrase in ordered
    ]


def _make_example(dice: Dice, part: str, target: str) -> Example:
    """One sentence pair of ``part`` into language ``target``."""
    english, german, french = dice.pick(TEMPLATES)
    fillings = _fill(english, dice, part)
    source, _ = _render(english, "en", fillings)
    translation, surfaces = _render(german if target == "de" else french, target, fillings)
    values = tuple(filling.value for filling in fillings.values() if filling.value)
    return Example(source, translation, values, tuple(surfaces))


def generate(target: str) -> dict[str, list[Example]]:
    """The demo text from English: ``train``, ``valid`` and ``test`` (sizes in SIZES)."""
    dice = Dice(SEED)
    seen: set[str] = set()
    parts: dict[str, list[Example]] = {}
    for part in PARTS:
        parts[part] = []
        while len(parts[part]) < SIZES[part]:
            example = _make_example(dice, part, target)
            if example.source not in seen:
                seen.add(example.source)
                parts[part].append(example)
    return parts


def files(target: str) -> dict[str, str]:
    """The text of every file of a language pair, by name; those in English are the same in both.

    ``test.values.TARGET.tsv`` has a line for each number in the test: sentence (from 1), key, text
    in the target.
    """
    texts = {}
    for part, examples in generate(target).items():
        texts[f"{part}.en"] = "".join(f"{example.source}\n" for example in examples)
        texts[f"{part}.{target}"] = "".join(f"{example.target}\n" for example in examples)
        if part == "test":
            rows = ["sentence\tvalue\ttext\n"]
            for number, example in enumerate(examples, 1):
                for value, surface in zip(example.values, example.surfaces, strict=True):
                    rows.append(f"{number}\t{value}\t{surface}\n")
            texts[f"test.values.{target}.tsv"] = "".join(rows)
    return texts


def main() -> None:
    """Write the files, the sentences compressed."""
    for target in TARGETS:
        for name, text in files(target).items():
            if name.endswith(".tsv"):
                (FOLDER / name).write_text(text, encoding="utf-8")
            else:
                packed = lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)
                (FOLDER / f"{name}.xz").write_bytes(packed)


if __name__ == "__main__":
    main()
