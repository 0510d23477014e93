"""Raw parallel text: read, checked, and made safe for one sentence per line.

A sentence pair is a line number: line n of ``train.en`` belongs to line n of ``train.de``. Some
characters end a line in one program but not in another (U+2028, U+0085, a lone CR, …), which would
shift every pair after them; here they become spaces. Lines are counted by their bytes.
"""

import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common.errors import UserError
from vaswani.common.files import PathLike, atomic_write
from vaswani.common.find import DOCS

#: a chunk of parallel files, which a process works on at a time; about 2 × workers are in progress
CHUNK_LINES = 5000
CHUNK_BYTES = 4 << 20
#: letters per word; also Moses' limit. Without one, BPE is quadratic in word length.
LONGEST_WORD = 1000
#: how compressed text is opened, by file ending
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
#: what decompression raises if a file is not what its name says, or is incomplete
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
#: the ending of a file with both sides in two columns
TABLE = ".tsv"
_ODD_SPACE = re.compile(r"[^\S \n]|[\x00-\x09\x0b-\x1f\x7f]")
#: of UTF-8, as some editors write it at the beginning of a file; after "cat", of a later line too
BYTE_ORDER_MARK = "\ufeff"


def find_text(prefix: PathLike, lang: str) -> Path:
    """Return the file ``PREFIX.LANG``, or a compressed one: ``.gz`` or ``.xz``.

    Raises:
        UserError: there is none.
    """
    plain = Path(f"{prefix}.{lang}")
    for path in (plain, *(Path(f"{plain}{end}") for end in PACKED)):
        if path.is_file():
            return path
    compressed = ", ".join(plain.name + end for end in PACKED)
    hint = ""
    if Path(f"{prefix}{TABLE}").is_file():
        hint = f": to read the table of two columns, give {prefix}{TABLE}"
    elif Path(prefix).is_file():
        hint = (
            f": the command reads PREFIX.{lang} and the same for the other language, with one "
            f"sentence per line, so give {Path(prefix).with_suffix('')} for {prefix}, or give "
            "FILE.tsv, with both sides in two columns"
        )
        if Path(prefix).suffix == ".tmx":
            hint = (
                f": convert {prefix}, a translation memory, to FILE.tsv with both sides in two "
                f"columns, as {DOCS / 'own-text.md'} shows, and give FILE.tsv"
            )
    raise UserError(f"there is no file {plain} (nor {compressed}){hint}")


def is_table(path: PathLike) -> bool:
    """Return whether a path is a file of pairs in two columns, by its name: ``.tsv``, also
    compressed.
    """
    name = str(path)
    for end in PACKED:
        name = name.removesuffix(end)
    return name.endswith(TABLE) and Path(path).is_file()


def byte_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a text file, compressed or not, as bytes that end with a line end.

    Raises:
        UserError: the file is compressed and damaged.
    """
    try:
        with PACKED.get(path.suffix, open)(path, "rb") as stream:
            for line in stream:
                yield line if line.endswith(b"\n") else line + b"\n"
    except DAMAGED as error:
        raise UserError(
            f"{path} is damaged or cut short ({error}): remove the file and fetch it again, or, if "
            f"it is not compressed, remove {path.suffix} from its name"
        ) from None


def decode(line: bytes, path: PathLike, number: int) -> str:
    """Return the text of a line of a file, without a byte order mark before it.

    Raises:
        UserError: it is not UTF-8; gives the place.
    """
    try:
        return line.decode("utf-8").lstrip(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} is not UTF-8: convert the file, for "
            "example with iconv, or, if it is compressed, name it .gz or .xz"
        ) from None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the sentences of a text file, compressed or not; only a line feed ends a line.

    Raises:
        UserError: it is not UTF-8 (gives the line), or is a damaged compressed file.
    """
    return lines_in(byte_lines(path), path)


def lines_in(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """Yield the decoded sentences of ``lines``; ``path`` names their origin in messages."""
    for number, line in enumerate(lines, 1):
        yield decode(line.removesuffix(b"\n"), path, number)


def safe_line(line: str) -> str:
    """Return the sentence without line end or byte order mark; odd spaces and controls become
    spaces.
    """
    return _ODD_SPACE.sub(" ", line.rstrip("\r").lstrip(BYTE_ORDER_MARK))


def is_blank(line: str) -> bool:
    """Return whether nothing in the line is visible (only spaces, controls and format
    characters).
    """
    return not any(char.isprintable() and not char.isspace() for char in line)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write sentences, one per line, completely or not at all."""
    with atomic_write(path) as stream:
        for line in lines:
            stream.write(line + "\n")


def count_lines(path: Path) -> int:
    """Return the number of lines: of ``\\n`` bytes, plus a last line without one."""
    return sum(1 for _ in byte_lines(path))


# ---- in chunks ---------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Lines ``first …`` (from 1) of one or more parallel files, with their line ends."""

    first: int
    sides: list[bytes]
    lines: int


def columns(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the two columns of a table, line by line, each with a line end.

    Raises:
        UserError: a line has another number of columns.
    """
    for number, line in enumerate(byte_lines(path), 1):
        cells = line.rstrip(b"\r\n").split(b"\t")
        if len(cells) != 2:
            raise UserError(
                f"{path}, line {number:,}, has {len(cells)} columns instead of two, source and "
                "target with a tab between them: choose the two with 'cut -f'"
            )
        yield cells[0] + b"\n", cells[1] + b"\n"


def chunks(paths: Sequence[Path], limit: int | None = None) -> Iterator[Chunk]:
    """Yield parallel lines in chunks: of several files, or of the two columns of a table.

    Args:
        paths: the files; a table is given twice
        limit: most lines to read

    Raises:
        UserError: the files differ in length, or one is damaged or not lines of text.
    """
    tabular = len(paths) == 2 and paths[0] == paths[1] and is_table(paths[0])
    lines = columns(paths[0]) if tabular else zip_longest(*map(byte_lines, paths), fillvalue=b"")
    rows = islice(lines, limit)
    first = 1
    while True:
        sides: list[list[bytes]] = [[] for _ in paths]
        size = 0
        for row in islice(rows, CHUNK_LINES):
            if not all(row):
                counts = " and ".join(f"{path} has {count_lines(path):,} lines" for path in paths)
                raise UserError(
                    f"{counts}: give files in which every line has its translation on the same line"
                )
            for side, line in zip(sides, row, strict=True):
                side.append(line)
                size += len(line)
            if size >= CHUNK_BYTES:
                break
        if not sides[0]:
            return
        yield Chunk(first, [b"".join(side) for side in sides], len(sides[0]))
        first += len(sides[0])
