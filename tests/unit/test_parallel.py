"""Streaming over processes: order, bounds, and what happens when one of them dies."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from vaswani.common.errors import UserError
from vaswani.common.processes import map_ordered
from vaswani.data import text
from vaswani.data.pairs import cleaning_work, transform
from vaswani.data.text import chunks
from vaswani.folders.recipe import TextRecipe

ROOT = Path(__file__).resolve().parents[2]


def write(folder, lines, name="t"):
    """Write two parallel files: the lines, and their numbers."""
    paths = [folder / f"{name}.en", folder / f"{name}.de"]
    paths[0].write_bytes(b"".join(line + b"\n" for line in lines))
    paths[1].write_bytes(b"".join(b"%d\n" % n for n in range(len(lines))))
    return paths


def twice():
    """Return work that doubles a number."""
    return lambda item: item * 2


def refuse(item):
    raise UserError(str(item))


def fails():
    """Return work that refuses 7."""
    return lambda item: refuse(item) if item == 7 else item


def dies():
    """Return work that kills its process at 7."""
    return lambda item: os.kill(os.getpid(), signal.SIGKILL) if item == 7 else item


def slow():
    """Return work that says when it begins, and never ends."""
    return lambda item: os.write(1, b"begun\n") and time.sleep(100)


def test_two_processes_give_what_one_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "CHUNK_LINES", 3)
    sources = write(tmp_path, [b"line %d" % n if n % 5 else b"" for n in range(100)])
    results = []
    for workers in (1, 2):
        targets = [tmp_path / f"{workers}.{lang}" for lang in ("en", "de")]
        make = partial(cleaning_work, TextRecipe("en", "de"), ("a", "b"), clean_up=True)
        report = transform(make, chunks(sources), targets, workers, lambda _: None)
        results.append(([path.read_bytes() for path in targets], report))
    assert results[0] == results[1]
    kept = [n for n in range(100) if n % 5]
    assert results[0][0][1] == b"".join(b"%d\n" % n for n in kept), "in order"
    assert (report.seen, report.kept) == (100, 80)


def test_chunks_are_whole_lines_within_both_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "CHUNK_LINES", 4)
    monkeypatch.setattr(text, "CHUNK_BYTES", 30)
    sources = write(tmp_path, [b"x" * 10] * 6 + [b"y"] * 6)
    found = [(chunk.first, chunk.lines) for chunk in chunks(sources)]
    assert found == [(1, 3), (4, 3), (7, 4), (11, 2)], "three lines are 13 bytes each: over 30"
    assert [chunk.lines for chunk in chunks(sources, limit=5)] == [3, 2]
    assert b"".join(chunk.sides[0] for chunk in chunks(sources)) == sources[0].read_bytes()


def test_no_more_is_read_ahead_than_the_processes_need():
    read = []
    items = (read.append(n) or n for n in range(100))
    results = map_ordered(twice, items, 2)
    assert next(results) == 0
    assert len(read) <= 2 * 2 + 1
    assert list(results) == [2 * n for n in range(1, 100)]


def test_an_error_in_a_process_is_its_message():
    with pytest.raises(UserError, match="7"):
        list(map_ordered(fails, range(20), 2))


def test_a_process_that_was_killed_is_said():
    with pytest.raises(UserError, match="--workers"):
        list(map_ordered(dies, range(20), 2))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into Linux' /proc")
def test_nothing_is_left_running_when_the_parent_is_killed():
    code = (
        "from tests.unit.test_parallel import slow\n"
        "from vaswani.common.processes import map_ordered\n"
        "if __name__ == '__main__': list(map_ordered(slow, range(20), 2))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert [parent.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
        tasks = Path(f"/proc/{parent.pid}/task").glob("*/children")
        workers = [pid for task in tasks for pid in task.read_text().split()]
        parent.kill()
    until = time.monotonic() + 20
    while any(map(runs, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)


def runs(pid):
    """Return whether a process exists, and is no zombie."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
