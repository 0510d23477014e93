"""Text of ``vaswani translate``: lines read in windows, and what is written for them.

With ``--output FILE`` it is written aside, window by window, and continued after a kill.
Meanwhile there are ``.FILE.part``, the lines so far, and ``.FILE.part.json``, which says how many
are complete, and of which text. In the end the former becomes FILE, and FILE.json reports what was
translated with what, and what was not. It also identifies FILE as made by this command: a file
that it does not describe is never replaced.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from typing import IO

from vaswani.common.errors import UserError, listed, plural
from vaswani.common.files import (
    Table,
    atomic_write,
    locked,
    move,
    output_file,
    read_json,
    sha256_of,
    sync,
    writing,
)
from vaswani.common.outputs import key_of
from vaswani.data import text
from vaswani.decoding.sentences import TranslatedLine
from vaswani.folders.model_folder import TextModel

#: how many unknown words to list
SHOWN = 20


STDIN = Path("standard input")


class Windows:
    """The lines of a text in windows of a fixed size; each window is yielded once.

    Args:
        paths: the files, in order; none: standard input
        size: lines per window; 0: all

    Attributes:
        digest: SHA-256 of the lines up to the end of the last window yielded
        lines: how many those are
    """

    def __init__(self, paths: Sequence[Path], size: int) -> None:
        self.paths = list(paths)
        self.size = size
        self.digest = hashlib.sha256()
        self.lines = 0
        check_files(self.paths)
        self.rest = self.read()

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """The remaining windows: the number of the first line, from 1; the lines."""
        return self.rest

    def read(self) -> Iterator[tuple[int, list[str]]]:
        """Yield all windows."""
        lines: Iterator[str] = chain.from_iterable(map(text.read_lines, self.paths))
        if not self.paths:
            lines = text.lines_in(sys.stdin.buffer, STDIN)
        while True:
            window = list(islice(lines, self.size or None))
            if not window:
                return
            first = self.lines + 1
            self.lines += len(window)
            self.digest.update("".join(line + "\n" for line in window).encode())
            yield first, window


def check_files(paths: Sequence[Path]) -> None:
    """Raises UserError for what cannot be read as text; a pipe is checked when it is read."""
    for path in paths:
        if path.is_dir() or not path.exists():
            raise UserError(f"there is no file {path}")


@dataclass
class Tally:
    """Counts untranslated and long lines and unknown words; its fields are a report's."""

    not_translated: list[int] = field(default_factory=list)
    long_lines: int = 0
    long_examples: list[int] = field(default_factory=list)
    unknown_words: int = 0
    unknown_lines: int = 0
    unknown_examples: list[str] = field(default_factory=list)

    def add(self, number: int, line: TranslatedLine) -> None:
        """Count a line; its number is from 1."""
        if line.too_long:
            self.not_translated.append(number)
            return
        if line.unusually_long:
            self.long_lines += 1
            self.long_examples += [number] if len(self.long_examples) < SHOWN else []
        if line.unknown:
            self.unknown_words += len(line.unknown)
            self.unknown_lines += 1
            shown = self.unknown_examples
            new = dict.fromkeys(word for word in line.unknown if word not in shown)
            shown += [word[:40] for word in new][: SHOWN - len(shown)]

    def print_warnings(self, where: str, long: str) -> None:
        """List, on stderr, what was not translated, what was long and what was unknown.

        Args:
            where: the translations are
            long: what a long line is longer than, in words
        """
        left_out = self.not_translated
        if left_out:
            print(
                f"warning: {plural(len(left_out), 'line')} longer than the model's limit, not "
                f"translated and left empty in {where}: {listed(left_out)}",
                file=sys.stderr,
            )
        if self.long_lines:
            more = self.long_lines - len(self.long_examples)
            numbers = listed(self.long_examples) + (f" and {more:,} more" if more else "")
            print(
                f"warning: {plural(self.long_lines, 'line')} with a sentence longer than {long}, "
                f"whose translation may lack a part: {numbers}",
                file=sys.stderr,
            )
        if self.unknown_words:
            more = self.unknown_words > len(self.unknown_examples)
            examples = ", ".join([*self.unknown_examples, *(["…"] if more else [])])
            print(
                f"warning: {plural(self.unknown_words, 'word')} wholly or partly unknown to the "
                f"model, in {plural(self.unknown_lines, 'line')}: {examples} (--replace-unk copies "
                "source words instead of <unk>)",
                file=sys.stderr,
            )


def key_of_output(folder: TextModel, options: object) -> str:
    """A hash of the model and the options; the text has a separate one."""
    return key_of([folder.sums_without_card, options])


