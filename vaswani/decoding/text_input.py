"""Raw text to translate: lines from files or standard input, in windows."""

import hashlib
import sys
from pathlib import Path
from typing import IO, Iterator, List, Sequence, Tuple

from vaswani.common.errors import UserError
from vaswani.data import text

STDIN = Path("standard input")


class Windows:
    """The lines of a text in windows of a fixed size; each window is yielded once.

    Args:
        paths: the files, in order; none: standard input
        size: lines per window

    Attributes:
        digest: SHA-256 of the lines up to the end of the last window yielded
        lines: how many those are
    """

    def __init__(self, paths: Sequence[Path], size: int) -> None:
        self.paths, self.size = list(paths), size
        self.digest = hashlib.sha256()
        self.lines = 0
        check_files(self.paths)
        self.rest = self.read()

    def __iter__(self) -> Iterator[Tuple[int, List[str]]]:
        """The remaining windows: the number of the first line, from 1; the lines."""
        return self.rest

    def read(self) -> Iterator[Tuple[int, List[str]]]:
        """Yield all windows."""
        window: List[str] = []
        for path, place, line in raw_lines(self.paths):
            window.append(text.decode(line, path, place))
            if len(window) == self.size:
                yield self.given_out(window)
                window = []
        if window:
            yield self.given_out(window)

    def given_out(self, window: List[str]) -> Tuple[int, List[str]]:
        """Count a window."""
        first = self.lines + 1
        self.lines += len(window)
        self.digest.update("".join(line + "\n" for line in window).encode())
        return first, window


def raw_lines(paths: Sequence[Path]) -> Iterator[Tuple[Path, int, bytes]]:
    """Every line of the files, or of standard input: its place and its bytes."""
    if not paths:
        yield from numbered(sys.stdin.buffer, STDIN)
    for path in paths:
        with text.open_text([path]) as (stream,):
            yield from numbered(stream, path)


def numbered(stream: IO[bytes], path: Path) -> Iterator[Tuple[Path, int, bytes]]:
    """The lines of a stream."""
    number = 1
    while line := text.next_line(stream, path, number):
        yield path, number, line[:-1]
        number += 1


def check_files(paths: Sequence[Path]) -> None:
    """Raises UserError for what cannot be read as text; a pipe is checked when it is read."""
    for path in paths:
        if path.is_dir() or not path.exists():
            raise UserError(f"there is no file {path}")
