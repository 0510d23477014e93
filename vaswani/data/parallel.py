"""Processes parallel text: streamed in chunks, over processes, in order, in bounded memory.

At most ``2 × workers + 1`` chunks of ``CHUNK_BYTES`` are in progress at any time, whatever the size
of the files; a chunk is complete lines, as bytes, the same number in each language.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path
from typing import Any, Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.data.clean import Report
from vaswani.data.text import next_line, open_text

CHUNK_LINES, CHUNK_BYTES = 5000, 4 << 20
#: this many chunks are processed faster here than by processes that have yet to start
WORTH_A_PROCESS = 5


#: the most processes per core (and in any case) that are allowed: each takes some 0.2 GB
MOST_PER_CORE, MOST_ANYWHERE = 2, 4


def affordable(workers: int) -> int:
    """``workers``, or as many as this machine can use; says so if that is fewer."""
    most = max(MOST_ANYWHERE, MOST_PER_CORE * cores())
    if workers <= most:
        return workers
    print(
        f"--workers {workers:,} is more than {cores()} cores can use: continuing with {most}",
        file=sys.stderr,
    )
    return most


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
                        raise UserError(unequal(paths))
                    break
                for side, line in zip(sides, row, strict=True):
                    side.append(line)
                    size += len(line)
            if not sides[0]:
                return
            yield Chunk(first, [b"".join(side) for side in sides], len(sides[0]))
            first += len(sides[0])


def unequal(paths: Sequence[Path]) -> str:
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


_work: Any = None


def _start(make: Callable[[], Any]) -> None:
    """Set up a worker process: its tools, and that it ends when its parent does, for any reason."""
    global _work
    parent = multiprocessing.parent_process()
    if parent is not None:
        join, leave = parent.join, os._exit
        threading.Thread(target=lambda: (join(), leave(1)), daemon=True).start()
    _work = make()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C while the block runs; processes started in it ignore it for good.

    It goes to every process of the terminal: otherwise workers would print their tracebacks, even
    while they are still starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(item: Any) -> Any:
    return _work(item)


def in_order(make: Callable[[], Any], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """``make()(item)`` for each item, in order, over ``workers`` processes.

    ``make`` is called once per process, so that tools are made only once; it must be picklable.
    A small number of items is processed in this process.

    Raises:
        UserError: a process was killed.
    """
    items = iter(items)
    ahead = list(islice(items, WORTH_A_PROCESS)) if workers > 1 else []
    if len(ahead) < WORTH_A_PROCESS:
        work = make()
        for item in chain(ahead, items):
            yield work(item)
        return
    # spawn: the same on every system, and safe with the threads of a progress bar
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(make,))
    waiting: Deque["Future[Any]"] = deque()
    try:
        for item in chain(ahead, items):
            with without_interrupts():  # a process started here never sees Ctrl-C
                waiting.append(pool.submit(_run, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a worker process was killed, most likely for lack of memory: free some, or give "
            "fewer --workers, and run the same command again"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
        for outcome in in_order(make, parts, workers):
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
