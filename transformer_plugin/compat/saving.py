"""Writing checkpoints: whole, replaced in one step, and readable everywhere."""

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.file_io import PathManager
from fairseq.logging import metrics


def apply() -> None:
    """Set this file's workarounds."""
    _copy_atomically()
    _save_plain_meters()


def _copy_atomically() -> None:
    """checkpoint_best.pt and checkpoint_last.pt are replaced in one step.

    All versions copy onto the old file, so that a kill or a full disk in that moment leaves
    neither the old nor the new one.
    """
    original = PathManager.copy

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if PathManager.path_requires_pathmanager(dst_path):
            return original(src_path, dst_path, overwrite)  # not a file of this machine
        aside = f"{dst_path}.tmp"
        try:
            shutil.copyfile(src_path, aside)
            with open(aside, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(aside, dst_path)
        finally:
            Path(aside).unlink(missing_ok=True)
        return dst_path

    PathManager.copy = staticmethod(copy)


def _plain(value: Any) -> Any:
    """``value`` with numpy numbers as Python numbers and numpy arrays as tensors, at any depth."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return type(value)((key, _plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value


def _save_plain_meters() -> None:
    """Checkpoints hold no numpy object, so that any numpy and plain ``torch.load`` can read them.

    All versions keep the arrays of ``--eval-bleu`` in their meters; numpy 2 writes them as
    ``numpy._core``, which numpy 1 cannot read, and torch from 2.6 on refuses them.
    """
    original = metrics.state_dict

    @functools.wraps(original)
    def state_dict() -> Any:
        return _plain(original())

    metrics.state_dict = state_dict
