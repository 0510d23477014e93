"""The text that examples/train.py trains on: sentences and their translations, as ids of subwords.

It needs subword-nmt for the demo's text. 'vaswani prepare' prepares other text.
"""

import io
import lzma
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vaswani_transformer import Vocabulary

DEMO = Path(__file__).parent / "demo_text"
PARTS = ("train", "valid", "test")

Pair = tuple[list[int], list[int]]
"""Ids of the subwords of a sentence and of its translation; both include the end of sentence."""


class Corpus(NamedTuple):
    """Text as ids; source and target share one vocabulary, and one matrix (3.4)."""

    vocabulary: Vocabulary
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def demo_text() -> Corpus:
    """Return the shipped text, split into subwords by BPE codes that are learned here."""
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    text = {}
    for name in (f"{part}.{language}" for part in PARTS for language in ("en", "de")):
        with lzma.open(f"{DEMO / name}.xz", "rt", encoding="utf-8") as lines:
            text[name] = [re.sub(r"([.,?])(?= |$)", r" \1", line.rstrip()) for line in lines]
    codes = io.StringIO()
    learn_bpe([*text["train.en"], *text["train.de"]], codes, num_symbols=1000)
    bpe = BPE(io.StringIO(codes.getvalue()))
    split = {name: [bpe.process_line(line).split() for line in text[name]] for name in text}
    counts: Counter[str] = Counter()
    for line in [*split["train.en"], *split["train.de"]]:
        counts.update(line)
    return as_ids(split, ["en", "de"], Vocabulary(subword for subword, _ in counts.most_common()))


def prepared_text(folder: Path) -> Corpus:
    """Read the text and the joint dictionary of a folder made by 'vaswani prepare'."""
    binary = next(folder.glob("data-bin/train.*-*.*.bin"), None)  # such as train.en-de.en.bin
    if binary is None:
        sys.exit(f"{folder} has no data-bin with a training text: 'vaswani prepare' makes one")
    languages = binary.name.split(".")[1].split("-")
    split = {}
    for name in (f"{part}.{language}" for part in PARTS for language in languages):
        with open(folder / "bpe" / name, encoding="utf-8") as lines:
            split[name] = [line.split() for line in lines]
    ours, theirs = (Vocabulary.load(folder / f"data-bin/dict.{name}.txt") for name in languages)
    if ours.types != theirs.types:
        sys.exit(f"{folder} has two dictionaries, and this model has one matrix (3.4) for both")
    return as_ids(split, languages, ours)


def as_ids(
    split: dict[str, list[list[str]]], languages: Sequence[str], vocabulary: Vocabulary
) -> Corpus:
    """Return subwords as ids, in pairs of source and target."""
    ids = {name: [vocabulary.encode(line) for line in lines] for name, lines in split.items()}
    pairs = []
    for part in PARTS:
        source, target = (ids[f"{part}.{language}"] for language in languages)
        pairs.append(list(zip(source, target, strict=True)))
    return Corpus(vocabulary, *pairs)


def joined(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Join subwords into words, and punctuation to the word before it."""
    words = " ".join(vocabulary.decode(ids)).replace("@@ ", "")
    return re.sub(r" ([.,?])(?= |$)", r"\1", words)
