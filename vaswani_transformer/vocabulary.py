"""The types of a language and their ids, in fairseq's form."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class SpecialIds(NamedTuple):
    """Ids of the special types; the defaults are those of fairseq's dictionaries."""

    pad: int = 1
    eos: int = 2
    """the end of a sentence, with which the decoder also begins"""
    unk: int = 3
    """a type that the vocabulary lacks"""


FAIRSEQ_IDS = SpecialIds()
PAD, EOS, UNK = FAIRSEQ_IDS
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
OVERWRITE = " #fairseq:overwrite"
"""ends a line of a dictionary whose type takes the place of an earlier one"""


class Vocabulary:
    """Types by their ids, which count from 0; the first four are :data:`SPECIAL`.

    A type that occurs more than once is encoded as its last id.

    Args:
        types: all types but the special ones, in the order of their ids
    """

    unk_word = SPECIAL[UNK]
    unk_index = UNK

    def __init__(self, types: Iterable[str]) -> None:
        self.types: list[str] = [*SPECIAL, *types]
        self.ids: dict[str, int] = {name: number for number, name in enumerate(self.types)}

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a dictionary in fairseq's format: on each line a type and its count.

        As in fairseq, a type may occur a second time, or be a special one (such as ``<unk>`` in the
        text), on a line that ends in ``#fairseq:overwrite``.

        Raises:
            ValueError: a line has another form, or a type occurs twice without that mark.
        """
        types: list[str] = []
        earlier = set(SPECIAL)
        with open(path, encoding="utf-8", newline="\n") as lines:
            for line in lines:
                text = line.rstrip("\n")
                entry = text.removesuffix(OVERWRITE)
                name, _, count = entry.rpartition(" ")
                if not (name and count.isdecimal()):
                    raise ValueError(
                        f"{path}: the line {text!r} must be a token and a count, separated by a "
                        "space: prepare the data again"
                    )
                if name in earlier and entry == text:
                    raise ValueError(
                        f"{path}: the entry {name!r} occurs twice: prepare the data again"
                    )
                earlier.add(name)
                types.append(name)
        return cls(types)

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, number: int) -> str:
        return self.types[number]

    def index(self, sym: str) -> int:
        """Return the id of a type; for an unknown type, the id of ``<unk>``."""
        return self.ids.get(sym, UNK)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of subwords, followed by the end of sentence."""
        return [*map(self.index, words), EOS]

    def bos(self) -> int:
        """Return the id of the beginning of a sentence."""
        return 0

    def eos(self) -> int:
        """Return the id of the end of a sentence."""
        return EOS

    def unk(self) -> int:
        """Return the id of an unknown type."""
        return UNK

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the subwords of ids, without padding and ends of sentence."""
        return [self.types[number] for number in ids if number not in (PAD, EOS)]
