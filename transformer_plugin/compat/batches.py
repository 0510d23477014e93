"""Batches: no sentence is lost on the way into them, and one that is too long is reported early."""

import functools
from typing import Any, Optional

import numpy as np
from fairseq.data import data_utils
from fairseq.tasks import FairseqTask, translation
from fairseq.trainer import Trainer

from ..config import ConfigError
from .scope import is_translation

_SKIP = (
    "--skip-invalid-size-inputs-valid-test (in YAML dataset.skip_invalid_size_inputs_valid_test)"
)


def apply() -> None:
    """Install this file's workarounds."""
    _make_batches_whole()
    _count_overlong()
    _look_ahead()
    _read_all_parts()


def _make_batches_whole() -> None:
    """No sentence is lost because the data do not divide by 8; one too long gets a clear message.

    Modern fairseq silently drops the last batch (the longest sentences of a training epoch, and up
    to seven of a test set) unless its size is a multiple of ``--required-batch-size-multiple``; the
    official one keeps it, as the option's own description says. All versions end in an
    AssertionError for a sentence longer than ``--max-tokens``.
    """
    original = data_utils.batch_by_size

    @functools.wraps(original)
    def batch_by_size(
        indices: Any,
        num_tokens_fn: Any,
        num_tokens_vec: Any = None,
        max_tokens: Optional[int] = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(indices, np.ndarray):  # an iterator can be read only once
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        if len(indices) == 0:  # modern fairseq would look at the last batch
            return []
        try:
            batches = original(indices, num_tokens_fn, num_tokens_vec, max_tokens, *args, **kwargs)
        except AssertionError as error:
            if "max_tokens" not in str(error):
                raise
            longest = max(map(num_tokens_fn, indices) if num_tokens_vec is None else num_tokens_vec)
            raise ConfigError(
                f"a sentence of {longest} tokens does not fit into batches of {max_tokens}: give a "
                "larger --max-tokens (dataset.max_tokens), or --max-tokens-valid "
                "(dataset.max_tokens_valid) for validation alone"
            ) from None
        kept = sum(len(batch) for batch in batches)
        if kept < len(indices):  # batches are consecutive parts of `indices`
            batches = [*batches, indices[kept:]]
        return batches

    data_utils.batch_by_size = batch_by_size


def _count_overlong() -> None:
    """If sentences are too long, the message says how many, and which switch leaves them out.

    All versions name only the first one.
    """
    original = FairseqTask.filter_indices_by_size

    @functools.wraps(original)
    def filter_indices_by_size(
        self: Any, indices: Any, dataset: Any, max_positions: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return original(self, indices, dataset, max_positions, *args, **kwargs)
        except Exception as error:
            if "is invalid" not in str(error):
                raise
            fit, _ = dataset.filter_indices_by_size(indices, max_positions)
            too_long = np.setdiff1d(indices, fit)
            raise ConfigError(
                f"{len(too_long):,} of {len(indices):,} sentences (the first is #{too_long[0]}) "
                f"are longer than the {max_positions} tokens that the model takes: leave them out "
                f"with {_SKIP}, or shorten them"
            ) from None

    FairseqTask.filter_indices_by_size = filter_indices_by_size


def _look_ahead() -> None:
    """Data on which training or its first validation would fail are refused before any update.

    Official fairseq makes the validation batches only when it first validates, hours later. All
    versions say the same of an empty text and of one in which every sentence is too long.
    """
    original = Trainer.get_train_iterator

    def first_batches(trainer: Any, subset: str, *args: Any, **kwargs: Any) -> Any:
        train = subset == trainer.cfg.dataset.train_subset
        try:
            if train:
                return original(trainer, *args, **kwargs)
            return trainer.get_valid_iterator(subset)
        except Exception as error:
            if "dataset is empty" not in str(error):
                raise
            bounds = "--max-tokens (dataset.max_tokens) or " if train else ""
            raise ConfigError(
                f"no sentence of '{subset}' is left: all are longer than {bounds}the model's "
                "positions (task.max_source_positions, task.max_target_positions)"
            ) from None

    @functools.wraps(original)
    def get_train_iterator(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_translation(self.task):
            return original(self, *args, **kwargs)
        dataset = self.cfg.dataset
        if not dataset.disable_validation and not getattr(self, "_looked_ahead", False):
            self._looked_ahead = True
            for subset in dataset.valid_subset.split(","):
                if subset in self.task.datasets:
                    first_batches(self, subset)
        refuse_no_updates(self)
        # last, so that fairseq's dummy batch comes from the training text, as without this
        return first_batches(self, dataset.train_subset, *args, **kwargs)

    Trainer.get_train_iterator = get_train_iterator


def refuse_no_updates(trainer: Any) -> None:
    """Raise ConfigError if training would end, as if complete, before its first update.

    Warm-up begins with a small rate, which fairseq takes for one that has become small.
    """
    lowest = trainer.cfg.optimization.stop_min_lr
    if lowest > 0 and trainer.get_num_updates() == 0 and trainer.get_lr() <= lowest:
        raise ConfigError(
            f"--stop-min-lr {lowest:g} ends the training before its first update, whose rate is "
            f"{trainer.get_lr():g}: lower it (optimization.stop_min_lr), or leave it out"
        )


def _read_all_parts() -> None:
    """Data in several parts (``train``, ``train1``, …) can be read without ``--upsample-primary``.

    All versions repeat the first part as often as that option says, and its default is -1:
    "negative dimensions are not allowed". ``--combine-valid-subsets`` fails the same way.
    """
    original = translation.load_langpair_dataset

    @functools.wraps(original)
    def load_langpair_dataset(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("upsample_primary") == -1:
            kwargs["upsample_primary"] = 1
        return original(*args, **kwargs)

    translation.load_langpair_dataset = load_langpair_dataset
