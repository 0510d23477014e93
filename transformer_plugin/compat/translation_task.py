"""What our task does besides what fairseq's ``translation`` does.

``vaswani train`` makes a ``translation`` of an experiment the class below, too.
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
"""Options of beam search that do not do what they say in any version."""


class CheckedTranslationTask(TranslationTask):
    """fairseq's ``translation``, whose trainings are protected; compares dictionaries."""

    #: one sentence if the model that was loaded has other dictionaries than the task
    other_dictionaries = ""
    #: the hash of the validation text, once a training has begun
    validation_text: str | None = None

    @classmethod
    def setup_task(cls, cfg: Any, **options: Any) -> Any:
        """As fairseq's, which its commands call; from now on these print our refusals alone."""
        print_refusals_alone()
        return super().setup_task(cfg, **options)

    @functools.cached_property
    def training_text(self) -> dict[str, str]:
        """The languages and hashes of the training text, as they are when it is first asked for."""
        return training_text.training_text(self.cfg)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the task: hashes of its dictionaries and its texts,
        too.
        """
        own: dict[str, Any] = {dictionaries.KEY: dictionary_hashes(self)}
        own[training_text.KEY] = self.training_text
        if self.validation_text:
            own[VALIDATION_TEXT] = self.validation_text
        return {**super().state_dict(), **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take a checkpoint's ``task_state``, and compare its dictionaries.

        Merely loading a model with other dictionaries is no error: fairseq's own tests do so.
        """
        # of an ensemble, an earlier model may have had others
        self.other_dictionaries = self.other_dictionaries or other_dictionaries(self, state_dict)
        own = (dictionaries.KEY, training_text.KEY, VALIDATION_TEXT)
        of_fairseq = {name: value for name, value in state_dict.items() if name not in own}
        return super().load_state_dict(of_fairseq)

    def refuse_other_dictionaries(self) -> None:
        """Raise CheckpointError if the model that was loaded has other dictionaries."""
        if self.other_dictionaries:
            raise CheckpointError(self.other_dictionaries)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's; a model that is not made from a checkpoint is going to be trained.

        Raises:
            CheckpointError: there is no such model, as for a checkpoint of another plugin; fairseq
                fails in formatting its message.
            ConfigError: 16-bit options that do not suit our model, or processes of torchrun that
                do not train together.
        """
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in ARCH_MODEL_REGISTRY and name not in MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered; correct model._name (--arch), or, for a "
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
        """As fairseq's, of every sentence."""
        keep_every_sentence(dataset)
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """As fairseq's, which calls it before the first update."""
        super().begin_epoch(epoch, model)
        on_cpu = next(model.parameters()).device.type == "cpu"
        if on_cpu and is_plugin_model(type(model)) and str(model.cfg.precision) == "bf16":
            keep_fewer_programs()

    def valid_step(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's; raises CheckpointError if the dictionaries are not the model's."""
        self.refuse_other_dictionaries()
        return super().valid_step(*args, **kwargs)

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """As fairseq's, for options that can work.

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
