"""Binarised text: damaged files are refused in one sentence before they are read.

All versions trust an index: a negative size is copied without end, an offset leads out of the file,
and a token beyond the dictionary fails in the middle of training, on a GPU without a message.
"""

import functools
import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

import numpy as np
from fairseq.data import indexed_dataset

from ..config import ConfigError
from .replacing import PROTECTS, REPAIRS, replaces

logger = logging.getLogger(__name__)

_MAGIC, _HEADER = b"MMIDIDX\x00\x00", struct.Struct("<9sQBQ")
#: an index's code for the type of tokens; fairseq also has two for floats, which tokens are not
_TYPES: Dict[int, Any] = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}
_BLOCK = 1 << 24  # tokens checked at a time
#: with a larger share of unknown tokens, something is wrong with the dictionary
MANY_UNKNOWN = 0.1


class DataError(ConfigError):
    """Binarised text that is damaged; one sentence naming the file."""


@dataclass(frozen=True)
class Index:
    """What an index says: each sentence's length in tokens [N], and the type of a token."""

    sizes: np.ndarray
    dtype: Any


@dataclass(frozen=True)
class TokenSummary:
    """What a .bin file holds: its highest token number, and the share of unknown tokens."""

    highest: int
    unknown: float


def read_index(prefix: str) -> Index:
    """The index of binarised text (named without .idx), checked against its .bin file.

    Format: a magic word, version (8 bytes), type (1), N (8), N sizes (4 each), N offsets (8 each).

    Raises:
        DataError: a file is missing, or says something impossible.
    """
    index, binary = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")

    def damaged(why: str) -> DataError:
        return DataError(f"{prefix}.idx and .bin are missing or damaged ({why}): prepare again")

    try:
        length, held = index.stat().st_size, binary.stat().st_size
        with open(index, "rb") as stream:
            magic, version, kind, count = _HEADER.unpack(stream.read(_HEADER.size))
            if magic != _MAGIC or version != 1:
                raise damaged("this is not an index in fairseq-preprocess's default format, mmap")
            if kind not in _TYPES:
                raise damaged(f"{kind} is not a type of tokens")
            if length != _HEADER.size + 12 * count:
                raise damaged(f"the index has the wrong length for {count:,} sentences")
            sizes = np.fromfile(stream, dtype="<i4", count=count)
            offsets = np.fromfile(stream, dtype="<i8", count=count)
    except FileNotFoundError as error:
        raise damaged(f"no {Path(error.filename).name}") from None
    except struct.error:
        raise damaged("the index is cut short") from None
    if count and sizes.min() < 0:
        raise damaged(f"sentence {int(sizes.argmin())} has {sizes.min()} tokens")
    ends = np.cumsum(sizes, dtype=np.int64) * np.dtype(_TYPES[kind]).itemsize
    if count and (offsets[0] != 0 or not np.array_equal(offsets[1:], ends[:-1])):
        raise damaged("the sizes and offsets of sentences do not match")
    if held != (ends[-1] if count else 0):
        raise damaged(f"{held:,} bytes of text, where the index has {ends[-1] if count else 0:,}")
    return Index(sizes, _TYPES[kind])


def read_tokens(prefix: str, dtype: Any) -> TokenSummary:
    """Look at every token of binarised text, only once unless the file changes."""
    state = os.stat(f"{prefix}.bin")
    return _read_tokens(prefix, dtype, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=64)
def _read_tokens(prefix: str, dtype: Any, changed: int, size: int) -> TokenSummary:
    if size == 0:
        return TokenSummary(-1, 0.0)
    tokens = np.memmap(f"{prefix}.bin", dtype=dtype, mode="r")
    highest, unknown, counted = -1, 0, 0
    for start in range(0, len(tokens), _BLOCK):
        block = tokens[start : start + _BLOCK]
        if block.min() < 0:
            raise DataError(f"{prefix}.bin holds a token below 0: prepare the data again")
        highest = max(highest, int(block.max()))
        unknown += int((block == 3).sum())  # fairseq's numbers of <unk> and the end of a sentence
        counted += int((block != 2).sum())
    return TokenSummary(highest, unknown / max(counted, 1))


def check_text(prefix: str, entries: int, dictionary: str = "the dictionary") -> TokenSummary:
    """Check binarised text against a dictionary of ``entries`` entries.

    Raises:
        DataError: the text is damaged, or has a token beyond the dictionary.
    """
    summary = read_tokens(prefix, read_index(prefix).dtype)
    if summary.highest >= entries:
        raise DataError(
            f"{prefix}.bin has token number {summary.highest:,}, but {dictionary} ends at "
            f"{entries - 1:,}: it is not the one that this text was binarised with; prepare again"
        )
    return summary


@replaces(
    indexed_dataset,
    "make_dataset",
    PROTECTS,
    "all",
    "a damaged index, and text of another dictionary, are refused before they are read",
)
def make_dataset(
    path: str, impl: str, fix_lua_indexing: bool = False, dictionary: Any = None
) -> Any:
    """As fairseq's; an index is checked before it is trusted, and tokens against ``dictionary``."""
    is_there = os.path.isfile(f"{path}.idx") and os.path.isfile(f"{path}.bin")
    unknown_format = impl == "cached" and indexed_dataset.infer_dataset_impl(path) is None
    if is_there and (impl == "mmap" or unknown_format):
        if dictionary is None:
            read_index(path)
        else:
            tokens = check_text(path, len(dictionary))
            if tokens.unknown > MANY_UNKNOWN:
                logger.warning(
                    "%.0f%% of the tokens of %s are unknown to its dictionary",
                    100 * tokens.unknown,
                    path,
                )
    return make_dataset.original(path, impl, fix_lua_indexing, dictionary)


@replaces(
    indexed_dataset.MMapIndexedDatasetBuilder,
    "merge_file_",
    REPAIRS,
    "numpy 2",
    "`fairseq-preprocess --workers` can write more than 2 GB for one side of a corpus",
)
def merge_file_(builder: Any, another_file: str) -> Any:
    """As fairseq's, with sizes that do not overflow.

    With numpy 2 the sizes in the parts that workers made are 32-bit numbers, and so are their
    sums: offsets beyond 2 GB come out negative, with only a RuntimeWarning.
    """
    there = len(builder._sizes)
    done = merge_file_.original(builder, another_file)
    builder._sizes[there:] = map(int, builder._sizes[there:])
    return done
