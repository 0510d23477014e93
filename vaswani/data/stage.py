"""A preparation stage, which is either done for exactly these inputs and options, or redone.

Each stage is made in ``.stages/part`` and renamed. Its marker ``.stages/NAME.json`` records a key
(a hash of its options and of the stage before it), the output (sizes, hashes) and the report. If
key and sizes are the same, the stage is skipped. A marker stays until its output is replaced;
what the marker does not describe is not ours, and is never removed (``ownership.py``).
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

from vaswani.common.errors import UserError
from vaswani.common.files import NO_RIGHT, NO_SPACE, atomic_write, read_json
from vaswani.data.ownership import hashes, holds, keep, listing, remove, unchanged

#: the folder of markers, beside the outputs; in it, outputs being made and being replaced
STAGES, PART, OLD = ".stages", "part", "old"


def marker(output: Path) -> Dict[str, Any]:
    """What the marker of an output says; empty if there is none, or it is not ours."""
    recorded = read_json(marker_of(output))
    for part in (recorded, recorded.get("next", {})):
        if not isinstance(part, dict) or not isinstance(part.get("left", {}), dict):
            return {}
    return recorded


def is_done(output: Path, key: str) -> bool:
    """Whether ``output`` is complete and was made under this key."""
    recorded = marker(output)
    return recorded.get("key") == key and holds(output, recorded.get("left"))


def marker_of(output: Path) -> Path:
    """The marker's file, in ``.stages`` beside the output."""
    return output.parent / STAGES / f"{output.name}.json"


def write_marker(output: Path, recorded: Dict[str, Any]) -> None:
    """Record what is known about an output."""
    with atomic_write(marker_of(output)) as stream:
        json.dump(recorded, stream, indent=1)


def forget(output: Path) -> None:
    """Let a stage be redone, whatever its key; its output is still known to be ours."""
    settle(output)
    recorded = marker(output)
    if recorded.get("key"):
        write_marker(output, {**recorded, "key": None})


def run_stage(output: Path, key: str, make: Callable[[Path], Any]) -> bool:
    """Make ``output`` with ``make(temporary path)``, unless it is done; return whether it ran.

    What ``make`` returns (JSON-able, or None) is kept in the marker as ``report``. If ``make``
    fails or is interrupted, the existing output is left as it was.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    settle(output)
    if is_done(output, key):
        return False
    aside = output.parent / STAGES / PART / output.name
    with space_for(output):
        check_writable(output.parent)
        remove(aside.parent)
        aside.parent.mkdir(parents=True)
        try:
            report = make(aside)
            left = listing(aside)
            made = {"key": key, "left": left, "sha256": hashes(aside, left, sync=True)}
            replace(output, aside, {**made, "report": report})
        finally:
            remove(aside.parent)
    return True


def replace(output: Path, made: Path, coming: Dict[str, Any]) -> None:
    """Replace ``output`` by ``made``, and its marker by ``coming``.

    Meanwhile the marker describes both, so that ``settle`` can recover from a kill at any point.
    """
    recorded = marker(output)
    ours = unchanged(output, recorded)
    write_marker(output, {**recorded, "next": coming})
    old = output.parent / STAGES / OLD / output.name
    if ours:
        old.parent.mkdir(exist_ok=True)
        output.rename(old)
    elif os.path.lexists(output):
        keep(output)
    made.rename(output)
    write_marker(output, coming)
    remove(old)


def settle(output: Path) -> None:
    """Finish or undo a replacement that was killed midway."""
    recorded = marker(output)
    old = output.parent / STAGES / OLD / output.name
    if "next" in recorded:
        if os.path.lexists(old) and not os.path.lexists(output):
            old.rename(output)
        coming = recorded.pop("next")
        write_marker(output, coming if unchanged(output, coming) else recorded)
    remove(old)


def check_writable(folder: Path) -> None:
    """Raises UserError if an existing folder is not writable."""
    for place in (folder, folder / STAGES):
        if place.is_dir() and not os.access(place, os.W_OK | os.X_OK):
            raise UserError(no_right(folder, "--out", "no write permission"))


@contextlib.contextmanager
def space_for(output: Path, option: str = "--out") -> Iterator[None]:
    """Turn a full disk, or a folder of ``output`` that is not writable, into a UserError.

    ``option`` is the one that chooses another folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(no_space(output, option)) from None
        folder, named = output.parent.absolute(), Path(error.filename or output).absolute()
        about_it = folder in (named, *named.parents) or named in folder.parents
        if error.errno in NO_RIGHT and about_it:
            raise UserError(no_right(output.parent, option, str(error.strerror))) from None
        raise


def no_space(output: Path, option: str = "--out") -> str:
    """The message about a full disk."""
    return (
        f"{output}: there is no space left for it on the disk; free some, or give a folder "
        f"elsewhere with {option}, and run the same command again"
    )


def no_right(folder: Path, option: str, why: str) -> str:
    """The message about a folder that is not writable."""
    return (
        f"the folder {folder} cannot be written ({why}): change its permissions, or give another "
        f"with {option}"
    )
