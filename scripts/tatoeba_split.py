"""Splits Tatoeba's English-German pairs so that no test sentence has a twin in training.

    python scripts/tatoeba_split.py FOLDER OUT

FOLDER holds deu.txt (from deu-eng.zip of manythings.org/anki), or train.en and train.de, plain or
.gz.

Many sentences of Tatoeba differ in a name or a number alone ("Tom is here.", "Mary is here!"), and
one sentence has several translations. Two pairs belong to one cluster if their English *or* their
German is the same but for case, punctuation, numbers and first names. OUT gets these, as PART.en
and PART.de:

- `valid`, `test_clusters`: whole clusters, so neither side has a twin in training
- `test_random`: pairs drawn at random, as usually done: their twins stay in training
- `train`: the other pairs, and made from them, so that the model copes with what people type:
  15 % more of two pairs in a row, 10 % more with the English in lower case, half of those and
  5 % more without the final punctuation
"""

import gzip
import hashlib
import random
import re
import sys
from collections import Counter
from pathlib import Path

Pair = tuple[str, str]
HELD_OUT = 1500  # pairs of each of the three held-out parts, for clusters about that many
LARGEST = 20  # pairs of a held-out cluster: a larger one would be a test of one sentence
SEED = 1
WORD = re.compile(r"\w+")
#: of the English, then the German lines that models/tatoeba_en_de was trained on: those of the
#: file of 2018-05-13 less 3,000 pairs that were set aside
TEXT = "0c894f9aba40117a5715a24e3904ae58dd9e67e560b00820d3836a4859ccdcd2"


def read(folder: Path) -> list[Pair]:
    """The pairs of ``deu.txt`` or of ``train.en`` and ``train.de``, in their order."""
    if (folder / "deu.txt").exists():
        rows = (folder / "deu.txt").read_text(encoding="utf-8").splitlines()
        return [(english, german) for english, german in (row.split("\t")[:2] for row in rows)]

    def lines(language: str) -> list[str]:
        plain = folder / f"train.{language}"
        if plain.exists():
            return plain.read_text(encoding="utf-8").split("\n")[:-1]
        with gzip.open(f"{plain}.gz", "rt", encoding="utf-8", newline="\n") as file:
            return file.read().split("\n")[:-1]

    return list(zip(lines("en"), lines("de"), strict=True))


def first_names(pairs: list[Pair]) -> set[str]:
    """Words that both sides of at least five pairs spell alike, with a capital in most places."""
    shared: Counter = Counter()
    lower: Counter = Counter()
    for english, german in pairs:
        words = set(WORD.findall(english))
        shared.update(word for word in words & set(WORD.findall(german)) if word.istitle())
        lower.update(word.title() for word in words if word.islower())
    names = {word for word, count in shared.items() if count >= 5 and lower[word] < count}
    return names | {"Mary", "Maria"}  # which one translates into the other


def masked(sentence: str, names: set[str]) -> str:
    """The sentence without case, punctuation, numbers and first names.

    >>> masked("Tom has 3 dogs.", {"Tom"}) == masked("Mary has 12 dogs!", {"Mary"})
    True
    """
    words = WORD.findall(sentence)
    return " ".join(
        "*"
        if word.removesuffix("s") in names or word in names
        else "0"
        if word.isdigit()
        else word.lower()
        for word in words
    )


def clusters(pairs: list[Pair]) -> list[list[int]]:
    """Indices of pairs, those connected by an equal masked side together (union-find)."""
    names = first_names(pairs)
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    seen: dict[tuple[int, str], int] = {}
    for index, pair in enumerate(pairs):
        for side, sentence in enumerate(pair):
            other = seen.setdefault((side, masked(sentence, names)), index)
            parent[root(index)] = root(other)
    found: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        found.setdefault(root(index), []).append(index)
    return list(found.values())


def split(pairs: list[Pair], generator: random.Random) -> dict[str, list[Pair]]:
    """The four parts; a pair is in one of them."""
    groups = clusters(pairs)
    generator.shuffle(groups)
    parts: dict[str, list[Pair]] = {"valid": [], "test_clusters": []}
    rest: list[int] = []
    for group in groups:
        part = next((p for p in parts.values() if len(p) < HELD_OUT), None)
        if part is None or len(group) > LARGEST:
            rest += group
        else:
            part += [pairs[index] for index in group]
    rest.sort()
    drawn = set(generator.sample(rest, HELD_OUT))
    parts["test_random"] = [pairs[index] for index in sorted(drawn)]
    parts["train"] = [pairs[index] for index in rest if index not in drawn]
    return parts


def as_typed(pairs: list[Pair], generator: random.Random) -> list[Pair]:
    """More pairs for training, made from ``pairs``: longer ones, and English as people type it."""
    more = []
    for _ in range(len(pairs) * 15 // 100):
        one, other = generator.choice(pairs), generator.choice(pairs)
        more.append((f"{one[0]} {other[0]}", f"{one[1]} {other[1]}"))
    for english, german in generator.sample(pairs, len(pairs) // 10):
        if generator.random() < 0.5:
            english, german = english.rstrip(".!?"), german.rstrip(".!?")
        more.append((english.lower(), german))
    for english, german in generator.sample(pairs, len(pairs) // 20):
        more.append((english.rstrip(".!?"), german.rstrip(".!?")))
    return more


def main() -> int:
    """Write the parts, and print how many pairs each has."""
    folder, out = map(Path, sys.argv[1:])
    generator = random.Random(SEED)
    pairs = read(folder)
    joined = "".join(line + "\n" for side in zip(*pairs, strict=True) for line in side)
    if hashlib.sha256(joined.encode()).hexdigest() != TEXT:
        print(f"{len(pairs):,} pairs, not the text of the recorded figures: yours will differ")
    parts = split(pairs, generator)
    parts["train"] += as_typed(parts["train"], generator)
    unfinished = out.with_name(f"{out.name}.part")  # so that half a split has not the name of one
    unfinished.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (unfinished / f"{part}.{language}").write_text(text, encoding="utf-8")
        print(f"{part}: {len(pairs):,} pairs")
    unfinished.rename(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
