"""Compares the validation text with the checkpoint's: losses on two texts cannot be compared.

A checkpoint stores the hash of the validation text with the best loss so far. If a training
continues with another text, the best loss and the patience start again.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.utils import split_paths

#: in a checkpoint's ``task_state``: the hash of the validation text that its losses belong to
KEY = "validation_text_sha256"


def validation_text(data: str, subsets: str, combined: bool) -> str | None:
    """Return the hash of the first validation set, by which fairseq chooses the best checkpoint.

    It is None if there is no such file.

    Args:
        data: ``task.data``: a folder, or several separated by colons
        subsets: ``dataset.valid_subset``, such as ``valid`` or ``valid,test``
        combined: ``dataset.combine_valid_subsets``: also read ``valid1``, ``valid2`` …
    """
    folder = Path(split_paths(data)[0])
    subset = subsets.split(",")[0]
    number = r"\d*" if combined else ""
    name = re.compile(rf"{re.escape(subset)}{number}\.[^.]+-[^.]+\.[^.]+\.(bin|idx)")
    files = [path for path in sorted(folder.glob(f"{subset}*")) if name.fullmatch(path.name)]
    if not files:
        return None
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def is_other_text(saved: Mapping[str, Any], now: str | None) -> bool:
    """Return whether a checkpoint's losses belong to another validation text; False if unknown.

    Args:
        saved: the checkpoint's ``task_state``; those of earlier versions have no hash
        now: ``validation_text`` of this training
    """
    before = saved.get(KEY)
    return None not in (before, now) and before != now
