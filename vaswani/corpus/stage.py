"""A step of preparation that is either done for exactly these inputs and options, or redone.

Each stage writes aside and renames; then its marker under ``.stages/`` records a key (a hash of
its options and of the stage before it), what it left and what it reported. The same key and the
same files: skipped.
"""

import contextlib
import errno
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

from vaswani.errors import UserError
from vaswani.files import atomic_write

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def key_of(options: Any) -> str:
    """The SHA-256 of JSON-able options."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def listing(path: Path) -> Dict[str, int]:
    """The sizes of a file, or of the files in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(file.relative_to(path)): file.stat().st_size for file in files if file.is_file()}


def remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def marker(output: Path) -> Dict[str, Any]:
    """What the marker of an output says; empty if there is none."""
    try:
        found = json.loads(marker_of(output).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_done(output: Path, key: str) -> bool:
    """Whether ``output`` is whole and was made under this key."""
    said = marker(output)
    return bool(said.get("key") == key and said.get("left") and said["left"] == listing(output))


def marker_of(output: Path) -> Path:
    """The marker's file, in ``.stages`` beside the output."""
    return output.parent / ".stages" / f"{output.name}.json"


def forget(output: Path) -> None:
    """Let a stage be redone, whatever its key."""
    marker_of(output).unlink(missing_ok=True)


def run_stage(output: Path, key: str, make: Callable[[Path], Any]) -> bool:
    """Bring ``output`` about by ``make(path aside)``, unless it is done; return whether it ran.

    What ``make`` returns (JSON-able, or None) is kept in the marker as ``report``. A failure or an
    interruption inside ``make`` leaves nothing under the final name; what a killed run left aside
    is removed.

    Raises:
        UserError: the disk is full.
    """
    if is_done(output, key):
        return False
    aside = output.parent / f".{output.name}.part"
    forget(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    for left in [aside, *output.parent.glob(f".{aside.name}.*.part")]:
        remove(left)  # the second kind: files.atomic_write's own, of an aside that is a file
    try:
        with space_for(output):
            report = make(aside)
            remove(output)
            aside.rename(output)
            with atomic_write(marker_of(output)) as stream:
                said = {"key": key, "left": listing(output), "report": report}
                json.dump(said, stream, indent=1)
    finally:
        remove(aside)
    return True


@contextlib.contextmanager
def space_for(output: Path) -> Iterator[None]:
    """Turn a full disk into a UserError that says what it was needed for."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise UserError(no_space(output)) from None


def no_space(output: Path) -> str:
    """The sentence about a full disk."""
    return (
        f"{output}: there is no space left for it on the disk; free some, or name a folder "
        "elsewhere with --out, and run the same command again"
    )
