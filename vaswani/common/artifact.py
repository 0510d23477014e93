"""What a command makes: where it may be written, and how it is put there, whole or not at all.

A command never writes over its inputs, nor over anything that it did not write itself.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import (
    NO_SPACE,
    Table,
    atomic_write,
    locked,
    move,
    read_json,
    remove,
    sha256_of,
    sync,
    write_json,
)

# ---- where a command may write --------------------------------------------------------------


def output_file(
    path: Path,
    inputs: Iterable[Path] = (),
    may_replace: Callable[[Path], bool] = lambda _: False,
    kind: str = "this command's",
) -> Path:
    """Where to write the file requested as ``path``: for a symlink, the file it points to.

    Args:
        path: may exist; an empty file may be replaced by any command
        inputs: files that the command reads
        may_replace: whether an existing file may be replaced: it is from the same command
        kind: what such a file is, for the message

    Raises:
        UserError: it is an input, under whatever name, or exists and may not be replaced.
    """
    for source in inputs:
        if same_file(path, source):
            raise UserError(
                f"{path} would be replaced, but is an input of the same command"
                f"{'' if path == source else f' (it is {source})'}: give the output another name"
            )
    empty = path.is_file() and not path.stat().st_size
    if path.exists() and not (empty or (path.is_file() and may_replace(path))):
        raise UserError(
            f"{path} exists and is no {kind}: give the output another name, or move it away"
        )
    check_folder(path.parent)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_folder(folder: Path) -> None:
    """Raises UserError unless a folder can be written to, or made; called before hours of work."""
    existing = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "no write permission" if existing.is_dir() else "it is not a folder"
        raise UserError(f"{existing} cannot be written to ({why}): give the output another folder")


def same_file(path: Path, other: Path) -> bool:
    """Whether two paths are the same file: written differently, or linked, symbolically or not."""
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is ``folder`` or anywhere below it, however the two are written."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_report(path: Path, *keys: str) -> bool:
    """Whether a file is a JSON table with these keys."""
    return path.is_file() and set(keys) <= set(read_json(path))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """While ``path`` is written (aside, then renamed), report write errors in terms of ``path``.

    Raises:
        UserError: the disk is full; ``path`` is unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(
                f"there is no space left for {path}: free some, or give another folder, and run "
                f"the same command again ({error.strerror}; what was there is unchanged)"
            ) from None
        raise


# ---- made as a whole ------------------------------------------------------------------------


class Outputs:
    """What a command makes as a whole: a file, a folder, or several of them.

    It is made in a hidden folder, ``work``, in three steps:

        work/part/NAME      being made, under its final name; then flushed to disk
        work/complete/NAME  ``part``, renamed: from now on it is made, and only has to be moved
        NAME                moved to its place; a folder that was there goes to work/old/NAME first,
                            because a folder, unlike a file, cannot replace another in one step

    Wherever it was stopped, the next command (:meth:`replacing` or :meth:`recover`) leaves the disk
    as before or as after: what is complete is moved, what is not is removed. Only one command at a
    time may work on it (:func:`vaswani.common.files.locked`).

    Args:
        paths: where everything goes, each under another name; all on one file system
        on_conflict: called with an existing output before it is replaced; it moves away what
            may not be replaced (:func:`keep`), or raises UserError
        work: the hidden folder
    """

    def __init__(
        self, paths: Sequence[Path], on_conflict: Callable[[Path], object], work: Path
    ) -> None:
        self.paths = list(paths)
        self.on_conflict = on_conflict
        self.work = work
        self.part = work / "part"
        self.complete = work / "complete"
        self.old = work / "old"

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Path]:
        """A folder to make the outputs in; they are put in place when the block ends.

        If it fails, or is interrupted, what was there before is left as it was.
        """
        self._put_in_place_or_remove()
        self.part.mkdir(parents=True)
        try:
            yield self.part
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
        """Put in place what a stopped command had completed, if it had; what is made is left."""
        if self.complete.is_dir() or self.old.is_dir():
            self._put_in_place_or_remove()

    def _put_in_place_or_remove(self) -> None:
        """What is complete is moved to its place; what is not is removed."""
        for path in self.paths if self.complete.is_dir() else ():
            new = self.complete / path.name
            old = self.old / path.name
            if not os.path.lexists(new):
                continue  # it was moved before the stop
            if os.path.lexists(path):
                self.on_conflict(path)
            if os.path.lexists(path) and (new.is_dir() or path.is_dir()):
                # moved, not removed: a stop while removing would leave half of it under its name
                remove(old)
                self.old.mkdir(exist_ok=True)
                move(path, old)
            move(new, path)
        remove(self.work)


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
        record: the file
        work: the hidden folder
    """

    def __init__(self, folder: Path, names: Sequence[str], record: Path, work: Path) -> None:
        super().__init__([*(folder / name for name in names), record], self._keep_others, work)
        self.folder = folder
        self.record = record

    def table(self) -> Table:
        """The record; empty if there is none."""
        return read_json(self.record)

    def files(self) -> dict[Path, Stamp]:
        """Size, time and SHA-256 of each recorded file."""
        files = self.table().get("files", {})
        return {self.folder / name: tuple(stamp) for name, stamp in files.items()}

    def are_made(self, key: str) -> bool:
        """Whether everything recorded under this key is there, and unchanged; there may be more."""
        stamps = self.files() if self.table().get("key") == key else {}
        return bool(stamps) and all(is_as_recorded(path, *stamp) for path, stamp in stamps.items())

    def redo(self) -> None:
        """Have them made again, whatever the key; they are still recognised."""
        self.recover()
        if self.table().get("key"):
            with atomic_write(self.record) as stream:
                json.dump({**self.table(), "key": None}, stream, indent=1)

    @contextlib.contextmanager
    def making(self, key: str) -> Iterator[tuple[Path, Table]]:
        """A folder to make the outputs in, and the record, to which the block may add."""
        with self.replacing() as part:
            record: Table = {"key": key}
            yield part, record
            files = {}
            for path in files_in(part):
                status = path.stat()
                stamp = [status.st_size, status.st_mtime_ns, sha256_of(path)]
                files[str(path.relative_to(part))] = stamp
            with open(part / self.record.name, "w", encoding="utf-8") as stream:
                json.dump({**record, "files": files}, stream, indent=1)

    def _keep_others(self, path: Path) -> None:
        """Rename an output that is not as recorded, or has more in it."""
        stamps = self.files()
        if path == self.record:
            is_ours = bool(stamps)
        else:
            is_ours = all(
                file in stamps and is_as_recorded(file, *stamps[file]) for file in files_in(path)
            )
        if not is_ours:
            keep(path)


def files_in(path: Path) -> list[Path]:
    """A file itself; all files and links below a folder."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_symlink() or not file.is_dir())


