"""Data: batches keep every sentence, their threads end with the process; binarising."""

import atexit
import contextlib
import functools
import queue
import threading
from typing import Any

import numpy as np
from fairseq.data import indexed_dataset, iterators

from .replacing import REPAIRS, replaces


def keep_every_sentence(dataset: Any) -> None:
    """Let the batches of a data set contain every sentence.

    Modern fairseq silently drops the last batch (the longest sentences of a training epoch, and up
    to seven of a test set) unless its size is a multiple of ``--required-batch-size-multiple``; the
    official one keeps it, as the option's own description says.
    """
    dataset.batch_by_size = functools.partial(_batch_by_size, dataset)


def _batch_by_size(dataset: Any, indices: np.ndarray, *args: Any, **kwargs: Any) -> Any:
    """Return the batches of a data set, with the last batch whatever its size."""
    if len(indices) == 0:  # modern fairseq would look at the last batch
        return []
    batches = type(dataset).batch_by_size(dataset, indices, *args, **kwargs)
    batched = sum(len(batch) for batch in batches)
    if batched < len(indices):  # batches are consecutive parts of `indices`
        batches = [*batches, indices[batched:]]
    return batches


@replaces(
    indexed_dataset.MMapIndexedDatasetBuilder,
    "merge_file_",
    REPAIRS,
    "numpy 2",
    "`fairseq-preprocess --workers` can write more than 2 GB for one side of a corpus",
)
def merge_file_(builder: Any, another_file: str) -> Any:
    """Merge a part as fairseq does, with sizes that do not overflow.

    With numpy 2 the sizes in the parts that workers made are 32-bit numbers, and so are their
    sums: offsets beyond 2 GB become negative, with only a RuntimeWarning.
    """
    there = len(builder._sizes)
    done = merge_file_.original(builder, another_file)
    builder._sizes[there:] = map(int, builder._sizes[there:])
    return done


@atexit.register
def end_threads() -> None:
    """End fairseq's threads that prepare batches before the interpreter ends.

    All versions leave them running. Python ends a daemon thread where it next asks for the lock of
    the interpreter; if that is within torch, the process aborts ("terminate called without an
    active exception", exit code 134), whatever its real exit code was: after Ctrl-C, for example.
    """
    for thread in threading.enumerate():
        if isinstance(thread, iterators.BackgroundConsumer):
            thread._max_len = 0  # it ends after the batch that it is making
            while thread.is_alive():
                with contextlib.suppress(queue.Empty):  # the thread may wait for room
                    thread._queue.get(timeout=0.01)
