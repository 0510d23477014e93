"""Splits Tatoeba's English-German pairs so that no test sentence has a twin in training.

    python scripts/tatoeba_split.py FOLDER OUT             the text of the tutorial and experiments
    python scripts/tatoeba_split.py FOLDER OUT --copies    that of models/tatoeba_en_de

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
  5 % more without the final punctuation; with `--copies`, also 4 % more with an invented name,
  number, year, time or e-mail address that is the same on both sides, alone or in a short sentence
"""

import argparse
import gzip
import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

Pair = tuple[str, str]
HELD_OUT = 1500  # pairs of each of the three held-out parts, for clusters about that many
LARGEST = 20  # pairs of a held-out cluster: a larger one would be a test of one sentence
SEED = 1
#: of which FOLDER has one
NAMES = ("deu.txt", "train.en", "train.en.gz")
WORD = re.compile(r"\w+")
#: per hundred training pairs, how many have something that the translation copies
COPIES = 4
FIRST_NAMES = """\
Anna Ben Clara David Elena Felix Greta Hannah Igor Jonas Karim Laura Marta Nina Omar Paul Rosa Sofia
Theo Vera Walter Yusuf Zoe Alice Bob Carol Daniel Eva Frank Helen Jane Kevin
"""
SYLLABLES = """\
ba bel cor da dan el fi gar ha jo ka kel la lin ma mor na nor ol pe ra rin sa ta tor vi wen
"""
ENDINGS = ("com", "de", "org", "net", "eu")
#: of the English, then the German lines that models/tatoeba_en_de was trained on: those of the
#: file of 2018-05-13 less 3,000 pairs that were set aside
TEXT = "0c894f9aba40117a5715a24e3904ae58dd9e67e560b00820d3836a4859ccdcd2"


def read(folder: Path) -> list[Pair]:
    """Return the pairs of ``deu.txt`` or of ``train.en`` and ``train.de``, in their order."""
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
    """Return words that both sides of at least five pairs spell alike, usually with a capital."""
    shared: Counter = Counter()
    lower: Counter = Counter()
    for english, german in pairs:
        words = set(WORD.findall(english))
        shared.update(word for word in words & set(WORD.findall(german)) if word.istitle())
        lower.update(word.title() for word in words if word.islower())
    names = {word for word, count in shared.items() if count >= 5 and lower[word] < count}
    return names | {"Mary", "Maria"}  # which one translates into the other


