"""What a command makes: where it may be written, and how it is put there, whole or not at all.

A command never writes over its inputs, nor over anything that it did not write itself.
"""

import contextlib
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple

from vaswani.common.errors import UserError
from vaswani.common.files import (
    NO_SPACE,
    locked,
    move,
    read_json,
    remove,
    sha256_of,
    sync,
    write_json,
)

#: the "size" of what no command makes: a link, a device, an empty folder
NOT_A_FILE = -1
#: files that desktops leave in every folder they have shown
_DESKTOPS = {".DS_Store"}

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
    outer = Path(os.path.realpath(folder))
    inner = Path(os.path.realpath(path))
    return inner == outer or outer in inner.parents


def is_report(path: Path, *keys: str) -> bool:
    """Whether a file is a JSON table with these keys."""
    return path.is_file() and set(keys) <= set(read_json(path))


@contextlib.contextmanager
def writing(path: Path, option: Optional[str] = None) -> Iterator[None]:
    """While ``path`` is written (aside, then renamed), report write errors in terms of ``path``.

    Args:
        path: the one that the user knows
        option: the one that chooses another folder

    Raises:
        UserError: the disk is full; ``path`` is unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(
                f"there is no space left for {path}: free some, or {another_folder(option)}, and "
                f"run the same command again ({error.strerror}; what was there is unchanged)"
            ) from None
        raise


def another_folder(option: Optional[str]) -> str:
    """What to do about a folder, by the option that chooses it."""
    return f"give another folder with {option}" if option else "give the output another folder"


# ---- made as a whole ------------------------------------------------------------------------


class Artifact:
    """What a command makes as a whole: a file, a folder, or several of them.

    It is made in a hidden folder, ``work``, in three steps:

        work/part/NAME      being made, under its final name; then flushed to disk
        work/complete/NAME  ``part``, renamed: from now on it is made, and only has to be moved
        NAME                moved to its place; a folder that was there goes to work/old/NAME first,
                            because a folder, unlike a file, cannot replace another in one step

    Wherever it was stopped, the next command (:meth:`making` or :meth:`recover`) leaves the disk as
    before or as after: what is complete is moved, what is not is removed. A record of what was
    made is an output too, the last one: until all others are in place, the earlier record tells
    which of those that exist this command made.

    Only one command at a time may work on it (:func:`vaswani.common.files.locked`).

    Args:
        outputs: where everything goes, each under another name; all on one file system
        clear_the_way: called with an existing output before it is replaced; it moves away what
            may not be replaced (:func:`keep`), or raises UserError
        work: the hidden folder; beside the first output, if not given
    """

    def __init__(
        self,
        outputs: Sequence[Path],
        clear_the_way: Callable[[Path], Any],
        work: Optional[Path] = None,
    ) -> None:
        self.outputs = list(outputs)
        self.clear_the_way = clear_the_way
        self.work = work or outputs[0].with_name(f".{outputs[0].name}.part")
        self.part, self.complete, self.old = (
            self.work / name for name in ("part", "complete", "old")
        )

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
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
        for output in self.outputs if self.complete.is_dir() else ():
            made, old = self.complete / output.name, self.old / output.name
            if not os.path.lexists(made):
                continue  # it was moved before the stop
            if os.path.lexists(output):
                self.clear_the_way(output)
            if os.path.lexists(output) and (made.is_dir() or output.is_dir()):
                # moved, not removed: a stop while removing would leave half of it under its name
                remove(old)
                self.old.mkdir(exist_ok=True)
                move(output, old)
            move(made, output)
        remove(self.work)


@contextlib.contextmanager
def making(path: Path, check: Callable[[Path], Any]) -> Iterator[Path]:
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
    lock = path.with_name(f".{path.name}.lock")
    artifact = Artifact([path], check)
    busy = locked(lock, f"{path} is being made", leave=False)
    with writing(path), busy, artifact.making() as part:
        yield part / path.name
        check(path)  # again: making it took a while


@contextlib.contextmanager
def making_recorded(
    folder: Path, record: str, command: str
) -> Iterator[Tuple[Path, Dict[str, Any]]]:
    """As :func:`making`, for a folder with a record of what is in it, by which it is recognised.

    Args:
        folder: replaced, if it holds exactly what was made there
        record: the name of a JSON file in it; holds the table that the block fills in, and the
            SHA-256 of every other file
        command: what makes it, for messages

    Yields:
        The folder to fill, and the table.
    """

    def check(path: Path) -> None:
        check_recorded(path, record, command)

    with making(folder, check) as part:
        part.mkdir()
        table: Dict[str, Any] = {"made_by": command}
        yield part, table
        names = sorted(path.name for path in part.iterdir())
        write_json(part / record, {**table, "sha256": hashes_of(part, names)})


def check_recorded(folder: Path, record: str, command: str) -> None:
    """Raises UserError unless a path is free, or holds exactly what was made there.

    Args: as :func:`making_recorded`.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give another one with --out")
    sums = read_json(folder / record).get("sha256")
    sums = sums if isinstance(sums, dict) else {}
    for path in sorted(folder.iterdir()):
        kept = path.name == record and sums
        if not kept and not (path.is_file() and sums.get(path.name) == sha256_of(path)):
            raise UserError(
                f"{folder} has {path.name}, which '{command}' did not make, or which has changed "
                "since: give another folder with --out"
            )


# ---- what was made, and by whom ---------------------------------------------------------------


def sizes_in(path: Path) -> Dict[str, int]:
    """The size of a file (as ``.``), or of every file in a folder; see :func:`size_of`."""
    if path.is_symlink() or not path.is_dir():
        return {".": size_of(path)} if os.path.lexists(path) else {}
    sizes: Dict[str, int] = {}
    for folder, below, files in os.walk(path):
        links = [name for name in below if os.path.islink(os.path.join(folder, name))]
        for name in {*files, *links} - _DESKTOPS:
            entry = Path(folder, name)
            sizes[str(entry.relative_to(path))] = size_of(entry)
        if not below and not files:
            sizes[str(Path(folder).relative_to(path))] = NOT_A_FILE
    return sizes


def size_of(path: Path) -> int:
    """The size of a regular file in bytes, ``NOT_A_FILE`` for anything else."""
    status = path.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else NOT_A_FILE


def hashes_of(path: Path, names: Iterable[str]) -> Dict[str, str]:
    """The SHA-256 of files in a folder; of a file itself, as ``.``."""
    return {name: sha256_of(path / name) for name in names}


def keep(path: Path, why: str = "was not made by this command, or has changed since") -> Path:
    """Rename what must not be replaced to a free name beside it, and say so."""
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.kept-{number}")):
        number += 1
    move(path, kept)
    print(f"{path} {why}: it is kept as {kept}", file=sys.stderr)
    return kept


def key_of(options: Any) -> str:
    """What JSON-able options are recognised by: their SHA-256."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
