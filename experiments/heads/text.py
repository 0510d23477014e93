"""The English and German sentences of this experiment, from the words in words.yaml."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from vaswani_transformer import Vocabulary

FILE = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
WORDS = {name: [line.split() for line in lines] for name, lines in FILE["words"].items()}
HALF = len(WORDS["nouns"]) // 2
"""So many nouns, the first, are feminine."""
NOMINATIVE, DATIVE = {"f": "die", "m": "der", "n": "das"}, {"f": "der", "m": "dem", "n": "dem"}
ROLES, ORDERS = ("subject", "distractor"), ("near", "far")
HELD_OUT = 5
"""One pair in so many is the test's; a divisor of ``HALF``."""
SENTENCES = 40_000
"""Of a training."""


class Content(NamedTuple):
    """What a sentence says: the nouns by number, other words by their forms in words.yaml."""

    kind: str
    order: str
    subject: int
    distractor: int
    subject_is_plural: bool
    distractor_is_plural: bool
    #: before subject, distractor and place
    adjectives: list[list[list[str]]]
    place: list[str]
    inside: list[str]
    beside: list[str]
    adverb: list[str]
    verb: list[str]
    #: empty: the verb is in the past tense
    modal: list[str]


class Places(NamedTuple):
    """Where in a sentence the word stands, and the phrases "the … noun" of the two nouns."""

    word: int
    subject: range
    distractor: range


class Sentence(NamedTuple):
    """A pair; ``at``: in the source, ``said``: in the target.

    ``forms``: of the word in the target, the right one and the other.
    """

    source: list[str]
    target: list[str]
    at: Places
    said: Places
    forms: tuple[str, str]


def content(kind: str, order: str, test: bool, dice: random.Random) -> Content:
    """A sentence of the training or the test; coins decide each noun's gender and number."""

    def noun(those: Sequence[int]) -> int:
        feminine = dice.random() < 0.5
        return dice.choice([n for n in those if (n < HALF) == feminine])

    def allowed(name: str) -> list[int]:
        numbers = range(len(WORDS[name]))
        return [n for n in numbers if ((subject + n) % HELD_OUT == 0) == test]

    subject, is_pronoun = noun(range(2 * HALF)), kind == "pronoun"
    return Content(
        kind,
        order,
        subject=subject,
        distractor=noun([n for n in allowed("nouns") if (n - subject) % HALF]),
        subject_is_plural=not is_pronoun and dice.random() < 0.5,
        distractor_is_plural=not is_pronoun and dice.random() < 0.5,
        adjectives=[dice.sample(WORDS["adjectives"], dice.choice((0, 0, 1, 2))) for _ in range(3)],
        place=WORDS["places"][dice.choice(allowed("places"))],
        inside=dice.choice(WORDS["inside"]),
        beside=dice.choice(WORDS["beside"]),
        adverb=["", ""] if is_pronoun and dice.random() < 0.5 else dice.choice(WORDS["adverbs"]),
        verb=dice.choice(WORDS["verbs"]),
        modal=[] if dice.random() < 0.5 else dice.choice(WORDS["modals"]),
    )


def swapped(said: Content, role: str) -> Content:
    """The same with the subject or the distractor of the other gender or, for verbs, number."""
    if said.kind == "pronoun":
        other = (getattr(said, role) + HALF) % (2 * HALF)
        return (
            said._replace(subject=other) if role == "subject" else said._replace(distractor=other)
        )
    if role == "subject":
        return said._replace(subject_is_plural=not said.subject_is_plural)
    return said._replace(distractor_is_plural=not said.distractor_is_plural)


def english(said: Content) -> dict[str, str]:
    """The phrases, by their names in words.yaml."""
    before = [" ".join(adjective[0] for adjective in some) for some in said.adjectives]
    subject, distractor = WORDS["nouns"][said.subject], WORDS["nouns"][said.distractor]
    infinitive, past = said.verb[:2]
    return {
        "inside": said.inside[0],
        "its": "its",
        "place": f"{before[2]} {said.place[0]}",
        "beside": said.beside[0],
        "distractor": f"the {before[1]} {distractor[said.distractor_is_plural]}",
        "subject": f"the {before[0]} {subject[said.subject_is_plural]}",
        "verb": f"{said.modal[0].replace('_', ' ')} {infinitive}" if said.modal else past,
        "adverb": said.adverb[0],
    }


def german(said: Content) -> dict[str, str]:
    """The phrases, by their names in words.yaml."""
    ending = "en" if said.subject_is_plural else "e"
    before = [
        " ".join(adjective[1] + end for adjective in some)
        for some, end in zip(said.adjectives, (ending, "en", "en"), strict=True)
    ]
    *_, singular, plural, _, gender = WORDS["nouns"][said.subject]
    *_, dative, _, datives, gender_beside = WORDS["nouns"][said.distractor]
    _, place, gender_inside = said.place
    infinitive, past = said.verb[2], said.verb[3:]
    return {
        "inside": said.inside[1],
        "its": ("ihr" if gender == "f" else "sein") + DATIVE[gender_inside][1:],
        "place": f"{before[2]} {place}",
        "beside": said.beside[1],
        "distractor": f"den {before[1]} {datives}"
        if said.distractor_is_plural
        else f"{DATIVE[gender_beside]} {before[1]} {dative}",
        "subject": f"die {before[0]} {plural}"
        if said.subject_is_plural
        else f"{NOMINATIVE[gender]} {before[0]} {singular}",
        "verb": (said.modal[1:] or past)[said.subject_is_plural],
        "infinitive": infinitive if said.modal else "",
        "adverb": said.adverb[1],
    }


def sentence(said: Content) -> Sentence:
    """Both languages' words."""
    word = "its" if said.kind == "pronoun" else "verb"
    order = FILE["orders"][said.kind][said.order]
    forms = german(said)[word], german(swapped(said, "subject"))[word]
    source, at = laid_out(order["en"], english(said), word)
    target, places = laid_out(order["de"], german(said), word)
    return Sentence(source, target, at, places, forms)


def laid_out(order: str, phrases: dict[str, str], word: str) -> tuple[list[str], Places]:
    """The words of the phrases, and where they stand."""
    words: list[str] = []
    places: dict[str, range] = {}
    for name in order.split():
        start = len(words)
        words += phrases[name].split()
        places[name] = range(start, len(words))
    return [*words, "."], Places(places[word][0], places["subject"], places["distractor"])


def drawn(kind: str, order: str, count: int, test: bool, seed: int) -> list[Content]:
    """Sentences of a kind and order."""
    dice = random.Random(f"{kind} {order} {test} {seed}")
    return [content(kind, order, test, dice) for _ in range(count)]


def training_text(seed: int) -> list[Sentence]:
    """Half with pronouns, half with verbs of both kinds; each order as often as the other."""
    shares = {kind: SENTENCES // (4 if kind == "pronoun" else 8) for kind in FILE["orders"]}
    return [
        sentence(phrases)
        for kind, count in shares.items()
        for order in ORDERS
        for phrases in drawn(kind, order, count, False, seed)
    ]


def vocabulary() -> Vocabulary:
    """Every word of the training text, which is every word of the test."""
    text = training_text(1)
    return Vocabulary(sorted({word for pair in text for word in [*pair.source, *pair.target]}))