def mask(sentence: str, names: set[str]) -> str:
    """Return the sentence without case, punctuation, numbers and first names.

    >>> mask("Tom has 3 dogs.", {"Tom"}) == mask("Mary has 12 dogs!", {"Mary"})
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
    """Group the indices of pairs that an equal masked side connects (union-find)."""
    names = first_names(pairs)
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    seen: dict[tuple[int, str], int] = {}
    for index, pair in enumerate(pairs):
        for side, sentence in enumerate(pair):
            other = seen.setdefault((side, mask(sentence, names)), index)
            parent[root(index)] = root(other)
    clusters_by_root: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        clusters_by_root.setdefault(root(index), []).append(index)
    return list(clusters_by_root.values())


def split(pairs: list[Pair], generator: random.Random) -> dict[str, list[Pair]]:
    """Split the pairs into four parts that share no pair."""
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
    """Return more pairs for training: longer ones, and English as people type it."""
    more = []
    for _ in range(len(pairs) * 15 // 100):
        first, second = generator.choice(pairs), generator.choice(pairs)
        more.append((f"{first[0]} {second[0]}", f"{first[1]} {second[1]}"))
    for english, german in generator.sample(pairs, len(pairs) // 10):
        if generator.random() < 0.5:
            english, german = english.rstrip(".!?"), german.rstrip(".!?")
        more.append((english.lower(), german))
    for english, german in generator.sample(pairs, len(pairs) // 20):
        more.append((english.rstrip(".!?"), german.rstrip(".!?")))
    return more


# ---- what is the same in both languages --------------------------------------------------------


def invented_word(generator: random.Random) -> str:
    """Return a word of two or three syllables, in lower case."""
    return "".join(generator.choices(SYLLABLES.split(), k=generator.choice((2, 3))))


def name(generator: random.Random) -> str:
    """Return a first name, an invented name, or one of each."""
    first = generator.choice(FIRST_NAMES.split())
    invented = invented_word(generator).title()
    return generator.choice((first, invented, f"{first} {invented}"))


def number(generator: random.Random) -> str:
    """Return a number of one to five digits; more digits are rarer."""
    return str(int(10 ** generator.triangular(0, 5, 1)))


def year(generator: random.Random) -> str:
    """Return a year from 1700 on."""
    return str(generator.randint(1700, 2039))


def time(generator: random.Random) -> str:
    """Return a time of day, such as 7:45."""
    return f"{generator.randint(0, 23)}:{generator.randrange(0, 60, 5):02}"


def address(generator: random.Random) -> str:
    """Return an e-mail address."""
    first = generator.choice(FIRST_NAMES.split()).lower()
    user = generator.choice(
        (first, f"{first}.{invented_word(generator)}", invented_word(generator))
    )
    return f"{user}@{invented_word(generator)}.{generator.choice(ENDINGS)}"


#: what makes something to copy, and the pairs it may stand in
Kind = tuple[Callable[[random.Random], str], list[Pair]]
KINDS: list[Kind] = [
    (
        name,
        [
            ("{}", "{}"),
            ("{}?", "{}?"),
            ("Hello, {}!", "Hallo, {}!"),
            ("My name is {}.", "Ich heiße {}."),
            ("Is this {}?", "Ist das {}?"),
            ("Where is {}?", "Wo ist {}?"),
            ("I know {}.", "Ich kenne {}."),
            ("I am waiting for {}.", "Ich warte auf {}."),
            ("{} called me yesterday.", "{} hat mich gestern angerufen."),
            ("{} lives here.", "{} wohnt hier."),
            ("We talked about {}.", "Wir haben über {} gesprochen."),
            ("{} bought a new car.", "{} hat ein neues Auto gekauft."),
            ("I wrote a letter to {}.", "Ich habe {} einen Brief geschrieben."),
        ],
    ),
    (
        number,
        [
            ("{}", "{}"),
            ("Number {}.", "Nummer {}."),
            ("The answer is {}.", "Die Antwort ist {}."),
            ("Room {}, please.", "Zimmer {}, bitte."),
            ("It costs {} dollars.", "Es kostet {} Dollar."),
            ("I paid {} euros for it.", "Ich habe {} Euro dafür bezahlt."),
            ("There were {} people there.", "Es waren {} Leute da."),
            ("It weighs {} kilograms.", "Es wiegt {} Kilogramm."),
            ("I counted to {}.", "Ich habe bis {} gezählt."),
        ],
    ),
    (
        year,
        [
            ("{}", "{}"),
            ("In {}.", "Im Jahr {}."),
            ("Since {}.", "Seit {}."),
            ("I was born in {}.", "Ich wurde {} geboren."),
            ("He died in {}.", "Er ist {} gestorben."),
            ("We met in {}.", "Wir haben uns {} kennengelernt."),
            ("I have known her since {}.", "Ich kenne sie seit {}."),
            ("The house was built in {}.", "Das Haus wurde im Jahr {} gebaut."),
        ],
    ),
    (
        time,
        [
            ("{}", "{}"),
            ("It is {}.", "Es ist {} Uhr."),
            ("At {}.", "Um {} Uhr."),
            ("Come at {}.", "Komm um {} Uhr."),
            ("I got up at {}.", "Ich bin um {} Uhr aufgestanden."),
            ("The bus leaves at {}.", "Der Bus fährt um {} Uhr ab."),
            ("See you tomorrow at {}.", "Wir sehen uns morgen um {} Uhr."),
        ],
    ),
    (
        address,
        [
            ("{}", "{}"),
            ("Write to {}.", "Schreib an {}."),
            ("My e-mail address is {}.", "Meine E-Mail-Adresse ist {}."),
            ("Is {} your address?", "Ist {} deine Adresse?"),
            ("You can reach me at {}.", "Du kannst mich unter {} erreichen."),
        ],
    ),
]


def copies(
    count: int, held_out: list[Pair], names: set[str], generator: random.Random
) -> list[Pair]:
    """Return pairs for training with an invented name or number, the same on both sides.

    Args:
        count: number of pairs
        held_out: pairs of which none may be a twin of a training pair
        names: first names, which do not tell twins apart
        generator: random generator
    """
    twins = [{mask(pair[side], names) for pair in held_out} for side in (0, 1)]

    def is_twin(pair: Pair, example: str) -> bool:
        return any(mask(pair[side].format(example), names) in twins[side] for side in (0, 1))

    kinds: list[Kind] = []
    for make, pairs in KINDS:
        example = "Tom" if make is name else make(generator)
        kinds.append((make, [pair for pair in pairs if not is_twin(pair, example)]))
    made = []
    for _ in range(count):
        make, pairs = generator.choice(kinds)
        english, german = generator.choice(pairs)
        copied = make(generator)
        made.append((english.format(copied), german.format(copied)))
    return made


def main() -> int:
    """Write the parts, and print how many pairs each has."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder of Tatoeba's sentence pairs"
    )
    options.add_argument("out", type=Path, metavar="OUT", help="output folder")
    options.add_argument("--copies", action="store_true", help="add names, numbers … to copy")
    args = options.parse_args()
    folder, out = args.folder, args.out
    if not any((folder / name).exists() for name in NAMES):
        options.error(f"{folder} has neither deu.txt nor train.en and train.de, plain or .gz")
    if out.exists():
        options.error(f"{out} is there already: remove it, or name another folder")
    generator = random.Random(SEED)
    pairs = read(folder)
    joined = "".join(line + "\n" for side in zip(*pairs, strict=True) for line in side)
    if hashlib.sha256(joined.encode()).hexdigest() != TEXT:
        print(f"{len(pairs):,} pairs, not the text of the recorded figures: yours will differ")
    parts = split(pairs, generator)
    count = len(parts["train"]) * COPIES // 100
    held_out = parts["valid"] + parts["test_clusters"]
    parts["train"] += as_typed(parts["train"], generator)
    if args.copies:
        parts["train"] += copies(count, held_out, first_names(pairs), generator)
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
