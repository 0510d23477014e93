"""What a training text repeats, and what of the other sets is in it."""

import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vaswani.data.text import byte_lines

Pair = tuple[Path, Path]
#: &amp;, &#39; and the like: text from web pages that was not decoded
_ENTITY = re.compile(rb"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,9});")


def count(train: Pair, held_out: Mapping[str, Pair], tokenised: bool) -> dict[str, int]:
    """Count pairs that occur twice, are untranslated, or contain undecoded characters.

    Pairs are compared by a hash of 64 bits, which takes 8 bytes of memory for each.

    Args:
        train: the two sides of the training text
        held_out: those of the other sets, by name
        tokenised: whether the text is Moses' tokens, which have entities of their own

    Returns:
        How many, by what they are, in words.
    """
    equal = entities = 0
    hashes = array("q")
    for source, target in pairs(train):
        hashes.append(hash((source, target)))
        equal += source == target
        if b"&" in source or b"&" in target:
            entities += bool(_ENTITY.search(source) or _ENTITY.search(target))
    training = np.unique(as_numbers(hashes))
    counts = {
        "pairs of train that repeat an earlier one": len(hashes) - len(training),
        "pairs of train whose sides are equal": equal,
    }
    if not tokenised:
        counts["pairs of train with HTML entities, such as &amp;"] = entities
    for split, sides in held_out.items():
        written = (pair for pair in pairs(sides) if b"\n" not in pair)  # else a side is blank
        of_split = array("q", map(hash, written))
        shared = np.isin(as_numbers(of_split), training)
        counts[f"pairs of {split} that are in train"] = int(shared.sum())
    return counts


def pairs(sides: Pair) -> Iterator[tuple[bytes, bytes]]:
    """Return the lines of two files, side by side, with their line ends."""
    return zip(*map(byte_lines, sides), strict=True)


def as_numbers(hashes: "array[int]") -> NDArray[np.int64]:
    """Return an array of Python's as one of NumPy's, without copying."""
    return np.frombuffer(hashes, dtype=np.int64)
