"""Parallel text as it comes: read, checked, and made safe for one sentence per line.

A sentence pair is a line number: line n of ``train.en`` belongs to line n of ``train.de``. Some
characters end a line for one program and not for another (U+2028, U+0085, a lone CR, …), which
would shift every pair after them; here they become spaces. Counts are taken in bytes.
"""

import gzip
import re
import zlib
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

from vaswani.errors import UserError
from vaswani.files import PathLike, atomic_write

SPLITS = ("train", "valid", "test")
_ODD_SPACE = re.compile(r"[^\S \n]")
_BYTE_ORDER_MARK = "\ufeff"


def find_text(prefix: PathLike, lang: str) -> Path:
    """The file ``PREFIX.LANG`` or ``PREFIX.LANG.gz``.

    Raises:
        UserError: neither exists, or it is empty.
    """
    plain = Path(f"{prefix}.{lang}")
    for path in (plain, Path(f"{plain}.gz")):
        if path.is_file():
            if path.stat().st_size == 0:
                raise UserError(f"{path} is empty: it should hold one sentence per line")
            return path
    raise UserError(f"there is no file {plain} (nor {plain.name}.gz)")


def read_lines(path: Path) -> Iterator[str]:
    """The sentences of a text file, plain or .gz: split at ``\\n`` alone, without it.

    Raises:
        UserError: not UTF-8 (with the line), or a damaged .gz.
    """
    number = 0
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            for line in stream:
                number += 1
                yield line.rstrip(b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} is not UTF-8; convert the file, for "
            "example with iconv"
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged or cut short ({error}): fetch it again") from None


def safe_line(line: str) -> str:
    """The sentence without a line end or byte order mark, every odd kind of space a plain one."""
    return _ODD_SPACE.sub(" ", line.rstrip("\r").lstrip(_BYTE_ORDER_MARK))


def is_blank(line: str) -> bool:
    """Whether nothing in the line can be seen (spaces, controls and format characters only)."""
    return not any(char.isprintable() and not char.isspace() for char in line)


def copy_pair(sources: Tuple[Path, Path], targets: Tuple[Path, Path], drop_blank: bool) -> int:
    """Copy two parallel files through ``safe_line``; return how many pairs were dropped.

    ``drop_blank`` leaves out pairs with a blank side (training); without it a blank line is kept
    empty (validation and test, where every line is answered).

    Raises:
        UserError: the two files differ in length, or nothing is left.
    """
    first, second = (list(read_lines(path)) for path in sources)
    if len(first) != len(second):
        raise UserError(
            f"{sources[0]} has {len(first):,} lines and {sources[1]} has {len(second):,}: line n "
            "of one must be the translation of line n of the other"
        )
    pairs: List[Tuple[str, str]] = []
    for pair in zip(first, second, strict=True):
        left, right = ("" if is_blank(line) else safe_line(line) for line in pair)
        if not drop_blank or (left and right):
            pairs.append((left, right))
    if not any(left and right for left, right in pairs):
        raise UserError(f"{sources[0]} and {sources[1]} have no pair of non-empty sentences")
    for side, path in enumerate(targets):
        write_lines(path, (pair[side] for pair in pairs))
    return len(first) - len(pairs)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write sentences, one per line, whole or not at all."""
    with atomic_write(path) as stream:
        for line in lines:
            stream.write(line + "\n")


def count_lines(path: Path) -> int:
    """The number of ``\\n`` bytes."""
    with open(path, "rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def check_same_count(before: Path, after: Path) -> None:
    """Raises UserError where a stage has gained or lost lines, which would shift every pair."""
    lines, left = count_lines(before), count_lines(after)
    if lines != left:
        raise UserError(
            f"{after} has {left:,} lines, but {before} has {lines:,}: please report this as a bug"
        )
