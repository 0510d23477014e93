"""Resuming training: the checkpoint to resume from, changed options, and the end of training."""

import argparse
import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from ..checkpoints import (
    CheckpointError,
    checkpoint_metadata,
    load_checkpoint,
    trained_checkpoints,
)
from ..checks import check_best_metric, check_subsets
from .dictionaries import other_dictionaries
from .divergence import explaining_divergence
from .replacing import PROTECTS, replaces
from .training_text import other_languages, other_text
from .translation_task import CheckedTranslationTask
from .validation_text import is_other_text, validation_text

logger = logging.getLogger(__name__)

DEFAULT = "checkpoint_last.pt"
ANNOUNCED = {
    "common": ("seed", "fp16"),
    "dataset": ("max_tokens", "batch_size", "train_subset", "required_batch_size_multiple"),
    "optimization": ("update_freq", "clip_norm", "lr", "sentence_avg"),
    **dict.fromkeys(("criterion", "lr_scheduler", "model", "optimizer")),
}
"""Options whose change a resumed training reports: keys by section, None for all keys."""
ANEW = (
    "the validation text has changed since the checkpoint was saved: the best checkpoint is "
    "chosen anew and the patience starts over, at the next validation"
)


@replaces(
    checkpoint_utils,
    "load_checkpoint",
    PROTECTS,
    "all",
    "resumes from the newest checkpoint, refuses another dictionary, another text or language "
    "pair and a `--restore-file` that does not exist, looks at the validation data before the "
    "first update, chooses the best checkpoint anew on another validation text, names options that "
    "changed, goes no further than asked, and names the update and the last good checkpoint where "
    "training diverges",
)
def load_checkpoint_to_resume(cfg: Any, trainer: Any, **options: Any) -> Any:
    """Load a checkpoint as fairseq does; training continues where it stopped, and may be over.

    Without checkpoint_last.pt, or with a ``--restore-file`` that does not exist, all versions start
    again in the same folder and overwrite its files. A training that has all its updates, or more
    than it should have by now, gets one more, which replaces its last and best checkpoint. Official
    fairseq makes the validation batches only when it first validates, hours later.
    """
    original = load_checkpoint_to_resume.original
    if not isinstance(trainer.task, CheckedTranslationTask):
        return original(cfg, trainer, **options)
    check_best_metric(cfg, trainer.task.cfg)
    check_subsets(trainer.cfg.dataset)
    load = trainer.load_checkpoint

    def load_if_it_fits(path: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any) -> Any:
        saved: Mapping[str, Any] = checkpoint_metadata(path) if Path(path).is_file() else {}
        if saved:
            _compare(saved, trainer, reset_optimizer)
        if saved and not reset_optimizer:
            _refuse_other_text(saved, trainer, bool(cfg.reset_dataloader))
        text = trainer.task.validation_text
        # vaswani's trainer reads it: its count of validations is in the checkpoint, too
        trainer.other_validation_text = is_other_text(saved.get("task_state") or {}, text)
        extra_state = load(path, reset_optimizer, *args, **kwargs)
        continues = not reset_optimizer and not kwargs.get("reset_meters")
        if extra_state and continues and trainer.other_validation_text:
            logger.warning(ANEW)
            extra_state.pop("best", None)
        return extra_state

    # before the training batches are made, so that fairseq's dummy batch is one of them, as usual
    dataset = trainer.cfg.dataset
    trainer.task.validation_text = validation_text(
        trainer.task.cfg.data, dataset.valid_subset, dataset.combine_valid_subsets
    )
    for subset in [] if dataset.disable_validation else dataset.valid_subset.split(","):
        if subset in trainer.task.datasets:
            trainer.get_valid_iterator(subset)
    with _restoring(cfg):
        trainer.load_checkpoint = load_if_it_fits
        try:
            extra_state, iterator = _load(original, cfg, trainer, options)
        except Exception as error:
            problem = problem_of_checkpoint(error)
            if not problem:
                raise
            raise CheckpointError(problem) from None
        finally:
            del trainer.load_checkpoint
    _explain_divergence(trainer)
    # None: nothing was loaded, so this training begins
    reason = why_over(trainer) if extra_state is not None else None
    if reason:
        logger.warning("nothing is left to train: %s", reason)
        # fairseq checks --max-update only after an update, but this before each epoch
        trainer.cfg.optimization.max_epoch = -1
    return extra_state, iterator


