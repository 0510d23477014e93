"""Stops a training that is told to: after the update at hand, and saved.

fairseq knows no such stop. What it does after an update, it does when the training goes on: the
validation and the checkpoints that were due then are made from the same state, so that a run that
was stopped ends with the files of an uninterrupted one.
"""

import contextlib
import copy
import os
import signal
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from vaswani.common.signals import StopRequest
from vaswani.experiment.checkpoints import STOPPED
from vaswani.experiment.launch import gather

#: what fairseq's section ``checkpoint`` says where only checkpoint_last.pt is written
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

    saved: Optional[str] = None

    def __init__(self, number: int, updates: int) -> None:
        super().__init__(number)
        self.updates = updates


class Position(NamedTuple):
    """Where in the training text a checkpoint was saved; to fairseq, an iterator that stands there.

    ``state`` is what fairseq saved of the iterator.
    """

    epoch: int
    ended: bool
    state: Dict[str, Any]

    def end_of_epoch(self) -> bool:
        """Whether it was after the last update of the epoch."""
        return self.ended

    def state_dict(self) -> Dict[str, Any]:
        """As fairseq's."""
        return self.state


@contextlib.contextmanager
def stoppable(request: StopRequest) -> Iterator[None]:
    """While the block runs, fairseq's training raises ``Stopped`` once it is requested.

    With several processes the request may reach any of them: all stop after the same update.

    Enter it only once logging is set up: importing ``fairseq_cli.train`` sets it up too.
    """
    from fairseq import checkpoint_utils
    from fairseq_cli import train

    load, finish_update, trainer_class = (
        checkpoint_utils.load_checkpoint,
        train.validate_and_save,
        train.Trainer,
    )

    def load_checkpoint(section: Any, trainer: Any, **options: Any) -> Tuple[Any, Any]:
        extra_state, iterator = load(section, trainer, **options)
        if extra_state and not section.reset_dataloader:
            make_up(trainer, extra_state)
        return extra_state, iterator

    def validate_and_save(
        cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: List[str], end_of_epoch: bool
    ) -> Any:
        try:
            trainer.stop_if_requested()
            return finish_update(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
        except Stopped as stop:
            stop.saved = save_last(cfg.checkpoint, trainer, epoch_itr)
            gather(None)  # the others wait for the one that saves
            raise

    checkpoint_utils.load_checkpoint = load_checkpoint
    train.validate_and_save = validate_and_save
    train.Trainer = stoppable_trainer(trainer_class, request)
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint = load
        train.validate_and_save = finish_update
        train.Trainer = trainer_class


def stoppable_trainer(base: Any, request: StopRequest) -> Any:
    """A subclass of fairseq's Trainer that can be told to stop."""

    class StoppableTrainer(base):  # type: ignore[misc]
        """fairseq's Trainer, which looks at ``request`` between updates, and in validation."""

        #: with several processes: how many of them knew of a request in the last exchange
        requests = 0.0
        #: what the next checkpoint says of the stop that it was saved by
        stopped: Optional[Dict[str, Any]] = None

        def train_step(self, *args: Any, **kwargs: Any) -> Any:
            """As fairseq's; before the first update a signal ends the process at once."""
            request.begin()
            return super().train_step(*args, **kwargs)

        def valid_step(self, *args: Any, **kwargs: Any) -> Any:
            """As fairseq's."""
            output = super().valid_step(*args, **kwargs)
            self.stop_if_requested()
            return output

        def _aggregate_logging_outputs(
            self, logging_outputs: Any, *numbers: Any, ignore: bool = False
        ) -> Any:
            """As fairseq's: sums over the processes, here also of those that know of a request."""
            numbers = (*numbers, float(request.number > 0))
            outputs, sums = super()._aggregate_logging_outputs(
                logging_outputs, *numbers, ignore=ignore
            )
            *sums, self.requests = sums
            return outputs, sums

        def stop_if_requested(self) -> None:
            """Raise Stopped if a stop was requested of this process, or, as all know, of another.

            fairseq has waited for the sums by then, so this costs a GPU no synchronisation.
            """
            several = self.data_parallel_world_size > 1
            if self.requests if several else request.number:
                raise Stopped(request.number or signal.SIGINT, self.get_num_updates())

        def save_checkpoint(self, filename: str, extra_state: Any) -> Any:
            """As fairseq's."""
            by_a_stop = {STOPPED: self.stopped} if self.stopped else {}
            return super().save_checkpoint(filename, {**extra_state, **by_a_stop})

    return StoppableTrainer


def save_last(section: Any, trainer: Any, epoch_itr: Any) -> Optional[str]:
    """Write checkpoint_last.pt and nothing else, and return its path; None if it is not wanted.

    Args:
        section: fairseq's ``checkpoint``
        trainer: a ``StoppableTrainer``
        epoch_itr: fairseq's iterator over the training text
    """
    from fairseq import checkpoint_utils

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
    return os.path.join(section.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")


def make_up(trainer: Any, extra_state: Dict[str, Any]) -> None:
    """Validate and save what was due after the last update, if a stop came before it.

    If the training is over then, as by its patience, fairseq gets no further epoch to do.

    Args:
        trainer: a ``StoppableTrainer`` that has loaded a checkpoint
        extra_state: the checkpoint's
    """
    from fairseq_cli import train

    stopped, cfg = extra_state.get(STOPPED), trainer.cfg
    if not stopped or stopped["updates"] != trainer.get_num_updates():  # the optimizer begins anew
        return
    ended = stopped["end_of_epoch"]
    position = Position(stopped["epoch"], ended, extra_state["train_iterator"])
    subsets = cfg.dataset.valid_subset.split(",")
    _, over = train.validate_and_save(cfg, trainer, trainer.task, position, subsets, ended)
    if over:
        cfg.optimization.max_epoch = -1
