"""Processes parallel text: streamed in chunks, over processes, in order, in bounded memory.

At most ``2 × workers + 1`` chunks of ``CHUNK_BYTES`` are in progress at any time, whatever the size
of the files; a chunk is complete lines, as bytes, the same number in each language.
"""

from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from vaswani.common.errors import UserError
from vaswani.common.processes import map_ordered
from vaswani.data.clean import Report
from vaswani.data.text import next_line, open_text

CHUNK_LINES, CHUNK_BYTES = 5000, 4 << 20


class Chunk(NamedTuple):
    """Lines ``first …`` (from 1) of one or more parallel files, with their line ends."""

    first: int
    sides: List[bytes]
    lines: int


class Outcome(NamedTuple):
    """The result of work on a chunk: the new sides, the pairs held out, and the counts."""

    sides: List[bytes]
    held_out: List[bytes]
    report: Report


def chunks(paths: Sequence[Path], limit: Optional[int] = None) -> Iterator[Chunk]:
    """The lines of parallel files, at most ``limit`` of them.

    Raises:
        UserError: the files differ in length, or one is damaged or not lines of text.
    """
    with open_text(paths) as streams:
        first = 1
        while True:
            sides: List[List[bytes]] = [[] for _ in paths]
            size = 0
            most = CHUNK_LINES if limit is None else min(CHUNK_LINES, limit + 1 - first)
            while len(sides[0]) < most and size < CHUNK_BYTES:
                number = first + len(sides[0])
                row = [next_line(s, p, number) for s, p in zip(streams, paths, strict=True)]
                if not all(row):
                    if any(row):
                        raise UserError(unequal_lengths(paths))
                    break
                for side, line in zip(sides, row, strict=True):
                    side.append(line)
                    size += len(line)
            if not sides[0]:
                return
            yield Chunk(first, [b"".join(side) for side in sides], len(sides[0]))
            first += len(sides[0])


def unequal_lengths(paths: Sequence[Path]) -> str:
    """The message about parallel files of different lengths."""
    counts = []
    for path in paths:
        with open_text([path]) as (stream,):
            number = 0
            while next_line(stream, path, number + 1):
                number += 1
            counts.append(number)
    return (
        f"{paths[0]} has {counts[0]:,} lines and {paths[1]} has {counts[1]:,}: line n of one must "
        "be the translation of line n of the other"
    )


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
