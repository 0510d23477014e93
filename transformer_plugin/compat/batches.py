"""Batches: no sentence is lost on the way into them."""

import functools
from typing import Any

import numpy as np
from fairseq.data import data_utils
from fairseq.tasks import translation


def apply() -> None:
    """Set this file's workarounds."""
    _keep_last_batch()
    _read_all_parts()


def _keep_last_batch() -> None:
    """No sentence is lost because the data do not divide by 8.

    Modern fairseq drops the last batch (the longest sentences of a training epoch, and up to seven
    of a test set, in silence) unless its size is a multiple of ``--required-batch-size-multiple``;
    the official one keeps it, as the option's own description says.
    """
    original = data_utils.batch_by_size

    @functools.wraps(original)
    def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(indices, np.ndarray):  # an iterator can be read only once
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = original(indices, *args, **kwargs)
        kept = sum(len(batch) for batch in batches)
        if kept < len(indices):  # batches are consecutive pieces of `indices`
            batches = [*batches, indices[kept:]]
        return batches

    data_utils.batch_by_size = batch_by_size


def _read_all_parts() -> None:
    """Data in several parts (``train``, ``train1``, …) are read without ``--upsample-primary`` too.

    All versions read the first part as often as that option says, whose default is -1: "negative
    dimensions are not allowed". ``--combine-valid-subsets`` ends the same way.
    """
    original = translation.load_langpair_dataset

    @functools.wraps(original)
    def load_langpair_dataset(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("upsample_primary") == -1:
            kwargs["upsample_primary"] = 1
        return original(*args, **kwargs)

    translation.load_langpair_dataset = load_langpair_dataset
