"""What a command makes, whole or not at all; it is written through one door.

What a command makes is one of the ``Outputs`` below, and is written through one door,
:meth:`Outputs.write`, which locks, recovers what a stopped command left, and publishes. A command
never replaces what it did not make: :class:`RecordedOutputs` have a record beside them, and move
files of others aside; :class:`FolderOutputs`, with a record inside, and :class:`FileOutputs`, which
say themselves what they are, refuse.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import (
    atomic_write,
    check_folder,
    locked,
    move,
    read_json,
    remove,
    sha256_of,
    sync,
    write_json,
    writing,
)

# ---- made as a whole ------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """Where to make outputs, before they are published.

    Attributes:
        path: a folder in which each output is made under its final name; of ``FolderOutputs`` and
            ``FileOutputs``, the place of the folder or file itself
        record: a table for their record, to which the maker may add
        is_made: whether they are there already, made under the same key: there is nothing to do
    """

    path: Path
    record: dict[str, Any] = field(default_factory=dict)
    is_made: bool = False


class Outputs:
    """What a command makes as a whole: a file, a folder, or several of them.

    It is made in a hidden folder, ``work``, in three steps:

        work/part/NAME      being made, under its final name; then flushed to disk
        work/complete/NAME  ``part``, renamed: from now on it is made, and only has to be moved
        NAME                moved to its place; a folder that was there goes to work/old/NAME first,
                            because a folder, unlike a file, cannot replace another in one step

    Wherever it was stopped, the next command (:meth:`write` or :meth:`recover`) leaves the disk as
    before or as after: what is complete is moved, what is not is removed. Only one command at a
    time may work on it: :meth:`write` takes ``lock``.

    Args:
        paths: where everything goes, each under another name; all on one file system
        work: the hidden folder
        shown: what messages name
        lock: the file to lock while they are written (:func:`vaswani.common.files.locked`); None
            where the caller holds a lock of its own
        busy: what the lock says to another command, such as "runs/a/eval is being written"
    """

    def __init__(
        self,
        paths: Sequence[Path],
        work: Path,
        shown: Path,
        lock: Path | None = None,
        busy: str = "",
    ) -> None:
        self.paths = list(paths)
        self.work = work
        self.shown = shown
        self.lock = lock
        self.busy = busy
        self.part = work / "part"
        self.complete = work / "complete"
        self.old = work / "old"

    @contextlib.contextmanager
    def write(self, key: str | None = None) -> Iterator[Draft]:
        """Lock, recover, and yield a place for the new outputs; publish them at the end.

        If the block fails, or is interrupted, what was there before is left as it was.

        Args:
            key: of all that the outputs depend on; None where they are made anew in any case

        Yields:
            The place; where ``is_made`` says that they are there, the block has to leave it alone.

        Raises:
            UserError: something else is there, the disk is full, or another command is at it.
        """
        lock = locked(self.lock, self.busy) if self.lock else contextlib.nullcontext()
        with writing(self.shown), lock:
            self.recover()
            if key is not None and self.are_made(key):
                yield replace(self.draft(key), is_made=True)
                return
            self._put_in_place_or_remove()
            try:
                self.part.mkdir(parents=True)
                draft = self.draft(key)
                yield draft
                self.check()  # again: making them took a while
                self.complete_record(draft)
                for folder, _, names in os.walk(self.part, topdown=False):
                    for name in names:  # first: else a power cut leaves names without contents
                        sync(Path(folder, name))
                    with contextlib.suppress(OSError):  # there are file systems that cannot
                        sync(folder)
                move(self.part, self.complete)
            finally:
                try:
                    self._put_in_place_or_remove()
                except BaseException:  # it was interrupted: once more, to the end
                    self._put_in_place_or_remove()
                    raise

    def recover(self) -> None:
        """Publish the outputs that a stopped command had completed; keep published ones."""
        if self.complete.is_dir() or self.old.is_dir():
            self._put_in_place_or_remove()

    # ---- what kinds of outputs differ in -----------------------------------------------------

    def are_made(self, key: str) -> bool:
        """Return whether the outputs exist and were made with this key."""
        return False

    def check(self) -> None:
        """Raise UserError if a file that may not be replaced is in their place."""

    def draft(self, key: str | None) -> Draft:
        """Return the place for new outputs."""
        return Draft(self.part)

    def complete_record(self, draft: Draft) -> None:
        """Write the record that identifies the outputs into the draft."""

    def make_way(self, path: Path) -> None:
        """Move away a file that is in the place of an output and may not be replaced, or raise."""
        self.check()

    def _put_in_place_or_remove(self) -> None:
        """Move complete outputs to their places, and remove what is incomplete."""
        for path in self.paths if self.complete.is_dir() else ():
            new = self.complete / path.name
            old = self.old / path.name
            if not os.path.lexists(new):
                continue  # it was moved before the stop
            if os.path.lexists(path):
                self.make_way(path)
            if os.path.lexists(path) and (new.is_dir() or path.is_dir()):
                # moved, not removed: a stop while removing would leave half of it under its name
                remove(old)
                self.old.mkdir(exist_ok=True)
                move(path, old)
            move(new, path)
        remove(self.work)


# ---- recognised by a record beside them ---------------------------------------------------------

#: a file's size, time in nanoseconds, and SHA-256
Stamp = tuple[int, int, str]


class RecordedOutputs(Outputs):
    """Outputs with a record, by which they are recognised: what is not as recorded is kept.

    The record is a JSON table, ``{"key": …, "files": {NAME: [size, time, SHA-256]}, …}``. A file of
    the same size and time (in nanoseconds) is trusted; where these differ, as in a copy, its hash
    decides. The record is the last output: until all others are in place, the earlier one tells
    which of those that exist this command made.

    Args:
        folder: where the outputs go; their files have names relative to it in the record
        names: the outputs in it
        record: the file; other arguments are those of :class:`Outputs`
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        record: Path,
        work: Path,
        shown: Path,
        lock: Path | None = None,
        busy: str = "",
    ) -> None:
        super().__init__([*(folder / name for name in names), record], work, shown, lock, busy)
        self.folder = folder
        self.record = record

    def table(self) -> dict[str, Any]:
        """Return the record; empty if there is none."""
        return read_json(self.record)

    def files(self) -> dict[Path, Stamp]:
        """Return the recorded size, time and SHA-256 of each file."""
        files = self.table().get("files", {})
        return {self.folder / name: tuple(stamp) for name, stamp in files.items()}

    def are_made(self, key: str) -> bool:
        """Return whether every file recorded with this key exists, unchanged."""
        stamps = self.files() if self.table().get("key") == key else {}
        return bool(stamps) and all(is_as_recorded(path, *stamp) for path, stamp in stamps.items())

    def redo(self) -> None:
        """Forget the key, so that the outputs are made again; their files are still recognised."""
        self.recover()
        if self.table().get("key"):
            with atomic_write(self.record) as stream:
                json.dump({**self.table(), "key": None}, stream, indent=1)

    def draft(self, key: str | None) -> Draft:
        """Return the place for new outputs, and the record with their key."""
        return Draft(self.part, {"key": key})

    def complete_record(self, draft: Draft) -> None:
        """Write the record, with each output's size, time and hash."""
        stamps = {}
        for path in files_in(self.part):
            status = path.stat()
            stamp = [status.st_size, status.st_mtime_ns, sha256_of(path)]
            stamps[str(path.relative_to(self.part))] = stamp
        with open(self.part / self.record.name, "w", encoding="utf-8") as stream:
            json.dump({**draft.record, "files": stamps}, stream, indent=1)

    def make_way(self, path: Path) -> None:
        """Rename an output that differs from its record, or contains further files."""
        stamps = self.files()
        if path == self.record:
            is_ours = bool(stamps)
        else:
            is_ours = all(
                file in stamps and is_as_recorded(file, *stamps[file]) for file in files_in(path)
            )
        if not is_ours:
            keep(path)

    def unknown_file(self) -> Path | None:
        """Return a file in the place of the outputs that is not recorded; None if there is none."""
        if self.complete.is_dir() or self.files():  # a stopped command's are recorded, too
            return None
        return next((path for path in self.paths if os.path.lexists(path)), None)