class TranslatedFile:
    """A file of translations.

    Args:
        path: may exist, if an earlier command of this kind made it
        key: of the model and the options
        inputs: the files that are read

    Raises:
        UserError: the path is an input, or a file that this command did not make.
    """

    def __init__(self, path: Path, key: str, inputs: Sequence[Path]) -> None:
        self.report_file = Path(f"{path}.json")
        earlier = read_json(self.report_file)
        hashes = (earlier.get("sha256"), earlier.get("replaces"))
        self.path = output_file(
            path, inputs, lambda p: sha256_of(p) in hashes, "translation of 'vaswani translate'"
        )
        output_file(self.report_file, inputs, self.is_report, "report of 'vaswani translate'")
        self.key = key
        self.part = self.path.with_name(f".{self.path.name}.part")
        self.state_file = self.path.with_name(f".{self.path.name}.part.json")
        self.tally = Tally()
        self.stream: IO[bytes] | None = None

    @staticmethod
    def is_report(path: Path) -> bool:
        """Whether a file is a report of this kind."""
        return {"key", "input", "sha256", "not_translated"} <= set(read_json(path))

    def is_begun(self) -> bool:
        """Whether the same command would continue after some lines."""
        return read_json(self.state_file).get("key") == self.key

    @contextlib.contextmanager
    def open(self, windows: Windows) -> Iterator["TranslatedFile | None"]:
        """Continue or start; what is done is skipped in ``windows``. None: everything is done.

        Raises:
            UserError: what was started is of another text, model or options, or the disk is full.
        """
        lock = self.path.with_name(f".{self.path.name}.lock")
        with writing(self.path), locked(lock, f"{self.path} is being written"):
            if self.is_done(windows):
                yield None
                return
            self.windows = windows
            self.resume(read_json(self.state_file))
            try:
                yield self
            finally:
                if self.stream:
                    self.stream.close()
                if not self.state_file.exists():  # nothing is complete yet
                    self.part.unlink(missing_ok=True)

    def is_done(self, windows: Windows) -> bool:
        """Whether the file is done, for the same text; reads the text only if it may be."""
        earlier = read_json(self.report_file)
        if earlier.get("key") != self.key or not self.path.is_file() or not windows.paths:
            return False
        if earlier.get("sha256") != sha256_of(self.path):
            return False
        again = Windows(windows.paths, windows.size)
        for _ in again:
            pass
        return bool(earlier.get("input") == again.digest.hexdigest())

    def resume(self, state: Table) -> None:
        """Continue after the windows that are complete."""
        done = state.get("bytes", 0)
        if not done or not self.part.is_file() or self.part.stat().st_size < done:
            self.stream = open(self.part, "wb")  # noqa: SIM115  (closed by the caller)
            return
        self.skip(state)
        self.stream = open(self.part, "r+b")  # noqa: SIM115
        self.stream.truncate(done)
        self.stream.seek(done)
        self.tally = Tally(**{item.name: state[item.name] for item in fields(Tally)})
        print(f"{self.path}: continuing after line {state['lines']:,}", file=sys.stderr)

    def skip(self, state: Table) -> None:
        """Skip the lines that are already translated; UserError if this is not how they were."""
        remedy = f"remove it and {self.state_file} to start over"
        if state.get("key") != self.key:
            raise UserError(
                f"{self.part} holds {state['lines']:,} lines translated by another model or with "
                f"other options: repeat that command to continue it, or {remedy}"
            )
        windows = self.windows
        while windows.lines < state["lines"] and next(windows.rest, None):
            pass
        if windows.lines != state["lines"] or windows.digest.hexdigest() != state["input"]:
            raise UserError(
                f"{self.part} holds {state['lines']:,} lines of a translation of another text: "
                f"{remedy}"
            )

    def add(self, rows: list[str]) -> None:
        """Write a window's rows, and record that they are complete."""
        assert self.stream is not None
        data = "".join(row + "\n" for row in rows).encode()
        self.stream.write(data)
        self.stream.flush()
        sync(self.part)
        state = {
            "key": self.key,
            "lines": self.windows.lines,
            "bytes": self.stream.tell(),
            "input": self.windows.digest.hexdigest(),
            **asdict(self.tally),
        }
        with atomic_write(self.state_file) as stream:
            json.dump(state, stream)

    def finish(self, report: Table) -> None:
        """Put the file and its report in place."""
        assert self.stream is not None
        self.stream.close()
        before = sha256_of(self.path) if self.path.is_file() else None
        table = {
            "key": self.key,
            **report,
            "lines": self.windows.lines,
            "input": self.windows.digest.hexdigest(),
            "sha256": sha256_of(self.part),
            "replaces": before,
            **asdict(self.tally),
        }
        with atomic_write(self.report_file) as stream:
            json.dump(table, stream, indent=1)
        move(self.part, self.path)
        self.state_file.unlink(missing_ok=True)
        print(f"{self.path}: {self.windows.lines:,} lines", file=sys.stderr)
