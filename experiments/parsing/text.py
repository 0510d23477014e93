"""Source and target of the trees: tags, or words with classes for the rare ones, and brackets."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.data.binarise import binarise
from vaswani.data.text import write_lines
from vaswani.data.trees import Tree, linearise, read_trees
from vaswani.folders.recipe import Recipe

TREES = Path("data/trees")
FILES = {"train": "train.ptb.xz", "valid": "dev.ptb", "test": "test.ptb"}
TARGET = "trees"
Trees = dict[str, list[Tree]]


def find_trees() -> Trees:
    """Return the trees of each set.

    Raises:
        UserError: a file is missing.
    """
    missing = [name for name in FILES.values() if not (TREES / name).is_file()]
    if missing:
        raise UserError(f"{TREES} has no {', '.join(missing)}: one tree a line, in Penn brackets")
    return {split: read_trees(TREES / name) for split, name in FILES.items()}


def suffix_class(word: str) -> str:
    """Return the class of a rare word: capital, digits, hyphens, and its last two letters."""
    capital = "A" if word[0].isupper() else ""
    digit = "0" if any(letter.isdigit() for letter in word) else ""
    hyphen = "-" if "-" in word else ""
    ending = word[-2:].lower() if word[-2:].isalpha() else ""
    return f"<{capital}{digit}{hyphen}~{ending}>"


def without_suffix(name: str) -> str:
    """Return a class without its last letters."""
    return f"{name.partition('~')[0]}~>"


def sources(trees: Trees, kind: str) -> dict[str, list[list[str]]]:
    """Return the source of each tree: its tags, or its words, the rare ones as classes of suffixes.

    A class that is rare itself loses its suffix.
    """
    if kind == "tags":
        return {split: [tree.tags for tree in of_split] for split, of_split in trees.items()}
    words = {split: [tree.words for tree in of_split] for split, of_split in trees.items()}
    for shorten in (suffix_class, without_suffix):
        counts = Counter(word for sentence in words["train"] for word in sentence)
        frequent = {word for word, count in counts.items() if count > 1}
        for split, sentences in words.items():
            words[split] = [
                [word if word in frequent else shorten(word) for word in sentence]
                for sentence in sentences
            ]
    return words


def prepare(folder: Path, trees: Trees, kind: str) -> None:
    """Write source and target of each set as text, and in fairseq's form."""
    text = folder / "text"
    text.mkdir(parents=True)
    for split, lines in sources(trees, kind).items():
        write_lines(text / f"{split}.{kind}", map(" ".join, lines))
        targets = [linearise(tree, tags=kind != "tags") for tree in trees[split]]
        write_lines(text / f"{split}.{TARGET}", map(" ".join, targets))
    train, valid, test = FILES.values()
    recipe = Recipe(kind, TARGET, train, valid, test, trees=True)
    binarise(text, folder / "data-bin", recipe, 1, None)


def nearest_in_length(lengths: Sequence[int]) -> list[int]:
    """Return another sentence for each one: the next shorter, or of the same length."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    before = {here: order[abs(place - 1)] for place, here in enumerate(order)}
    return [before[place] for place in range(len(lengths))]
