"""Files that are complete or absent (written aside, then renamed); reading, hashing, locking;
where a command may write.

Every rename, flush to disk and lock of ``vaswani`` is here: ``outputs.py`` builds on these.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from vaswani.common.errors import UserError
from vaswani_transformer.io.sums import sha256_of as sha256_of  # packed models are read without us

T = TypeVar("T")
PathLike = str | Path
#: what a file of JSON or YAML holds: tables, lists, numbers, text
Table = dict[str, Any]
#: errors of a full disk, quota or file size limit
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` that replaces it when the block ends without an error.

    Text is UTF-8 with ``\\n`` line ends and no translation, so that line counts agree by bytes.
    If the block fails or is interrupted, the temporary file is removed and ``path`` is left as it
    was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text: Table = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # the one the user knows
        raise
    try:
        with os.fdopen(handle, mode, **text) as stream:
            yield stream
        sync(aside)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)  # mkstemp makes 0600; give what open() would have given
        move(aside, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        if isinstance(error, OSError) and error.errno and error.filename in (None, aside):
            error.filename = str(path)
            error.filename2 = None
        raise


def move(path: PathLike, target: PathLike) -> None:
    """Rename a file or folder; one file replaces another in one step.

    The new name is on disk afterwards: a power failure cannot undo it, nor reorder two moves.
    """
    os.replace(path, target)
    with contextlib.suppress(OSError):  # there are file systems that cannot
        sync(Path(target).parent)


def sync(path: PathLike) -> None:
    """Wait until the content of a file, or the list of files in a folder, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_json(path: Path) -> Table:
    """Return a JSON table, or an empty one if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):  # nested too deep
        return {}
    return content if isinstance(content, dict) else {}


def read_record(path: Path, from_json: Callable[[Table], T]) -> T:
    """Read a JSON file as a type; ``from_json`` gets its table, empty if there is no file."""
    return from_json(read_json(path))


def write_json(path: Path, table: Table) -> None:
    """Write a table as human-readable JSON."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        json.dump(table, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


@contextlib.contextmanager
def locked(path: Path, what: str, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock on ``path`` while the block runs, so that no other command takes it.

    The kernel releases the lock when the process ends, however it ends. If the file system is
    shared and its other machine has died, the release takes minutes; ``patience`` (in seconds) is
    how long to wait for it. If the file system has no locks, the block runs without one.

    The package filelock is not used (tests/unit/test_locks.py): on NFS it can lock a file that the
    last holder has just removed, so that two commands hold the lock; and on a file system without
    locks it leaves behind the file of a killed process.

    Raises:
        UserError: another process holds it; begins with ``what`` ("runs/a is being trained").
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    while True:
        try:
            stream = _take(path, what)
            break
        except UserError:
            if time.monotonic() >= until:
                raise
            time.sleep(min(patience, 5.0))
    try:
        yield
    finally:
        if stream is not None:
            path.unlink(missing_ok=True)
            stream.close()


def _take(path: Path, what: str) -> IO[str] | None:
    """Lock the file and return it, with our process's number in it; None if there are no locks.

    ``lockf``, not ``flock``, whose locks pass to forked workers: these may outlive a killed parent
    by seconds, and would keep the same command from continuing.
    """
    if path.is_symlink():
        raise UserError(
            f"{path} is a symbolic link, and the file that it points to would be overwritten: "
            "remove the link"
        )
    stream = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (closed by the caller)
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        stream.seek(0)
        holder = stream.read().strip() or "which has just begun"  # and not written its number yet
        stream.close()
        raise UserError(f"{what} by another command ({holder}): wait for it, or end it") from None
    except OSError:
        stream.close()
        return None
    if not _is_at(path, stream):  # its holder removed it after it was opened
        stream.close()
        return _take(path, what)
    try:
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        stream.flush()
    except OSError as error:  # the disk is full
        error.filename = str(path)
        raise
    return stream


def _is_at(path: Path, stream: IO[str]) -> bool:
    """Return whether a path leads to an open file; a removed one has a link left on NFS."""
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


# ---- where a command may write -------------------------------------------------------------------
# Never over its inputs, nor over anything that it did not write itself.


def output_file(
    path: Path,
    inputs: Iterable[Path] = (),
    may_replace: Callable[[Path], bool] = lambda _: False,
    kind: str = "this command's",
) -> Path:
    """Return where to write the file requested as ``path``: for a symlink, the file it points to.

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
            f"{path} exists and is not a {kind}: give the output another name, or move {path} away"
        )
    check_folder(path.parent)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_folder(folder: Path) -> None:
    """Raise UserError unless a folder can be written to, or made; called before hours of work."""
    existing = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "no write permission" if existing.is_dir() else "it is not a folder"
        raise UserError(f"{existing} cannot be written to ({why}): choose another output folder")


def same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are the same file: written differently, or linked, symbolically or
    not.
    """
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether ``path`` is ``folder`` or anywhere below it, however the two are written."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_report(path: Path, *keys: str) -> bool:
    """Return whether a file is a JSON table with the keys of a report."""
    return path.is_file() and set(keys) <= set(read_json(path))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report errors of writing in the block in terms of ``path``, the file's final name.

    Raises:
        UserError: the disk is full; ``path`` is unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(
                f"there is no space left for {path}: free disk space or choose another folder, "
                f"and run the same command again ({error.strerror}; existing files are unchanged)"
            ) from None
        raise
