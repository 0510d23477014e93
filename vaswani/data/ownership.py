"""What this command made and may replace; everything else is renamed and reported.

An output is ours if its marker lists exactly what is there: the same names, sizes and, in markers
that have them, hashes.
"""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any, Dict

from vaswani.common.files import sha256_of

#: files that desktops leave in every folder they have shown
_DESKTOPS = {".DS_Store"}
#: the "size" of things that no stage makes: a link, a device, an empty folder
ODD = -1


def listing(path: Path) -> Dict[str, int]:
    """The size of a file, or of every file in a folder; ``ODD`` if it is not a regular file."""
    if path.is_symlink() or not path.is_dir():
        return {".": size(path)} if os.path.lexists(path) else {}
    found: Dict[str, int] = {}
    for folder, below, files in os.walk(path):
        links = [name for name in below if os.path.islink(os.path.join(folder, name))]
        for name in {*files, *links} - _DESKTOPS:
            entry = Path(folder, name)
            found[str(entry.relative_to(path))] = size(entry)
        if not below and not files:
            found[str(Path(folder).relative_to(path))] = ODD
    return found


def size(path: Path) -> int:
    """The size of a regular file in bytes, ``ODD`` for anything else."""
    status = path.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else ODD


def holds(path: Path, left: Any) -> bool:
    """Whether everything in the listing exists with its size; there may be more."""
    try:
        found = {name: (path / name).stat() for name in left or ()}
    except OSError:
        return False
    return bool(found) and all(
        stat.S_ISREG(status.st_mode) and status.st_size == left[name]
        for name, status in found.items()
    )


def hashes(path: Path, left: Dict[str, int], sync: bool = False) -> Dict[str, str]:
    """The SHA-256 of each file in a listing; with ``sync``, each is flushed to disk."""
    return {name: sha256_of(path / name, sync) for name in left}


def unchanged(path: Path, marker: Dict[str, Any]) -> bool:
    """Whether a path holds exactly what its marker says; older versions' markers lack hashes."""
    left = marker.get("left")
    if not left or listing(path) != left:
        return False
    return "sha256" not in marker or hashes(path, left) == marker["sha256"]


def keep(path: Path) -> Path:
    """Rename what is not ours to a free name beside it, and say so."""
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.kept-{number}")):
        number += 1
    path.rename(kept)
    print(
        f"{path} was not made by this command, or has changed since: it is kept as {kept}",
        file=sys.stderr,
    )
    return kept


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
