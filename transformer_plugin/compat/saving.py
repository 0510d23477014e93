"""Writing checkpoints: whole, checked, replaced in one step, and readable everywhere."""

import contextlib
import errno
import filecmp
import logging
import os
import shutil
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics

from .replacing import PROTECTS, REPAIRS, replaces

logger = logging.getLogger(__name__)

TRIES, PAUSE = 3, 2.5
"""How often writing a checkpoint is tried, and the seconds in between; fairseq's numbers."""

LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)
"""Errors that do not pass by waiting."""


@replaces(
    checkpoint_utils,
    "torch_persistent_save",
    PROTECTS,
    "all",
    "a checkpoint replaces the one before only after it was written in full and read back",
)
def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
    """As fairseq's, but each try writes a file of its own, which is renamed when it is whole.

    If writing fails, all versions write again into the same stream, after what is there already;
    and since torch's writer answers a Ctrl-C in the middle with ``RuntimeError``, that is taken for
    such a failure. The unreadable file then replaces the good ones.
    """
    if async_write or not PathManager.supports_rename(filename):
        return torch_persistent_save.original(obj, filename, async_write)  # not a local file
    return write_checkpoint(obj, filename)


def write_checkpoint(state: Any, path: str) -> None:
    """Save ``state`` as ``path``: write aside, sync, read back, rename; at most ``TRIES`` times.

    Raises:
        KeyboardInterrupt: there was one; ``path`` is unchanged.
        OSError: writing failed each time; names ``path``, which is unchanged.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            _write_once(state, path)
            return
        except OSError as error:
            reason = error.strerror or str(error)
            if not tries_left or error.errno in LASTING:
                raise OSError(error.errno or errno.EIO, reason, path) from None
            logger.warning("%s: %s; trying again in %g s", path, reason, PAUSE)
            time.sleep(PAUSE)


def _aside(path: str) -> str:
    """Where a file is written before it is renamed: a hidden file beside it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.part")


def _write_once(state: Any, path: str) -> None:
    aside = _aside(path)
    try:
        with open(aside, "wb") as stream:
            try:
                torch.save(state, stream)
            except Exception as error:
                raise (_reason(error) or error) from None
            stream.flush()
            os.fsync(stream.fileno())
        _read_back(aside)
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)
    _sync_folder(path)


def _reason(error: Optional[BaseException]) -> Optional[BaseException]:
    """The interrupt or failed write behind an error of torch's writer; None if neither."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, OSError)):
        error = error.__cause__ or error.__context__
    return error


def _read_back(path: str) -> None:
    """Raises OSError unless every part of the file has the checksum that torch wrote for it."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile as error:
        damaged = str(error)
    if damaged is not None:
        raise OSError(errno.EIO, f"what was written reads back damaged ({damaged})", path)


def _sync_folder(path: str) -> None:
    """Make a rename survive a power failure, if the file system can."""
    with contextlib.suppress(OSError):
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@replaces(
    PathManager,
    "copy",
    PROTECTS,
    "all",
    "`checkpoint_best.pt` and `checkpoint_last.pt` are replaced in one step, by an equal copy",
)
def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    """As fairseq's, but the old file is there until the new one is whole.

    All versions copy onto the old file, so that a kill or a full disk at that moment leaves
    neither the old nor the new one.
    """
    if PathManager.path_requires_pathmanager(dst_path):
        return copy.original(src_path, dst_path, overwrite)  # not a local file
    aside = _aside(dst_path)
    try:
        shutil.copyfile(src_path, aside)
        with open(aside, "rb+") as stream:
            os.fsync(stream.fileno())
        if not filecmp.cmp(src_path, aside, shallow=False):
            raise OSError(errno.EIO, f"the copy of {src_path} reads back damaged", dst_path)
        os.replace(aside, dst_path)
    except OSError as error:  # which may name the file that is read
        raise OSError(error.errno, error.strerror, dst_path) from None
    finally:
        Path(aside).unlink(missing_ok=True)
    _sync_folder(dst_path)
    return dst_path


def _plain(value: Any) -> Any:
    """``value`` with numpy numbers as Python numbers and numpy arrays as tensors, at any depth.

    Other people's meters may have containers of their own classes, and arrays that are no tensors
    (of strings, objects, ``longdouble``, another byte order): those are left as they are.
    """
    if isinstance(value, np.ndarray):
        try:
            return torch.from_numpy(value.copy())
        except (TypeError, ValueError):
            return value
    if isinstance(value, (np.number, np.bool_, np.character)):
        return value.item()
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _plain(item)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value


@replaces(
    metrics,
    "state_dict",
    REPAIRS,
    "all",
    "checkpoints hold no numpy objects, so that any numpy and plain `torch.load` can read them",
)
def state_dict() -> Any:
    """As fairseq's, in plain numbers and tensors.

    All versions keep the arrays of ``--eval-bleu`` in their meters; numpy 2 writes them as
    ``numpy._core``, which numpy 1 cannot read, and torch from 2.6 on refuses them.
    """
    return _plain(state_dict.original())
