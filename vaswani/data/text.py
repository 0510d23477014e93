"""Raw parallel text: read, checked, and made safe for one sentence per line.

A sentence pair is a line number: line n of ``train.en`` belongs to line n of ``train.de``. Some
characters end a line in one program but not in another (U+2028, U+0085, a lone CR, …), which would
shift every pair after them; here they become spaces. Lines are counted by their bytes.
"""

import contextlib
import gzip
import lzma
import re
import zlib
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Sequence

from vaswani.common.errors import UserError
from vaswani.common.files import PathLike, atomic_write

SPLITS = ("train", "valid", "test")
#: bytes; anything longer is not a sentence, and would have to fit into memory
LONGEST_LINE = 1 << 20
#: how compressed text is opened, by file ending
PACKED: Dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
#: what decompression raises if a file is not what its name says, or is incomplete
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_ODD_SPACE = re.compile(r"[^\S \n]|[\x00-\x09\x0b-\x1f\x7f]")
#: of UTF-8, as some editors write it at the beginning of a file
BYTE_ORDER_MARK = "\ufeff"


def find_text(prefix: PathLike, lang: str) -> Path:
    """The file ``PREFIX.LANG``, or a compressed one: ``.gz`` or ``.xz``.

    Raises:
        UserError: there is none, or it is empty.
    """
    plain = Path(f"{prefix}.{lang}")
    for path in (plain, *(Path(f"{plain}{end}") for end in PACKED)):
        if path.is_file():
            if path.stat().st_size == 0:
                raise UserError(f"{path} is empty: it should hold one sentence per line")
            return path
    others = ", ".join(plain.name + end for end in PACKED)
    raise UserError(f"there is no file {plain} (nor {others})")


@contextlib.contextmanager
def open_text(paths: Sequence[Path]) -> Iterator[List[IO[bytes]]]:
    """Open files, compressed or not, to read their bytes.

    Raises:
        UserError: a file turns out to be damaged while it is read inside the block.
    """
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(PACKED.get(p.suffix, open)(p, "rb")) for p in paths]
    except DAMAGED as error:
        raise damaged_file(" or ".join(map(str, paths)), error) from None


def damaged_file(path: PathLike, error: BaseException) -> UserError:
    """The error about a compressed file that cannot be decompressed to its end."""
    return UserError(
        f"{path} is damaged or cut short ({error}): remove it and fetch it again, or, if it is not "
        "compressed, rename it"
    )


def next_line(stream: IO[bytes], path: Path, number: int) -> bytes:
    """The next line with its ``\\n`` (added to a last one without), or nothing at the end.

    Raises:
        UserError: a line is longer than ``LONGEST_LINE``, or a compressed file is damaged.
    """
    try:
        line = stream.readline(LONGEST_LINE + 1)
    except DAMAGED as error:
        raise damaged_file(path, error) from None
    if len(line) > LONGEST_LINE:
        raise UserError(
            f"{path}, line {number:,}, is longer than {LONGEST_LINE:,} bytes: the file should "
            "hold one sentence per line, ended by a line feed"
        )
    return line + b"\n" if line and not line.endswith(b"\n") else line


def decode(line: bytes, path: PathLike, number: int) -> str:
    """The text of a line.

    Raises:
        UserError: it is not UTF-8; gives the place.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} is not UTF-8; convert the file, for "
            "example with iconv, or, if it is compressed, name it .gz or .xz"
        ) from None


def read_lines(path: Path) -> Iterator[str]:
    """The sentences of a text file, compressed or not: split only at ``\\n``, without it.

    Raises:
        UserError: it is not UTF-8 (gives the line), or is a damaged compressed file.
    """
    number = 1
    with open_text([path]) as (stream,):
        while line := next_line(stream, path, number):
            yield decode(line[:-1], path, number)
            number += 1


def safe_line(line: str) -> str:
    """The sentence without line end or byte order mark; odd spaces and controls become spaces."""
    return _ODD_SPACE.sub(" ", line.rstrip("\r").lstrip(BYTE_ORDER_MARK))


def is_blank(line: str) -> bool:
    """Whether nothing in the line is visible (only spaces, controls and format characters)."""
    return not any(char.isprintable() and not char.isspace() for char in line)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write sentences, one per line, completely or not at all."""
    with atomic_write(path) as stream:
        for line in lines:
            stream.write(line + "\n")


def count_lines(path: Path) -> int:
    """The number of lines: of ``\\n`` bytes, plus a last line without one."""
    lines, last = 0, b"\n"
    with open_text([path]) as (stream,):
        for block in iter(lambda: stream.read(1 << 20), b""):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")
