"""A step of preparation that is either done for exactly these inputs and options, or redone.

Each stage writes aside and renames; then its marker under ``.stages/`` records a key (a hash of
its options and of the stage before it) and what it left. The same key and the same files: skipped.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict

from vaswani.files import atomic_write


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


def is_done(output: Path, key: str) -> bool:
    """Whether ``output`` is whole and was made under this key."""
    try:
        marker = json.loads(marker_of(output).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(marker == {"key": key, "left": listing(output)} and marker["left"])


def marker_of(output: Path) -> Path:
    """The marker's file, in ``.stages`` beside the output."""
    return output.parent / ".stages" / f"{output.name}.json"


def run_stage(output: Path, key: str, make: Callable[[Path], None]) -> bool:
    """Bring ``output`` about by ``make(path aside)``, unless it is done; return whether it ran.

    A failure or an interruption inside ``make`` leaves nothing under the final name.
    """
    if is_done(output, key):
        return False
    aside = output.parent / f".{output.name}.part"
    marker_of(output).unlink(missing_ok=True)
    remove(aside)
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        make(aside)
        remove(output)
        aside.rename(output)
    finally:
        remove(aside)
    with atomic_write(marker_of(output)) as stream:
        json.dump({"key": key, "left": listing(output)}, stream, indent=1)
    return True
