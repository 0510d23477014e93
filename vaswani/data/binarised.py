"""Binarised text: damaged files are refused in one sentence before they are read.

fairseq trusts an index: a negative size is copied without end, an offset leads out of the file, and
a token beyond the dictionary fails in the middle of training, on a GPU without a message.
"""

import struct
from pathlib import Path
from typing import Any, Dict, NamedTuple

import numpy as np

from vaswani.common.errors import UserError

_MAGIC, _HEADER = b"MMIDIDX\x00\x00", struct.Struct("<9sQBQ")
#: an index's code for the type of tokens; fairseq also has two for floats, which tokens are not
_TYPES: Dict[int, Any] = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}
_BLOCK = 1 << 24  # tokens checked at a time


class Index(NamedTuple):
    """What an index says: each sentence's length in tokens [N], and the type of a token."""

    sizes: np.ndarray
    dtype: Any


def read_index(prefix: str) -> Index:
    """The index of binarised text (named without .idx), checked against its .bin file.

    Format: a magic word, version (8 bytes), type (1), N (8), N sizes (4 each), N offsets (8 each).

    Raises:
        UserError: a file is missing, or says something impossible.
    """
    index, binary = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    damaged = UserError(f"{index} and .bin are missing or damaged: prepare again")
    try:
        length, held = index.stat().st_size, binary.stat().st_size
        with open(index, "rb") as stream:
            magic, version, kind, count = _HEADER.unpack(stream.read(_HEADER.size))
            known = magic == _MAGIC and version == 1 and kind in _TYPES
            if not known or length != _HEADER.size + 12 * count:
                raise damaged
            sizes = np.fromfile(stream, dtype="<i4", count=count)
            offsets = np.fromfile(stream, dtype="<i8", count=count)
    except (FileNotFoundError, struct.error):
        raise damaged from None
    ends = np.cumsum(sizes, dtype=np.int64) * np.dtype(_TYPES[kind]).itemsize
    begins = np.concatenate([[0], ends])
    if (sizes < 0).any() or not np.array_equal(offsets, begins[:-1]) or held != begins[-1]:
        raise damaged
    return Index(sizes, _TYPES[kind])


def check_text(prefix: str, entries: int, dictionary: str) -> float:
    """Check binarised text against a dictionary of so many entries; returns the share of <unk>.

    Raises:
        UserError: the text is damaged, or has a token beyond the dictionary.
    """
    dtype = read_index(prefix).dtype
    if not Path(f"{prefix}.bin").stat().st_size:
        return 0.0
    tokens = np.memmap(f"{prefix}.bin", dtype=dtype, mode="r")
    unknown, counted = 0, 0
    for start in range(0, len(tokens), _BLOCK):
        block = tokens[start : start + _BLOCK]
        if block.min() < 0 or block.max() >= entries:
            raise UserError(
                f"{prefix}.bin has a token number that is not in {dictionary}, which ends at "
                f"{entries - 1:,}: it is not the one that this text was binarised with; prepare "
                "again"
            )
        unknown += int((block == 3).sum())  # fairseq's numbers of <unk> and the end of a sentence
        counted += int((block != 2).sum())
    return unknown / max(counted, 1)