def is_as_recorded(path: Path, size: int, time: int, sha256: str) -> bool:
    """Whether a file has this size and time, or else this hash."""
    if not path.is_file():
        return False
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) == (size, time) or sha256_of(path) == sha256


def keep(path: Path, why: str = "was not made by this command, or has changed since") -> Path:
    """Rename what must not be replaced to a free name beside it, and say so."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.kept-{number}")):
        number += 1
    free = path.with_name(f"{path.name}.kept-{number}")
    move(path, free)
    print(f"{path} {why}: it is kept as {free}", file=sys.stderr)
    return free


def key_of(options: object) -> str:
    """What JSON-able options are recognised by: their SHA-256."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


# ---- made as a whole, where nothing else may be -------------------------------------------------


@contextlib.contextmanager
def making(path: Path, check: Callable[[Path], object]) -> Iterator[Path]:
    """While the block runs, the place to make a file or folder in that then becomes ``path``.

    Args:
        path: replaced, if ``check`` allows it
        check: raises UserError unless what is at a path, if anything, may be replaced

    Raises:
        UserError: it may not be; the disk is full; another command is making it. What was there is
            unchanged.
    """
    check(path)
    if not path.name:
        raise UserError("the output cannot be the current folder itself: give another one")
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, work = (path.with_name(f".{path.name}.{end}") for end in ("lock", "part"))
    busy = locked(lock, f"{path} is being made")
    with writing(path), busy, Outputs([path], check, work).replacing() as part:
        yield part / path.name
        check(path)  # again: making it took a while


@contextlib.contextmanager
def making_recorded(folder: Path, record: str, command: str) -> Iterator[tuple[Path, Table]]:
    """As :func:`making`, for a folder with a record of what is in it, by which it is recognised.

    Args:
        folder: replaced, if it holds exactly what was made there
        record: the name of a JSON file in it; holds the table that the block fills in, and the
            SHA-256 of every other file (no times: the folder is to be given away)
        command: what makes it, for messages

    Yields:
        The folder to fill, and the table.
    """
    with making(folder, lambda path: check_recorded(path, record, command)) as part:
        part.mkdir()
        table: Table = {"made_by": command}
        yield part, table
        table["sha256"] = {path.name: sha256_of(path) for path in sorted(part.iterdir())}
        write_json(part / record, table)


def check_recorded(folder: Path, record: str, command: str) -> None:
    """Raises UserError unless a path is free, or holds exactly what was made there.

    Args: as :func:`making_recorded`.
    """
    check_unchanged(folder, record, read_json(folder / record).get("sha256", {}), command)


def check_unchanged(folder: Path, record: str, sums: dict[str, str], command: str) -> None:
    """Raises UserError unless a path is free, or a folder that ``command`` made and left alone.

    Args:
        folder: the path
        record: the file in it that has the hashes
        sums: the hashes, by file; empty if there is no record
        command: what makes it, for messages
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give another one with --out")
    for name in changed_files(folder, record, sums):
        raise UserError(
            f"{folder} has {name}, which '{command}' did not make, or which has changed since: "
            "give another folder with --out"
        )


def changed_files(folder: Path, record: str, sums: dict[str, str]) -> list[str]:
    """The files in a folder that have another hash than in its record, or none."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if not (sums and path.name == record)
        and not (path.is_file() and sums.get(path.name) == sha256_of(path))
    ]
