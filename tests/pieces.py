"""A small SentencePiece model, and text for it: numbers, and the same backwards in Chinese."""

import random
from pathlib import Path

from vaswani.data import pieces
from vaswani.data.text import write_lines

#: of 0 to 9; the source has spaces between its words, the target has none
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LETTERS = "零一二三四五六七八九"


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of sentences of 2 to 6 numbers."""
    numbers = random.Random(seed)
    rows = [numbers.choices(range(10), k=numbers.randint(2, 6)) for _ in range(count)]
    return [
        (" ".join(WORDS[n] for n in row) + ".", "".join(LETTERS[n] for n in row[::-1]) + "。")
        for row in rows
    ]


def write_text(folder: Path, name: str, count: int, seed: int) -> Path:
    """Write NAME.en and NAME.zh, and return their prefix."""
    for lang, lines in zip(("en", "zh"), zip(*pairs(count, seed), strict=True), strict=True):
        write_lines(folder / f"{name}.{lang}", lines)
    return folder / name


def learn(folder: Path, size: int = 320) -> Path:
    """Learn a model from a little of it."""
    text = write_text(folder, "text", 100, 0)
    model = folder / "sentencepiece.bpe.model"
    pieces.learn([Path(f"{text}.en"), Path(f"{text}.zh")], model, size)
    return model
