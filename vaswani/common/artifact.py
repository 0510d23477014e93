"""Where a command may write: never over its inputs, nor over files that it did not write itself.

And the key of what something is made from, by which it is recognised as made.
"""

import contextlib
import glob
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from vaswani.common.errors import UserError
from vaswani.common.files import NO_RIGHT, NO_SPACE, read_json


def output_file(
    path: Path,
    inputs: Iterable[Path] = (),
    ours: Callable[[Path], bool] = lambda _: False,
    ours_is: str = "this command's",
) -> Path:
    """Where to write the file requested as ``path``: for a symlink, the file it points to.

    Args:
        path: may exist; an empty file may be replaced by any command
        inputs: files that the command reads
        ours: whether an existing file was written by the same command
        ours_is: the same in words, for the message

    Raises:
        UserError: it is an input, under whatever name, or exists and is not ours.
    """
    for source in inputs:
        if same_file(path, source):
            raise UserError(
                f"{path} would be replaced, but is an input of the same command"
                f"{'' if path == source else f' (it is {source})'}: give the output another name"
            )
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the output a name in it")
    if path.exists():
        if not path.is_file():
            raise UserError(f"{path} is not a regular file: give the output another name")
        if path.stat().st_size and not ours(path):
            raise UserError(
                f"{path} exists and is no {ours_is}: give the output another name, or move the "
                "file away"
            )
    check_folder(path.parent)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_folder(folder: Path) -> None:
    """Raises UserError unless a folder can be written to, or made; called before hours of work."""
    there = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    if not there.is_dir():
        raise UserError(f"{there} is not a folder: give the output another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there} cannot be written to: give the output another folder")


def same_file(path: Path, other: Path) -> bool:
    """Whether two paths are the same file: spelt differently, or linked, symbolically or not."""
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is ``folder`` or anywhere below it, however the two are spelt."""
    there = Path(os.path.realpath(folder))
    here = Path(os.path.realpath(path))
    return here == there or there in here.parents


def is_report(path: Path, *keys: str) -> bool:
    """Whether a file is a JSON table with these keys."""
    return path.is_file() and set(keys) <= set(read_json(path))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """While ``path`` is written (aside, then renamed), report write errors in terms of ``path``.

    Raises:
        UserError: the disk is full, or a folder cannot be written to; ``path`` is unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            problem = f"there is no space left for {path}: free some"
        elif error.errno in NO_RIGHT:
            problem = f"{path.parent} cannot be written to: give the output another folder"
        else:
            raise
        raise UserError(f"{problem} ({error.strerror}; what was there is unchanged)") from None


@contextlib.contextmanager
def aside(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder``, removed at the end if it still exists.

    If a command that was replacing ``folder`` was killed between the two renamings of
    :func:`put_in_place`, its content is restored first.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    replaced = sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*.old"))
    if replaced and not folder.exists():
        replaced[-1].rename(folder)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o777 & ~umask)
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def put_in_place(part: Path, folder: Path) -> None:
    """Rename ``part`` to ``folder``, whose earlier content was ours and is removed."""
    if not folder.exists():
        part.rename(folder)
        return
    old = part.with_suffix(".old")
    try:
        folder.rename(old)
        part.rename(folder)
    finally:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:  # interrupted between the two renamings
            old.rename(folder)


def key_of(options: Any) -> str:
    """The SHA-256 of JSON-able options."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