def _explain_divergence(trainer: Any) -> None:
    """Let a training that diverges report the update and the last good checkpoint."""
    train_step = trainer.train_step

    def train_step_or_sentence(*args: Any, **kwargs: Any) -> Any:
        with explaining_divergence(trainer):
            return train_step(*args, **kwargs)

    trainer.train_step = train_step_or_sentence


def _load(original: Any, cfg: Any, trainer: Any, options: dict[str, Any]) -> Any:
    """Call ``original``; if the last checkpoint is damaged inside a tensor, load the newest.

    Before, :func:`_restoring` does not read the tensors: that would take as long as loading them,
    each time a training continues.
    """
    try:
        return original(cfg, trainer, **options)
    except CheckpointError:
        if not _last_is_damaged(cfg):
            raise
        _name_newest(cfg)
        return original(cfg, trainer, **options)


def problem_of_checkpoint(error: Exception) -> str:
    """Return why fairseq could not load a checkpoint, if a user can fix it; "" otherwise.

    fairseq's Trainer replaces a model's message about parameters that do not fit by its own, which
    names only the file.
    """
    if isinstance(error.__context__, CheckpointError):
        file = str(error).partition("; please ensure that the architectures match")[0]
        return f"{file}: {error.__context__}"
    if isinstance(error, AssertionError) and "--reset-optimizer" in str(error):
        # it has another optimizer (also by common.fp16), or another criterion
        return f"{error} (in YAML: checkpoint.reset_optimizer: true)"
    return ""


def _compare(saved: Mapping[str, Any], trainer: Any, reset_optimizer: bool) -> None:
    """Log differences from a checkpoint; fairseq itself compares only the parameters' shapes.

    If the optimizer is reset, another training begins from these parameters, perhaps with other
    dictionaries on purpose.

    Raises:
        CheckpointError: the checkpoint was trained with other dictionaries.
    """
    other = other_dictionaries(trainer.task, saved.get("task_state") or {})
    if other and not reset_optimizer:
        raise CheckpointError(other)
    if other:
        logger.warning(other)
    if not reset_optimizer and trainer.data_parallel_rank == 0:
        changes = changed_options(saved.get("cfg") or {}, trainer.cfg)
        if changes:
            logger.warning("continuing with changed options: %s", "; ".join(changes))


def _refuse_other_text(saved: Mapping[str, Any], trainer: Any, reset_dataloader: bool) -> None:
    """Raise CheckpointError if a training would continue with other languages or other text.

    Args:
        saved: the checkpoint
        trainer: with the task
        reset_dataloader: whether the training begins at epoch 1 of its text
    """
    task_state = saved.get("task_state") or {}
    now = trainer.task.training_text
    problem = other_languages(now, task_state)
    if not problem and not reset_dataloader:
        problem = other_text(now, task_state)
    if problem:
        raise CheckpointError(problem)


@contextlib.contextmanager
def _restoring(cfg: Any) -> Iterator[None]:
    """Set the checkpoint to resume from in fairseq's section ``checkpoint``, within the context.

    Raises:
        CheckpointError: ``restore_file`` does not exist, or none of the checkpoints can be read.
    """
    before = {name: getattr(cfg, name) for name in ("restore_file", "finetune_from_model")}
    if cfg.restore_file != DEFAULT:
        if not checkpoint_utils.PathManager.exists(cfg.restore_file):  # it may be a URL
            raise CheckpointError(
                f"{cfg.restore_file} does not exist: correct --restore-file, or leave it out to "
                "start over (or to continue from checkpoint_last.pt)."
            )
    elif cfg.save_dir:
        try:
            checkpoint_metadata(Path(cfg.save_dir) / DEFAULT)
        except CheckpointError:
            _name_newest(cfg)
    try:
        yield
    finally:  # the next checkpoint stores the configuration: as the user gave it
        for name, value in before.items():
            setattr(cfg, name, value)


