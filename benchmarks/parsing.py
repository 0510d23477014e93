"""Does the Transformer learn to parse from 3,700 trees (6.3), if its source is made easier?"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vaswani.data.binarise import binarise
from vaswani.data.recipe import Recipe
from vaswani.data.text import write_lines
from vaswani.data.trees import Tree, linearise, read_trees

FILES = {"train": "train.ptb.xz", "valid": "dev.ptb", "test": "test.ptb"}
TARGET = "trees"


def suffix_class(word: str) -> str:
    """What stands for a rare word: its capital, digits and hyphens, and its last two letters."""
    marks = [word[0].isupper() and "A", any(map(str.isdigit, word)) and "0", "-" in word and "-"]
    ending = word[-2:].lower() if word[-2:].isalpha() else ""
    return f"<{''.join(filter(None, marks))}~{ending}>"


def common(sentences: Sequence[Sequence[str]]) -> set[str]:
    """The words that occur more than once."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return {word for word, count in counts.items() if count > 1}


def sources(trees: dict[str, list[Tree]], kind: str) -> dict[str, list[list[str]]]:
    """The source of each tree: its tags, or its words, the rare ones as classes of suffixes.

    A class that is rare itself loses its suffix.
    """
    if kind == "tags":
        return {split: [tree.tags for tree in found] for split, found in trees.items()}
    words = {split: [tree.words for tree in found] for split, found in trees.items()}
    for shorten in (suffix_class, lambda name: f"{name.partition('~')[0]}~>"):
        known = common(words["train"])
        words = {
            split: [[w if w in known else shorten(w) for w in sentence] for sentence in found]
            for split, found in words.items()
        }
    return words


def prepare(folder: Path, trees: dict[str, list[Tree]], kind: str) -> None:
    """Source and target of each set as text, and in fairseq's form."""
    text = folder / "text"
    text.mkdir(parents=True)
    for split, lines in sources(trees, kind).items():
        write_lines(text / f"{split}.{kind}", map(" ".join, lines))
        targets = (linearise(tree, tags=kind != "tags") for tree in trees[split])
        write_lines(text / f"{split}.{TARGET}", map(" ".join, targets))
    recipe = Recipe(kind, TARGET, **FILES, trees=True)
    binarise(text, folder / "data-bin", recipe, 1, None)


if __name__ == "__main__":
    import sys

    folder = Path(sys.argv[1])
    trees = {split: read_trees(folder / name) for split, name in FILES.items()}
    for kind in ("tags", "words"):
        if not Path(f"data/parsing-{kind}").is_dir():
            prepare(Path(f"data/parsing-{kind}"), trees, kind)
