"""fairseq's training as ``vaswani train`` runs it: it can be stopped, and knows of earlier starts.

A training that is told to stop ends after the update at hand, saved. fairseq knows no such stop.
What it does after an update, it does when the training goes on: the validation and the checkpoints
that were due then are made from the same state, so that a run that was stopped ends with the files
of an uninterrupted one.

fairseq counts validations without improvement (``checkpoint.patience``) in attributes of a
function, which a new process does not have. Here they are saved in the checkpoint.
"""

import contextlib
import copy
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.logging import progress_bar
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig

from transformer_plugin.compat.divergence import explaining_divergence
from transformer_plugin.compat.replacing import protect
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from vaswani.common.signals import StopRequest
from vaswani.folders.run import LAST, Run
from vaswani.training.launch import all_gather
from vaswani.training.phases import begin_phase
from vaswani.training.run_record import RESETS_DONE, STOPPED
from vaswani.training.training_progress import TrainingProgress, statistics_bar

#: fairseq's state of the training in a checkpoint, and its numbers of one batch, by their names
ExtraState = dict[str, Any]
LoggingOutput = dict[str, Any]

#: what a checkpoint calls the count, beside fairseq's ``best``
PATIENCE = "patience"
#: what fairseq's section ``checkpoint`` says where only the last checkpoint is written
ONLY_LAST = {
    "no_epoch_checkpoints": True,
    "save_interval_updates": 0,
    "keep_interval_updates": -1,
    "keep_last_epochs": -1,
    "keep_best_checkpoints": -1,
}


class Stopped(KeyboardInterrupt):
    """The training was told to stop; ``saved`` is the checkpoint that it wrote, if it writes any.

    Args:
        number: of the signal
        updates: how many updates are done
    """

    saved: str | None = None

    def __init__(self, number: int, updates: int) -> None:
        super().__init__(number)
        self.updates = updates


