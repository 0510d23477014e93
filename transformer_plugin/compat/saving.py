"""Writes checkpoints completely, replaces them in one step, and keeps them readable."""

import contextlib
import errno
import logging
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics

from .replacing import PROTECTS, REPAIRS, replaces
from .resuming import why_over
from .translation_task import CheckedTranslationTask

logger = logging.getLogger(__name__)

TRIES, PAUSE = 3, 2.5
"""Attempts to write a checkpoint, and the seconds between them; fairseq's numbers."""

APART = 600.0
"""Seconds between checkpoints that are not averaged; the paper saved every ten minutes (6.1)."""


@replaces(
    checkpoint_utils,
    "torch_persistent_save",
    PROTECTS,
    "all",
    "a checkpoint replaces the one before only after it was written in full",
)
def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
    """Save as fairseq does, but each attempt writes a new file, renamed when it is complete.

    If writing fails, all versions write again into the same stream, after the bytes that are
    already there. torch's writer turns a Ctrl-C into ``RuntimeError``, which counts as such a
    failure. The unreadable file then replaces the good ones.
    """
    if async_write:
        return torch_persistent_save.original(obj, filename, async_write)
    return write_checkpoint(obj, filename)


def write_checkpoint(state: Any, path: str) -> None:
    """Save ``state`` as ``path``: write a hidden file, sync, rename; at most ``TRIES`` times.

    Raises:
        KeyboardInterrupt: writing was interrupted; ``path`` is unchanged.
        OSError: every attempt failed. It names ``path``, which is unchanged.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            _write_once(state, path)
            return
        except OSError as error:
            reason = error.strerror or str(error)
            if not tries_left:
                raise OSError(error.errno or errno.EIO, reason, path) from None
            logger.warning("%s: %s; trying again in %g s", path, reason, PAUSE)
            time.sleep(PAUSE)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield the name of a hidden file, which replaces ``path`` when the context ends."""
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name}.part")
    # the file of a killed process may be a link to a checkpoint, so it must not be written to
    Path(aside).unlink(missing_ok=True)
    try:
        yield aside
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)
    _sync_folder(path)


def _write_once(state: Any, path: str) -> None:
    with _replacing(path) as aside, open(aside, "wb") as stream:
        try:
            torch.save(state, stream)
        except Exception as error:
            raise (_reason(error) or error) from None
        stream.flush()
        os.fsync(stream.fileno())


def _reason(error: BaseException | None) -> BaseException | None:
    """Return the interrupt or failed write that caused an error of torch's writer, or None."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, OSError)):
        error = error.__cause__ or error.__context__
    return error


def _sync_folder(path: str) -> None:
    """Make a rename survive a power failure, if the file system supports it."""
    with contextlib.suppress(OSError):
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# not ``.original``: fairseq keeps the best score in the attributes of this function, and a program
# that trains twice in a process clears them
_fairseqs_save_checkpoint = checkpoint_utils.save_checkpoint


@replaces(
    checkpoint_utils,
    "save_checkpoint",
    PROTECTS,
    "all",
    "the plugin's task leaves out checkpoints where `--save-all-last` says so",
)
def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
    """Save as fairseq does, unless the task leaves this checkpoint out.

    fairseq keeps the best score in ``save_checkpoint.best``.
    """
    if _may_wait(cfg, trainer, epoch_itr):
        return None
    saved = _fairseqs_save_checkpoint(cfg, trainer, epoch_itr, val_loss)
    trainer.saved_at = trainer.cumulative_training_time()
    return saved


def _may_wait(cfg: Any, trainer: Any, epoch_itr: Any) -> bool:
    """Return whether the checkpoint of an interval is left out: ``task.save_all_last``.

    All processes agree, since they have the same number of updates and the same time.
    """
    last = getattr(getattr(trainer.task, "cfg", None), "save_all_last", None)
    if not isinstance(trainer.task, CheckedTranslationTask) or not last:
        return False
    if cfg.patience > 0 or epoch_itr.end_of_epoch() or why_over(trainer):
        return False  # training may end here
    updates = trainer.get_num_updates()
    interval = cfg.save_interval_updates
    if interval <= 0 or updates % interval:
        return False
    if updates >= trainer.cfg.optimization.max_update - last:
        return False
    before = getattr(trainer, "saved_at", None)  # by this process
    return before is not None and trainer.cumulative_training_time() - before < APART


@replaces(
    PathManager,
    "copy",
    PROTECTS,
    "all",
    "`checkpoint_best.pt` and `checkpoint_last.pt` are replaced in one step, by hard links where "
    "the file system has these",
)
def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    """Copy as fairseq does, but keep the old file until the new one is complete.

    All versions copy onto the old file, so a kill or a full disk at that moment leaves neither the
    old nor the new one.
    """
    try:
        with _replacing(dst_path) as aside:
            try:
                os.link(src_path, aside)  # a second name: nothing is written again
            except (AttributeError, OSError):  # not every system, or file system, has links
                shutil.copyfile(src_path, aside)
                with open(aside, "rb+") as stream:
                    os.fsync(stream.fileno())
    except OSError as error:  # it may name the source file
        raise OSError(error.errno, error.strerror, dst_path) from None
    return dst_path


def _plain(value: Any) -> Any:
    """Return ``value`` with numpy numbers as Python numbers and numpy arrays as tensors.

    Containers are converted at any depth. Meters of other people's code may have containers of
    their own classes, and arrays of strings or objects, which no tensor holds: those are left
    unchanged.
    """
    if isinstance(value, np.ndarray):
        try:
            return torch.from_numpy(value.copy())
        except TypeError:
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
    """Return fairseq's state of the meters, in plain numbers and tensors.

    All versions keep the arrays of ``--eval-bleu`` in their meters; numpy 2 writes them as
    ``numpy._core``, which numpy 1 cannot read, and torch from 2.6 on refuses them.
    """
    return _plain(state_dict.original())
