"""The demo text: English sentences with numbers, and their German and French translations.

``generate`` fills the patterns of templates.py with the words of lexicon.py and the numbers of
quantities.py. The same call gives the same text on every machine; no number, date or amount in
the held-out parts occurs in training (split.py says what that means).
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Set, Tuple

from vaswani.common.errors import UserError
from vaswani.common.files import PathLike, atomic_write
from vaswani.demo import lexicon
from vaswani.demo.quantities import CASES, QUANTITIES, Dice, Filling
from vaswani.demo.split import PARTS
from vaswani.demo.templates import TEMPLATES

LANGUAGE_PAIRS = ("en-de", "en-fr")
SIZES = {"train": 20000, "valid": 500, "test": 500}  # sentence pairs
SEED = 2017  # the paper's year; both pairs share it, and so their English
#: raised with every change to the text, so that prepared data are made again
VERSION = 1

_SLOT = re.compile(r"\{([a-z]+)(\d?)(?::([a-z]+))?\}")
# What makes a number longer than it looks: a digit after a mark or a space, or in French, where
# the words of a number are separate, another such word.
_FRENCH_NUMBER = (
    "deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|"
    "vingts?|trente|quarante|cinquante|soixante|cents?|mille"
)
_GOES_ON_BEFORE = re.compile(rf"(\d[.,: ]|\b({_FRENCH_NUMBER}) )$")
_GOES_ON_AFTER = re.compile(rf"[.,: ]\d| ({_FRENCH_NUMBER}|et un)\b")

# Written by hand, not from the patterns of templates.py, with numbers only from the test part.
_UNSEEN = (
    "My brother sold 367 bicycles in Prague in 1929.",
    "Please call the engineer on 25 February at 9:10 pm.",
    "The teacher bought three hundred and eight lamps and paid €82.40.",
    "The night train from Venice to Oslo arrives at twenty to eleven in the evening.",
    "The theatre in Vienna was built in eighteen ninety-nine.",
)
UNSEEN_SENTENCES: Dict[str, Tuple[str, ...]] = dict.fromkeys(LANGUAGE_PAIRS, _UNSEEN)


class Example(NamedTuple):
    """A sentence pair with its numbers.

    ``values`` are the keys of its numbers, dates, times and amounts (see split.py);
    ``surfaces``, parallel to them, are the words or digits that stand for them in ``target``,
    which a right translation must contain.
    """

    source: str
    target: str
    values: Tuple[str, ...]
    surfaces: Tuple[str, ...]


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


def _any_of(rows: List[Tuple[str, ...]]) -> Callable[[Dice], Filling]:
    """A slot that takes any line of a table; a fourth cell gives the French agreement."""

    def draw(dice: Dice) -> Filling:
        row = dice.pick(rows)
        return _without_number(*row[:3], agreement=row[3] if len(row) > 3 else "")

    return draw


WORD_SLOTS: Dict[str, Callable[[Dice], Filling]] = {
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


def _fill(english: str, dice: Dice, part: str) -> Dict[str, Filling]:
    """Draw every slot of an English pattern; two slots of the same kind get different fillings."""
    fillings: Dict[str, Filling] = {}
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


def _agreement(kind: str, fillings: Dict[str, Filling]) -> str:
    """The ending of a French participle, from the slot that governs it."""
    for governor in {"e": ("who", "name"), "f": ("place", "building"), "p": ("many",)}[kind]:
        if governor in fillings:
            return fillings[governor].forms["fr:agreement"]
    raise KeyError(kind)


def _render(pattern: str, language: str, fillings: Dict[str, Filling]) -> Tuple[str, List[str]]:
    """A pattern with its slots filled, and the surfaces of its numbers in the fillings' order."""
    surfaces: Dict[str, str] = {}

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


@lru_cache(maxsize=None)
def _generate(pair: str) -> Dict[str, List[Example]]:
    """The work of ``generate``, done once per process."""
    target = pair.split("-")[1]
    dice = Dice(SEED)
    seen: Set[str] = set()
    parts: Dict[str, List[Example]] = {}
    for part in PARTS:
        parts[part] = []
        while len(parts[part]) < SIZES[part]:
            example = _make_example(dice, part, target)
            if example.source not in seen:
                seen.add(example.source)
                parts[part].append(example)
    return parts


def check_pair(pair: str) -> None:
    """Raises UserError unless the pair is one of LANGUAGE_PAIRS."""
    if pair not in LANGUAGE_PAIRS:
        raise UserError(
            f"the demo text has no language pair '{pair}': choose {' or '.join(LANGUAGE_PAIRS)}."
        )


def generate(pair: str) -> Dict[str, List[Example]]:
    """The demo text of a language pair: ``train``, ``valid`` and ``test`` (sizes in SIZES).

    Raises UserError for an unknown pair, or when num2words is not installed.
    """
    check_pair(pair)
    return {part: list(examples) for part, examples in _generate(pair).items()}


def has_number(surface: str, text: str) -> bool:
    """Whether ``text`` contains ``surface`` as a complete number.

    "47" is not in "147", "47,5" or "1 047", nor "deux cent trois" in "mille deux cent trois".
    """
    for match in re.finditer(r"(?<![\w-])" + re.escape(surface) + r"(?![\w-])", text):
        before, after = text[: match.start()], text[match.end() :]
        if not (_GOES_ON_BEFORE.search(before) or _GOES_ON_AFTER.match(after)):
            return True
    return False


def write(pair: str, directory: PathLike) -> None:
    """Write ``PART.en``, ``PART.de`` (or ``.fr``) and ``test.values.tsv`` into ``directory``.

    The table has a line for each number in the test: sentence (from 1), key, text in the target.
    Raises UserError as ``generate`` does; each file is complete or absent.
    """
    parts = generate(pair)
    source, target = pair.split("-")
    for part, examples in parts.items():
        with atomic_write(Path(directory) / f"{part}.{source}") as stream:
            stream.writelines(f"{example.source}\n" for example in examples)
        with atomic_write(Path(directory) / f"{part}.{target}") as stream:
            stream.writelines(f"{example.target}\n" for example in examples)
    with atomic_write(Path(directory) / "test.values.tsv") as stream:
        stream.write("sentence\tvalue\ttext\n")
        for number, example in enumerate(parts["test"], 1):
            for value, surface in zip(example.values, example.surfaces, strict=True):
                stream.write(f"{number}\t{value}\t{surface}\n")
