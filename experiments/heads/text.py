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
NOMINATIVE = {"f": "die", "m": "der", "n": "das"}
DATIVE = {"f": "der", "m": "dem", "n": "dem"}
ROLES = ("subject", "distractor")
ORDERS = ("near", "far")
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
    """A pair, and where the word and the two nouns stand in both.

    ``forms``: of the word in the target, the correct one and the wrong one.
    """

    source: list[str]
    target: list[str]
    source_places: Places
    target_places: Places
    forms: tuple[str, str]


def random_content(kind: str, order: str, test: bool, rng: random.Random) -> Content:
    """Return a random sentence of the training or the test."""

    def noun(candidates: Sequence[int]) -> int:
        feminine = rng.random() < 0.5
        return rng.choice([n for n in candidates if (n < HALF) == feminine])

    def allowed_numbers(name: str) -> list[int]:
        numbers = range(len(WORDS[name]))
        return [n for n in numbers if ((subject + n) % HELD_OUT == 0) == test]

    subject = noun(range(2 * HALF))
    is_pronoun = kind == "pronoun"
    return Content(
        kind,
        order,
        subject=subject,
        distractor=noun([n for n in allowed_numbers("nouns") if (n - subject) % HALF]),
        subject_is_plural=not is_pronoun and rng.random() < 0.5,
        distractor_is_plural=not is_pronoun and rng.random() < 0.5,
        adjectives=[rng.sample(WORDS["adjectives"], rng.choice((0, 0, 1, 2))) for _ in range(3)],
        place=WORDS["places"][rng.choice(allowed_numbers("places"))],
        inside=rng.choice(WORDS["inside"]),
        beside=rng.choice(WORDS["beside"]),
        adverb=["", ""] if is_pronoun and rng.random() < 0.5 else rng.choice(WORDS["adverbs"]),
        verb=rng.choice(WORDS["verbs"]),
        modal=[] if rng.random() < 0.5 else rng.choice(WORDS["modals"]),
    )


def replace_noun(content: Content, role: str) -> Content:
    """Return the sentence with the subject or distractor in another gender or number."""
    if content.kind == "pronoun":
        other = (getattr(content, role) + HALF) % (2 * HALF)
        return content._replace(**{role: other})
    if role == "subject":
        return content._replace(subject_is_plural=not content.subject_is_plural)
    return content._replace(distractor_is_plural=not content.distractor_is_plural)


def english(content: Content) -> dict[str, str]:
    """Return the English phrases, by their names in words.yaml."""
    before = [" ".join(adjective[0] for adjective in some) for some in content.adjectives]
    subject, distractor = WORDS["nouns"][content.subject], WORDS["nouns"][content.distractor]
    infinitive, past = content.verb[:2]
    return {
        "inside": content.inside[0],
        "its": "its",
        "place": f"{before[2]} {content.place[0]}",
        "beside": content.beside[0],
        "distractor": f"the {before[1]} {distractor[content.distractor_is_plural]}",
        "subject": f"the {before[0]} {subject[content.subject_is_plural]}",
        "verb": f"{content.modal[0].replace('_', ' ')} {infinitive}" if content.modal else past,
        "adverb": content.adverb[0],
    }


def german(content: Content) -> dict[str, str]:
    """Return the German phrases, by their names in words.yaml."""
    ending = "en" if content.subject_is_plural else "e"
    before = [
        " ".join(adjective[1] + end for adjective in some)
        for some, end in zip(content.adjectives, (ending, "en", "en"), strict=True)
    ]
    *_, singular, plural, _, gender = WORDS["nouns"][content.subject]
    *_, dative, _, datives, gender_beside = WORDS["nouns"][content.distractor]
    _, place, gender_inside = content.place
    infinitive = content.verb[2]
    past = content.verb[3:]
    return {
        "inside": content.inside[1],
        "its": ("ihr" if gender == "f" else "sein") + DATIVE[gender_inside][1:],
        "place": f"{before[2]} {place}",
        "beside": content.beside[1],
        "distractor": f"den {before[1]} {datives}"
        if content.distractor_is_plural
        else f"{DATIVE[gender_beside]} {before[1]} {dative}",
        "subject": f"die {before[0]} {plural}"
        if content.subject_is_plural
        else f"{NOMINATIVE[gender]} {before[0]} {singular}",
        "verb": (content.modal[1:] or past)[content.subject_is_plural],
        "infinitive": infinitive if content.modal else "",
        "adverb": content.adverb[1],
    }


def sentence(content: Content) -> Sentence:
    """Return a sentence's words in both languages."""
    word = "its" if content.kind == "pronoun" else "verb"
    order = FILE["orders"][content.kind][content.order]
    forms = german(content)[word], german(replace_noun(content, "subject"))[word]
    source, source_places = lay_out(order["en"], english(content), word)
    target, target_places = lay_out(order["de"], german(content), word)
    return Sentence(source, target, source_places, target_places, forms)


def lay_out(order: str, phrases: dict[str, str], word: str) -> tuple[list[str], Places]:
    """Return the words of the phrases, and their positions."""
    words: list[str] = []
    places: dict[str, range] = {}
    for name in order.split():
        start = len(words)
        words += phrases[name].split()
        places[name] = range(start, len(words))
    return [*words, "."], Places(places[word][0], places["subject"], places["distractor"])


def random_contents(kind: str, order: str, count: int, test: bool, seed: int) -> list[Content]:
    """Return random contents of a kind and order, the same for the same seed."""
    rng = random.Random(f"{kind} {order} {test} {seed}")
    return [random_content(kind, order, test, rng) for _ in range(count)]


def training_text(seed: int) -> list[Sentence]:
    """Return the sentences of the training, the same for the same seed.

    Half have pronouns, a quarter verbs of either kind; each order is as frequent as the other.
    """
    shares = {kind: SENTENCES // (4 if kind == "pronoun" else 8) for kind in FILE["orders"]}
    sentences = []
    for kind, count in shares.items():
        for order in ORDERS:
            for content in random_contents(kind, order, count, False, seed):
                sentences.append(sentence(content))
    return sentences


def vocabulary() -> Vocabulary:
    """Return every word of the training text, which is every word of the test."""
    words: set[str] = set()
    for pair in training_text(1):
        words.update(pair.source, pair.target)
    return Vocabulary(sorted(words))
