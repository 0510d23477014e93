"""Counts ``checkpoint.patience`` across restarts, and logs how long a run has trained before.

fairseq counts validations without improvement in attributes of a function, which a new process does
not have. Here they are saved in the checkpoint, so that a run that was stopped ends where an
uninterrupted one does.
"""

import contextlib
import logging
from typing import Any, Iterator

logger = logging.getLogger(__name__)

#: what a checkpoint calls the count, beside fairseq's ``best``
PATIENCE = "patience"


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """While the block runs, fairseq trains with a Trainer that saves and restores the count.

    Enter it only once logging is set up: importing ``fairseq_cli.train`` sets it up too.
    """
    from fairseq.tasks.translation import TranslationTask
    from fairseq.trainer import Trainer
    from fairseq_cli import train

    from transformer_plugin.compat.replacing import protect
    from transformer_plugin.compat.translation_task import CheckedTranslationTask

    protect()
    #: ``best`` and, from the second validation on, ``num_runs``: those since then
    counted = vars(train.should_stop_early)

    class PatientTrainer(Trainer):
        """fairseq's Trainer, whose checkpoints also hold the count."""

        def __init__(self, cfg: Any, task: Any, *args: Any, **kwargs: Any) -> None:
            """As fairseq's; fairseq's own translation task is checked as the plugin's is."""
            if type(task) is TranslationTask:
                task.__class__ = CheckedTranslationTask
            super().__init__(cfg, task, *args, **kwargs)

        def train_step(self, *args: Any, **kwargs: Any) -> Any:
            """As fairseq's; a FloatingPointError says at which update it was."""
            try:
                return super().train_step(*args, **kwargs)
            except FloatingPointError as error:
                update = self.get_num_updates() + 1
                raise FloatingPointError(f"update {update:,}: {error}") from error

        def save_checkpoint(self, filename: str, extra_state: Any) -> Any:
            """As fairseq's."""
            return super().save_checkpoint(filename, {**extra_state, PATIENCE: dict(counted)})

        def load_checkpoint(
            self, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
        ) -> Any:
            """As fairseq's; the count continues unless optimizer or meters start anew."""
            extra_state = super().load_checkpoint(filename, reset_optimizer, *args, **options)
            if extra_state:
                logger.info("trained for %.1f seconds before", self.cumulative_training_time())
                if not reset_optimizer and not options.get("reset_meters"):
                    counted.update(extra_state.get(PATIENCE, {}))  # fairseq-train saves none
                    self.without_improvement = counted.get("num_runs", 0)
            return extra_state

    before, train.Trainer = train.Trainer, PatientTrainer
    try:
        yield
    finally:
        train.Trainer = before