@contextlib.contextmanager
def fairseq_with(
    request: StopRequest, progress: TrainingProgress | None, resets: dict[str, str]
) -> Iterator[None]:
    """Make fairseq's training in the block raise ``Stopped`` once a stop is requested.

    With several processes the request may reach any of them: all stop after the same update.

    Enter it only once logging is set up: importing ``fairseq_cli.train`` sets it up too.

    Args:
        request: becomes the process's when the first update begins
        progress: gets the numbers that fairseq logs; None except for rank 0
        resets: what checkpoints say of ``checkpoint.reset_…``
    """
    protect()
    replaced = replacements(request, progress, resets)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def replacements(
    request: StopRequest, progress: TrainingProgress | None, resets: dict[str, str]
) -> list[tuple[object, str, object]]:
    """Return the replacements in fairseq: the owner of each attribute, its name and its new value.

    Args: as :func:`fairseq_with`.
    """
    from fairseq_cli import train  # sets up logging, if that was not done

    load = checkpoint_utils.load_checkpoint
    finish_update = train.validate_and_save

    def load_checkpoint(
        section: DictConfig, trainer: "StoppableTrainer", **options: Any
    ) -> tuple[ExtraState | None, EpochBatchIterator]:
        extra_state, iterator = load(section, trainer, **options)
        if extra_state and not section.reset_dataloader:
            make_up(trainer, extra_state)
        return extra_state, iterator

    def validate_and_save(
        cfg: DictConfig,
        trainer: "StoppableTrainer",
        task: FairseqTask,
        epoch_itr: EpochBatchIterator,
        subsets: list[str],
        end_of_epoch: bool,
    ) -> tuple[list[float | None], bool]:
        try:
            trainer.stop_if_requested()
            return finish_update(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
        except Stopped as stop:
            stop.saved = save_last(cfg.checkpoint, trainer, epoch_itr)
            all_gather(None)  # the others wait for the one that saves
            raise

    # fairseq's count: ``best`` and, from the second validation on, ``num_runs``: those since then
    count = vars(train.should_stop_early)
    ours = {"request": request, "progress": progress, "count": count, "resets": resets}
    replaced: list[tuple[object, str, object]] = [
        (checkpoint_utils, "load_checkpoint", load_checkpoint),
        (checkpoint_utils, "save_checkpoint", saving_apart(checkpoint_utils.save_checkpoint)),
        (train, "validate_and_save", validate_and_save),
        (train, "Trainer", type("Trainer", (StoppableTrainer,), ours)),
    ]
    if progress:
        replaced.append((progress_bar, "JsonProgressBar", statistics_bar(progress)))
    return replaced


def saving_apart(save: Callable[..., Any]) -> Callable[..., Any]:
    """Return fairseq's ``save_checkpoint`` that first moves the checkpoints of an earlier phase.

    fairseq keeps the best score in an attribute of the function; the new one has none, so that a
    training begins without a best score.
    """

    def save_checkpoint(
        section: DictConfig,
        trainer: "StoppableTrainer",
        epoch_itr: EpochBatchIterator,
        val_loss: float | None,
    ) -> Any:
        if trainer.begins_phase and trainer.data_parallel_rank == 0 and not section.no_save:
            phase = begin_phase(Run(Path(section.save_dir).parent))
            if trainer.progress:
                trainer.progress.say(f"the checkpoints before reset_optimizer are now in {phase}")
        trainer.begins_phase = False
        return save(section, trainer, epoch_itr, val_loss)

    return save_checkpoint


class StoppableTrainer(Trainer):
    """fairseq's Trainer; looks at ``request`` between updates, and in validation."""

    request: StopRequest
    progress: TrainingProgress | None
    resets: dict[str, str]
    #: fairseq's count for ``checkpoint.patience``, and what the plugin looks at to say "over"
    count: dict[str, Any]
    without_improvement = 0
    #: whether the next checkpoint is the first after ``reset_optimizer`` in the run's own folder
    begins_phase = False
    #: whether the checkpoint that is loaded was validated on another text
    other_validation_text = False
    #: with several processes: how many of them knew of a request in the last exchange
    requests = 0.0
    #: what the next checkpoint says of the stop that it was saved by
    stopped: dict[str, object] | None = None

    def __init__(self, cfg: DictConfig, task: FairseqTask, *args: Any, **kwargs: Any) -> None:
        """Build fairseq's trainer; its own translation task gets the plugin's checks."""
        if type(task) is TranslationTask:
            task.__class__ = CheckedTranslationTask
        super().__init__(cfg, task, *args, **kwargs)
        if self.progress:
            self.progress.trainer = self

    def get_train_iterator(self, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """Return fairseq's iterator, and say that the training text is read now."""
        if self.progress and not self.progress.is_open:
            self.progress.say("reading the training text and making its batches")
        return super().get_train_iterator(*args, **kwargs)

    def train_step(self, *args: Any, **kwargs: Any) -> LoggingOutput | None:
        """Train for one update, as fairseq; a signal before the first update ends the process.

        Raises:
            DivergedError: says at which update.
        """
        if self.progress:
            self.progress.begin(self.get_num_updates())
        self.request.begin()
        with explaining_divergence(self):
            return super().train_step(*args, **kwargs)

    def valid_step(self, *args: Any, **kwargs: Any) -> LoggingOutput:
        """Validate one batch, as fairseq, and stop if that was requested."""
        output: LoggingOutput = super().valid_step(*args, **kwargs)
        self.stop_if_requested()
        return output

    def _aggregate_logging_outputs(
        self, logging_outputs: list[LoggingOutput], *numbers: float, ignore: bool = False
    ) -> tuple[list[LoggingOutput], list[float]]:
        """Sum the logging outputs over the processes, as fairseq, and the requests to stop."""
        numbers = (*numbers, float(self.request.number > 0))
        outputs, sums = super()._aggregate_logging_outputs(logging_outputs, *numbers, ignore=ignore)
        *sums, self.requests = sums
        return outputs, sums

    def stop_if_requested(self) -> None:
        """Raise Stopped if a stop was requested of this process, or of another one.

        fairseq has waited for the sums by then, so this costs a GPU no synchronisation.
        """
        several = self.data_parallel_world_size > 1
        if self.requests if several else self.request.number:
            raise Stopped(self.request.number or signal.SIGINT, self.get_num_updates())

    def save_checkpoint(self, filename: str, extra_state: ExtraState) -> None:
        """Save a checkpoint with the count of validations and, after a stop, its marker."""
        by_a_stop = {STOPPED: self.stopped} if self.stopped else {}
        more = {PATIENCE: dict(self.count), RESETS_DONE: dict(self.resets), **by_a_stop}
        return super().save_checkpoint(filename, {**extra_state, **more})

    def load_checkpoint(
        self, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
    ) -> ExtraState | None:
        """Load a checkpoint as fairseq, and continue its count of validations without improvement.

        The count starts anew if the optimizer or the meters do, or if the validation text has
        changed.
        """
        extra_state = super().load_checkpoint(filename, reset_optimizer, *args, **options)
        if extra_state:
            starts_anew = reset_optimizer or options.get("reset_meters")
            if not starts_anew and not self.other_validation_text:
                self.count.update(extra_state.get(PATIENCE, {}))  # fairseq-train saves none
                self.without_improvement = self.count.get("num_runs", 0)
            if self.progress:
                self.progress.resume(self.get_num_updates())
            is_own = Path(filename).parent == Path(self.cfg.checkpoint.save_dir)
            self.begins_phase = reset_optimizer and is_own
        return extra_state

    def why_over(self) -> str:
        """Return the option that ends a training in this state; ``max_epoch`` if no other does."""
        limits = self.cfg.optimization
        if self.get_num_updates() >= (limits.max_update or math.inf):
            return "max_update"
        if 0 < limits.stop_time_hours < self.cumulative_training_time() / 3600:
            return "stop_time_hours"
        if 0 < self.cfg.checkpoint.patience <= self.count.get("num_runs", 0):
            return "patience"
        return "stop_min_lr" if self.get_lr() <= limits.stop_min_lr else "max_epoch"


def save_last(
    section: DictConfig, trainer: "StoppableTrainer", epoch_itr: EpochBatchIterator
) -> str | None:
    """Write the last checkpoint and nothing else, and return its path; None if it is not wanted.

    Args:
        section: fairseq's ``checkpoint``
        trainer: a ``StoppableTrainer``
        epoch_itr: fairseq's iterator over the training text
    """
    section = copy.deepcopy(section)
    section.update(ONLY_LAST)
    trainer.stopped = {
        "updates": trainer.get_num_updates(),
        "epoch": epoch_itr.epoch,
        "end_of_epoch": epoch_itr.end_of_epoch(),
    }
    checkpoint_utils.save_checkpoint(section, trainer, epoch_itr, None)
    if section.no_save or section.no_last_checkpoints:
        return None
    name = LAST.replace(".pt", f"{trainer.checkpoint_suffix}.pt")
    return os.path.join(section.save_dir, name)


def make_up(trainer: "StoppableTrainer", extra_state: ExtraState) -> None:
    """Validate and save, if that was due after the last update and a stop prevented it.

    If the training is over then, as by its patience, fairseq gets no further epoch to do.

    Args:
        trainer: a ``StoppableTrainer`` that has loaded a checkpoint
        extra_state: the checkpoint's
    """
    from fairseq_cli import train

    stopped = extra_state.get(STOPPED)
    cfg = trainer.cfg
    if not stopped or stopped["updates"] != trainer.get_num_updates():  # the optimizer begins anew
        return
    ended = stopped["end_of_epoch"]
    position = SimpleNamespace(  # to fairseq, an iterator over the training text that stands there
        epoch=stopped["epoch"],
        end_of_epoch=lambda: ended,
        state_dict=lambda: extra_state["train_iterator"],
    )
    trainer.task.begin_epoch(stopped["epoch"], trainer.get_model())
    subsets = cfg.dataset.valid_subset.split(",")
    _, over = train.validate_and_save(cfg, trainer, trainer.task, position, subsets, ended)
    if over:
        cfg.optimization.max_epoch = -1
