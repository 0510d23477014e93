"""Parallel text: streamed in chunks, over processes, in order, in bounded memory; and counted.

At most ``2 × workers + 1`` chunks of ``CHUNK_BYTES`` are in progress at any time, whatever the size
of the files; a chunk is complete lines, as bytes, the same number in each language.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common.errors import UserError
from vaswani.common.processes import map_ordered
from vaswani.data.text import byte_lines, count_lines

CHUNK_LINES, CHUNK_BYTES = 5000, 4 << 20
#: letters per word; also Moses' limit. Without one, BPE is quadratic in word length.
LONGEST_WORD = 1000
#: examples kept per reason, and characters kept per side
EXAMPLES, EXAMPLE_LENGTH = 100, 200

EMPTY = "with an empty side"
NOT_UTF8 = "not UTF-8"


class Chunk(NamedTuple):
    """Lines ``first …`` (from 1) of one or more parallel files, with their line ends."""

    first: int
    sides: list[bytes]
    lines: int


@dataclass(frozen=True)
class Limits:
    """Words per side (least and most), ratio of longer to shorter side; None: no limit."""

    min_words: int | None = None
    max_words: int | None = None
    ratio: float | None = None

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is left out, or None if it is kept. Words are separated by spaces."""
        first, second = source.split(), target.split()
        short, long = sorted((len(first), len(second)))
        if short == 0:
            return EMPTY
        if self.min_words is not None and short < self.min_words:
            return f"of fewer than {self.min_words} words"
        if self.max_words is not None and long > self.max_words:
            return f"of more than {self.max_words} words"
        if self.ratio is not None and long > self.ratio * short:
            return f"more than {self.ratio:g} times longer on one side"
        if max(map(len, first)) > LONGEST_WORD or max(map(len, second)) > LONGEST_WORD:
            return f"with a word of more than {LONGEST_WORD:,} letters"
        return None


@dataclass
class Report:
    """What became of the pairs of one set: seen, kept, and left out by reason, with examples."""

    seen: int = 0
    kept: int = 0
    #: pairs held out as the validation set (neither kept here nor left out)
    held_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    #: by reason: the pair's place, and its two sides
    examples: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    def drop(self, reason: str, place: str, source: str, target: str) -> None:
        """Count a pair that is left out; the first few for each reason are kept as examples."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES:
            shown.append((place, source[:EXAMPLE_LENGTH], target[:EXAMPLE_LENGTH]))

    def add(self, other: "Report") -> None:
        """Add the counts of a later chunk of the same set."""
        self.seen += other.seen
        self.kept += other.kept
        self.held_out += other.held_out
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        for reason, examples in other.examples.items():
            shown = self.examples.setdefault(reason, [])
            shown.extend(examples[: EXAMPLES - len(shown)])

    def summary(self) -> str:
        """``4,500 pairs of 4,512; left out: 10 with an empty side, 2 not UTF-8``."""
        text = f"{self.kept:,} pairs"
        if self.kept != self.seen:
            text += f" of {self.seen:,}"
        if self.held_out:
            text += f"; held out: {self.held_out:,}"
        if self.dropped:
            most = sorted(self.dropped.items(), key=lambda item: -item[1])
            counts = [f"{count:,} {reason}" for reason, count in most]
            text += f"; left out: {', '.join(counts)}"
        return text


class Outcome(NamedTuple):
    """The result of work on a chunk: the new sides, the pairs held out, and the counts."""

    sides: list[bytes]
    held_out: list[bytes]
    report: Report


def chunks(paths: Sequence[Path], limit: int | None = None) -> Iterator[Chunk]:
    """The lines of parallel files, at most ``limit`` of them.

    Raises:
        UserError: the files differ in length, or one is damaged or not lines of text.
    """
    rows = islice(zip_longest(*map(byte_lines, paths), fillvalue=b""), limit)
    first = 1
    while True:
        sides: list[list[bytes]] = [[] for _ in paths]
        size = 0
        for row in islice(rows, CHUNK_LINES):
            if not all(row):
                counts = " and ".join(f"{path} has {count_lines(path):,} lines" for path in paths)
                raise UserError(
                    f"{counts}: line n of one must be the translation of line n of the other"
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


def transform(
    make: Callable[[], Callable[[Chunk], Outcome]],
    parts: Iterable[Chunk],
    targets: Sequence[Path],
    workers: int,
    progress: Callable[[int], Any],
    held_out: Sequence[Path] = (),
) -> Report:
    """Append the results for each chunk to ``targets``, and the pairs held out to ``held_out``.

    ``progress(n)`` is called for every n pairs seen.
    """
    total = Report()
    outputs = [open(path, "ab") for path in targets]  # noqa: SIM115  (closed below)
    others = [open(path, "ab") for path in held_out]  # noqa: SIM115
    try:
        for outcome in map_ordered(make, parts, workers):
            for stream, side in zip(outputs, outcome.sides, strict=True):
                stream.write(side)
            for stream, side in zip(others, outcome.held_out, strict=False):
                stream.write(side)
            total.add(outcome.report)
            progress(outcome.report.seen)
    finally:
        for stream in [*outputs, *others]:
            stream.close()
    return total