def _last_is_damaged(cfg: Any) -> bool:
    """Return whether checkpoint_last.pt should be loaded and is damaged inside a tensor."""
    if cfg.restore_file != DEFAULT or not cfg.save_dir:
        return False
    try:
        load_checkpoint(Path(cfg.save_dir) / DEFAULT, mapped=True)
    except CheckpointError:
        return True
    return False


def _name_newest(cfg: Any) -> None:
    """Set the newest checkpoint in ``cfg`` in place of checkpoint_last.pt, if there is one."""
    newest = newest_checkpoint(Path(cfg.save_dir))
    if newest is not None:
        updates, path = newest
        going_on = f"continuing from {path.name} ({updates:,} updates)"
        logger.warning("%s is missing or damaged in %s: %s", DEFAULT, cfg.save_dir, going_on)
        cfg.restore_file = str(path)
        # fairseq refuses this together with a --restore-file, although it would not be used
        cfg.finetune_from_model = None


def newest_checkpoint(folder: Path) -> tuple[int, Path] | None:
    """Return the number of updates and path of the newest readable checkpoint, or None.

    The newest has the most updates.

    Raises:
        CheckpointError: there are checkpoints, but none can be read.
    """
    candidates, problems = [], []
    for path in trained_checkpoints(folder):
        try:
            history = checkpoint_metadata(path).get("optimizer_history") or [{}]
            # not by the time of the file, which a copy changes
            candidates.append((history[-1].get("num_updates", 0), path))
        except CheckpointError as error:
            problems.append(str(error))
    # only the newest is read as a whole: a run may have twenty checkpoints of a gigabyte each
    for updates, path in sorted(candidates, reverse=True):
        try:
            load_checkpoint(path, mapped=True)
            return updates, path
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointError(
            f"{folder} has checkpoints, but training cannot continue from any of them "
            f"({problems[0]}): move the checkpoints elsewhere to start over."
        )
    return None


def why_over(trainer: Any) -> str | None:
    """Return why a training that was just loaded is already finished; None if it is not."""
    updates = trainer.get_num_updates()
    limits = trainer.cfg.optimization
    if updates >= (limits.max_update or math.inf):
        return f"the checkpoint has {updates:,} updates, and --max-update is {limits.max_update:,}"
    hours = trainer.cumulative_training_time() / 3600
    if 0 < limits.stop_time_hours < hours:  # 0: no limit
        return f"it has trained for {hours:.2f} hours, and --stop-time-hours is less"
    stale = getattr(trainer, "without_improvement", 0)
    patience = trainer.cfg.checkpoint.patience
    if 0 < patience <= stale:  # only vaswani train counts these
        return f"{stale} validations brought no improvement, and --patience is {patience}"
    return None


def changed_options(saved: Mapping[str, Any], now: Any) -> list[str]:
    """Return a phrase for each option in ``ANNOUNCED`` that differs from the checkpoint's.

    An example is ``criterion.label_smoothing was 0.1, is 0.0``. fairseq's own architectures store
    every option of the command line in the model's section; options of other sections are ignored
    there. The initial weights (``model.init``) no longer matter.

    Args:
        saved: the configuration inside a checkpoint
        now: fairseq's complete configuration
    """
    elsewhere: set[str] = set()
    for name in now:
        if name != "model":
            elsewhere.update(_table(now.get(name)))
    changes = []
    for section, keys in ANNOUNCED.items():
        before, after = _table(saved.get(section)), _table(now.get(section))
        for key in keys or sorted(set(before) & set(after)):
            foreign = section == "model" and (key in elsewhere or key == "init")
            if key in before and before[key] != after.get(key) and not foreign:
                changes.append(f"{section}.{key} was {before[key]}, is {after.get(key)}")
    return changes


def _table(section: Any) -> dict[str, Any]:
    """Return a section of a configuration as a dict; sections of older models are Namespaces."""
    if OmegaConf.is_config(section):
        section = OmegaConf.to_container(section, resolve=True, enum_to_str=True)
    if isinstance(section, argparse.Namespace):
        section = vars(section)
    return dict(section) if isinstance(section, dict) else {}
