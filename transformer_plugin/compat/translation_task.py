"""Additions of our task to fairseq's ``translation``.

``vaswani train`` also uses the class below for the task ``translation`` of an experiment.
"""

import functools
import os
from typing import Any

from fairseq.data import EpochBatchIterator
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig

from vaswani_transformer.fast.malloc import keep_fewer_programs

from ..checkpoints import CheckpointError
from ..checks import check_precision, check_processes
from ..config import ConfigError, flag
from . import dictionaries, training_text
from .commands import keep_freed_memory, print_refusals_alone
from .data import keep_every_sentence
from .dictionaries import dictionary_hashes, other_dictionaries
from .replacing import protect
from .scope import is_plugin_model
from .validation_text import KEY as VALIDATION_TEXT

BROKEN_OPTIONS = {
    "replace_unk": "fails in every version of fairseq at the first unknown word: leave it out, or "
    "decode with 'vaswani translate --replace-unk'",
    "diverse_beam_groups": "compares the groups of different sentences, or fails: leave it out, or "
    "give --diversity-rate",
}
"""Options of beam search that work in no version of fairseq."""


class CheckedTranslationTask(TranslationTask):
    """fairseq's ``translation`` with protected trainings and compared dictionaries."""

    #: one sentence if the model that was loaded has other dictionaries than the task
    other_dictionaries = ""
    #: the hash of the validation text, once a training has begun
    validation_text: str | None = None

    @classmethod
    def setup_task(cls, cfg: Any, **options: Any) -> Any:
        """Make the task as fairseq does; its commands then print our errors without traceback."""
        print_refusals_alone()
        return super().setup_task(cfg, **options)

    @functools.cached_property
    def training_text(self) -> dict[str, str]:
        """The languages and hashes of the training text, computed at the first use."""
        return training_text.training_text(self.cfg)

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's state of the task, with hashes of its dictionaries and texts."""
        own: dict[str, Any] = {dictionaries.KEY: dictionary_hashes(self)}
        own[training_text.KEY] = self.training_text
        if self.validation_text:
            own[VALIDATION_TEXT] = self.validation_text
        return {**super().state_dict(), **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Load a checkpoint's ``task_state``, and compare its dictionaries.

        Loading a model with other dictionaries is not an error by itself: fairseq's own tests do
        so.
        """
        # an earlier model of an ensemble may have had other dictionaries
        self.other_dictionaries = self.other_dictionaries or other_dictionaries(self, state_dict)
        own = (dictionaries.KEY, training_text.KEY, VALIDATION_TEXT)
        of_fairseq = {name: value for name, value in state_dict.items() if name not in own}
        return super().load_state_dict(of_fairseq)

    def refuse_other_dictionaries(self) -> None:
        """Raise CheckpointError if the model that was loaded has other dictionaries."""
        if self.other_dictionaries:
            raise CheckpointError(self.other_dictionaries)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build a model as fairseq does; without a checkpoint, also prepare its training.

        Raises:
            CheckpointError: the model is not registered, as for a checkpoint of another plugin.
                fairseq fails in formatting its message.
            ConfigError: 16-bit options do not suit our model, or processes of torchrun would not
                train together.
        """
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in ARCH_MODEL_REGISTRY and name not in MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered: correct model._name (--arch), or, for a "
                "checkpoint of another plugin, add the --user-dir that it was trained with."
            )
        if not from_checkpoint:
            check_processes(os.environ)
            protect()
            if is_plugin_model(name):
                keep_freed_memory()
            root = cfg._get_root() if type(cfg) is DictConfig else None
            common = getattr(root, "common", None)
            if common is not None and is_plugin_model(name):
                check_precision(common, cfg.precision)
        return super().build_model(cfg, from_checkpoint)

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """Return fairseq's batches, with every sentence of the data set."""
        keep_every_sentence(dataset)
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Begin an epoch; fairseq calls this before the first update."""
        super().begin_epoch(epoch, model)
        on_cpu = next(model.parameters()).device.type == "cpu"
        if on_cpu and is_plugin_model(type(model)) and str(model.cfg.precision) == "bf16":
            keep_fewer_programs()

    def valid_step(self, *args: Any, **kwargs: Any) -> Any:
        """Validate a batch as fairseq does; raise CheckpointError for other dictionaries."""
        self.refuse_other_dictionaries()
        return super().valid_step(*args, **kwargs)

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """Build fairseq's generator, unless an option cannot work.

        Raises:
            CheckpointError: the dictionaries are not the model's.
            ConfigError: an option cannot work.
        """
        self.refuse_other_dictionaries()
        defaults = GenerationConfig()
        for name, problem in BROKEN_OPTIONS.items():
            default = getattr(defaults, name)
            if getattr(args, name, default) != default:
                raise ConfigError(f"{flag(name)} {problem}")
        if any(is_plugin_model(type(model)) for model in models):
            keep_freed_memory()
        return super().build_generator(models, args, *rest, **kwargs)
