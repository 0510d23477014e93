"""Training a translation: what fairseq's Trainer checks too late, or not at all."""

import logging
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer

from vaswani_transformer.fast.malloc import keep_fewer_programs

from ..checkpoints import CheckpointError, checkpoint_metadata
from ..config import ConfigError, check_fp16_device, check_precision
from .dictionaries import other_dictionaries
from .replacing import PROTECTS, replaces
from .resuming import changed_options
from .scope import is_plugin_model, is_translation

logger = logging.getLogger(__name__)


class CheckedTrainer(Trainer):
    """fairseq's Trainer for ``translation``, our task and its subclasses."""

    _looked_ahead = False

    def load_checkpoint(
        self, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """As fairseq's; options that changed since the checkpoint was saved are logged.

        fairseq compares only the shapes of the parameters. Where the optimizer is reset, another
        training begins from these parameters, perhaps with other dictionaries on purpose.

        Raises:
            CheckpointError: the checkpoint was trained with other dictionaries.
        """
        if Path(filename).is_file():
            saved = checkpoint_metadata(filename)  # fairseq then reads and checks all of it
            other = other_dictionaries(self.task, saved.get("task_state") or {})
            if other and not reset_optimizer:
                raise CheckpointError(other)
            if other:
                logger.warning(other)
            if not reset_optimizer and self.data_parallel_rank == 0:
                changes = changed_options(saved.get("cfg") or {}, self.cfg)
                if changes:
                    logger.warning("going on with other options: %s", "; ".join(changes))
        return super().load_checkpoint(filename, reset_optimizer, *args, **kwargs)

    def get_train_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's; data on which the first validation would fail are refused before.

        Official fairseq makes the validation batches only when it first validates, hours later.

        Raises:
            ConfigError: training or validation cannot begin.
        """
        dataset = self.cfg.dataset
        if not dataset.disable_validation and not self._looked_ahead:
            self._looked_ahead = True
            for subset in dataset.valid_subset.split(","):
                if subset in self.task.datasets:
                    try:
                        self.get_valid_iterator(subset)
                    except Exception as error:
                        raise _explained(error, subset) from None
        refuse_no_updates(self)
        # last, so that fairseq's dummy batch comes from the training text, as without this
        try:
            return super().get_train_iterator(*args, **kwargs)
        except Exception as error:
            bounds = "--max-tokens (dataset.max_tokens) or "
            raise _explained(error, dataset.train_subset, bounds) from None

    def train_step(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's, whose FloatingPointError leaves it to the log at which update it was."""
        try:
            return super().train_step(*args, **kwargs)
        except FloatingPointError as error:
            update = self.get_num_updates() + 1
            raise FloatingPointError(f"update {update:,}: {error}") from error


def _explained(error: Exception, subset: str, bounds: str = "") -> Exception:
    """The error to raise for one of fairseq's: the same, or a clearer one.

    fairseq says "dataset is empty" of an empty text, and of one whose sentences are all too long.
    """
    if "dataset is empty" not in str(error):
        return error
    return ConfigError(
        f"no sentence of '{subset}' is left: all are longer than {bounds}the model's positions "
        "(task.max_source_positions, task.max_target_positions)"
    )


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


@replaces(
    Trainer,
    "__init__",
    PROTECTS,
    "all",
    "training a translation looks at validation data, dictionaries and options before the first "
    "update; `--bf16`, `--amp` and `--fp16` that do not suit our model are refused",
)
def init(trainer: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    """As fairseq's; for a translation the object becomes a ``CheckedTrainer``."""
    if is_plugin_model(type(model)):
        common = getattr(cfg, "common", cfg)  # fairseq also takes a Namespace
        check_precision(common, model.cfg.precision)
        on_gpu = torch.cuda.is_available() and not common.cpu
        check_fp16_device(common, on_gpu=on_gpu)
        if str(model.cfg.precision) == "bf16" and not on_gpu:
            keep_fewer_programs()
    if type(trainer) is Trainer and is_translation(task):
        trainer.__class__ = CheckedTrainer
    init.original(trainer, cfg, task, model, *args, **kwargs)