def files_in(path: Path) -> list[Path]:
    """Return the file itself, or all files and links below a folder."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_symlink() or not file.is_dir())


def is_as_recorded(path: Path, size: int, time: int, sha256: str) -> bool:
    """Return whether a file has this size and time, or else this hash."""
    if not path.is_file():
        return False
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) == (size, time) or sha256_of(path) == sha256


def keep(path: Path, why: str = "was not written by this command or has changed since") -> Path:
    """Rename a file that must not be replaced to a free name beside it, and say so."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.kept-{number}")):
        number += 1
    free = path.with_name(f"{path.name}.kept-{number}")
    move(path, free)
    print(f"{path} {why}: renamed it to {free}", file=sys.stderr)
    return free


def key_of(options: object) -> str:
    """Return the SHA-256 of JSON-able options, by which outputs are recognised."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


# ---- a folder or a file, where nothing else may be ---------------------------------------------


class PlacedOutputs(Outputs):
    """One folder or file, locked and made beside its place.

    Args:
        path: where it goes
    """

    def __init__(self, path: Path) -> None:
        lock = path.parent / f".{path.name}.lock"
        work = path.parent / f".{path.name}.part"
        super().__init__([path], work, path, lock, f"{path} is being made")
        self.path = path

    @contextlib.contextmanager
    def write(self, key: str | None = None) -> Iterator[Draft]:
        """Open the output, as :meth:`Outputs.write`; refuse before anything is touched."""
        self.check()
        if not self.path.name:
            raise UserError("the output cannot be the current folder itself: give another folder")
        check_folder(self.path.parent)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with super().write(key) as draft:
            yield draft

    def draft(self, key: str | None) -> Draft:
        """Return the place for the new folder or file."""
        return Draft(self.part / self.path.name)


class FileOutputs(PlacedOutputs):
    """One file that says itself what it is.

    Args:
        path: where it goes
        check: raises UserError unless what is at a path, if anything, may be replaced
    """

    def __init__(self, path: Path, check: Callable[[Path], object]) -> None:
        super().__init__(path)
        self.check_file = check

    def check(self) -> None:
        """Raise UserError if another file or folder is in the place."""
        self.check_file(self.path)


class FolderOutputs(PlacedOutputs):
    """A folder with a record of what is in it, by which it is recognised; replaced as a whole.

    The record is a JSON file, which holds the table that the maker fills in, and the SHA-256 of
    every other file (no times: the folder is to be given away). A subclass may have another.

    Args:
        folder: where it goes
        record: the name of the file in it
        command: what makes it, for messages
    """

    def __init__(self, folder: Path, record: str, command: str) -> None:
        super().__init__(folder)
        self.record = record
        self.command = command

    def sums(self) -> Mapping[str, str]:
        """Return the recorded hashes, by file; empty if there is no record."""
        sums: dict[str, str] = read_json(self.path / self.record).get("sha256", {})
        return sums

    def check(self) -> None:
        """Raise UserError unless the place is free, or holds exactly the recorded files."""
        folder = self.path
        if not os.path.lexists(folder):
            return
        if folder.is_symlink() or not folder.is_dir():
            raise UserError(f"{folder} is not a folder: give another name with --out")
        for name in changed_files(folder, self.record, self.sums()):
            raise UserError(
                f"{folder} has {name}, which '{self.command}' did not write or which has changed "
                "since: give another folder with --out"
            )

    def draft(self, key: str | None) -> Draft:
        """Make the folder, and return it with the table for its record."""
        folder = self.part / self.path.name
        folder.mkdir()
        return Draft(folder, {"made_by": self.command})

    def complete_record(self, draft: Draft) -> None:
        """Write the record, with the hash of each file."""
        files = sorted(draft.path.iterdir())
        sums = {path.name: sha256_of(path) for path in files}
        write_json(draft.path / self.record, {**draft.record, "sha256": sums})


def changed_files(folder: Path, record: str, sums: Mapping[str, str]) -> list[str]:
    """Return the files in a folder whose hash differs from its record, or is not recorded."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if not (sums and path.name == record)
        and not (path.is_file() and sums.get(path.name) == sha256_of(path))
    ]
