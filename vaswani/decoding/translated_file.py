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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from vaswani.common.errors import UserError, list_numbers, plural
from vaswani.common.files import (
    atomic_write,
    locked,
    move,
    output_file,
    read_record,
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
        """Yield the remaining windows: the number of the first line, from 1, and the lines."""
        return self.rest

    def read(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each window, with the number of its first line, counted from 1."""
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
    """Raise UserError for a file that is not text; a pipe is checked when it is read."""
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
        """Count a line whose number, from 1, is given."""
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
                f"translated and left empty in {where}: {list_numbers(left_out)}",
                file=sys.stderr,
            )
        if self.long_lines:
            more = self.long_lines - len(self.long_examples)
            numbers = list_numbers(self.long_examples) + (f" and {more:,} more" if more else "")
            print(
                f"warning: {plural(self.long_lines, 'line')} with a sentence longer than {long}, "
                f"whose translation may be incomplete: {numbers}",
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


@dataclass(frozen=True)
class PartRecord:
    """What ``.FILE.part.json`` says: how much of a text is translated, and how.

    Attributes:
        key: of the model and the options
        lines: of the text that are translated
        bytes: of ``.FILE.part`` that are complete
        input: SHA-256 of these lines of the text
        tally: of them
    """

    key: str | None
    lines: int
    bytes: int
    input: str | None
    tally: Tally

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "PartRecord":
        """Read what :meth:`to_json` returned; nothing is translated if there is no file."""
        names = [item.name for item in fields(Tally) if item.name in table]
        return cls(
            key=table.get("key"),
            lines=table.get("lines", 0),
            bytes=table.get("bytes", 0),
            input=table.get("input"),
            tally=Tally(**{name: table[name] for name in names}),
        )

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON holds it."""
        table = asdict(self)
        counts = table.pop("tally")
        return {**table, **counts}


@dataclass(frozen=True)
class OutputReport:
    """What FILE.json says of FILE.

    Attributes:
        key: of the model and the options; None where there is no report
        input: SHA-256 of the text
        sha256: of FILE
        replaces: SHA-256 of what FILE replaced, or was to replace when the command was stopped
        is_complete: whether ``vaswani translate`` wrote it
    """

    key: str | None
    input: str | None
    sha256: str | None
    replaces: str | None
    is_complete: bool

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "OutputReport":
        """Read a report, also one of another command."""
        names = ("key", "input", "sha256", "replaces")
        is_complete = {"key", "input", "sha256", "not_translated"} <= set(table)
        return cls(**{name: table.get(name) for name in names}, is_complete=is_complete)


def key_of_output(folder: TextModel, options: object) -> str:
    """Return a hash of the model and the options; the text has a separate one."""
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
        earlier = read_record(self.report_file, OutputReport.from_json)
        hashes = (earlier.sha256, earlier.replaces)
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
        """Return whether a file is a report of this kind."""
        return read_record(path, OutputReport.from_json).is_complete

    def is_begun(self) -> bool:
        """Return whether the same command would continue after some lines."""
        return read_record(self.state_file, PartRecord.from_json).key == self.key

    @contextlib.contextmanager
    def open(self, windows: Windows) -> Iterator["TranslatedFile | None"]:
        """Open the file for the windows that are not yet translated; yield None if all are.

        The translated windows are skipped in ``windows``.
        """
        lock = self.path.with_name(f".{self.path.name}.lock")
        with writing(self.path), locked(lock, f"{self.path} is being written"):
            if self.is_done(windows):
                yield None
                return
            self.windows = windows
            self.resume(read_record(self.state_file, PartRecord.from_json))
            try:
                yield self
            finally:
                if self.stream:
                    self.stream.close()
                if not self.state_file.exists():  # nothing is complete yet
                    self.part.unlink(missing_ok=True)

    def is_done(self, windows: Windows) -> bool:
        """Return whether the file is complete for the same text, which is read only if needed."""
        earlier = read_record(self.report_file, OutputReport.from_json)
        if earlier.key != self.key or not self.path.is_file() or not windows.paths:
            return False
        if earlier.sha256 != sha256_of(self.path):
            return False
        again = Windows(windows.paths, windows.size)
        for _ in again:
            pass
        return earlier.input == again.digest.hexdigest()

    def resume(self, done: PartRecord) -> None:
        """Continue after the windows that are complete."""
        if not done.bytes or not self.part.is_file() or self.part.stat().st_size < done.bytes:
            self.stream = open(self.part, "wb")  # noqa: SIM115  (closed by the caller)
            return
        self.skip(done)
        self.stream = open(self.part, "r+b")  # noqa: SIM115
        self.stream.truncate(done.bytes)
        self.stream.seek(done.bytes)
        self.tally = done.tally
        print(f"{self.path}: continuing after line {done.lines:,}", file=sys.stderr)

    def skip(self, done: PartRecord) -> None:
        """Skip the lines that are already translated; raise UserError if they have changed."""
        remedy = f"remove this file and {self.state_file} to start over"
        if done.key != self.key:
            raise UserError(
                f"{self.part} holds {done.lines:,} lines translated by another model or with "
                "other options: use the same model and options as before to continue it, or "
                f"{remedy}"
            )
        windows = self.windows
        while windows.lines < done.lines and next(windows.rest, None):
            pass
        if windows.lines != done.lines or windows.digest.hexdigest() != done.input:
            raise UserError(
                f"{self.part} holds {done.lines:,} lines of a translation of another text: {remedy}"
            )

    def add(self, rows: list[str]) -> None:
        """Write a window's rows, and record that they are complete."""
        assert self.stream is not None
        data = "".join(row + "\n" for row in rows).encode()
        self.stream.write(data)
        self.stream.flush()
        sync(self.part)
        digest = self.windows.digest.hexdigest()
        done = PartRecord(self.key, self.windows.lines, self.stream.tell(), digest, self.tally)
        with atomic_write(self.state_file) as stream:
            json.dump(done.to_json(), stream)

    def finish(self, report: Mapping[str, object]) -> None:
        """Move the file and its report to their places."""
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
