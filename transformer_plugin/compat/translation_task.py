"""What ``translation``, our task and its subclasses do besides what fairseq's task does.

``--task translation`` becomes the class below when fairseq sets it up, and our task inherits from
it. Tasks of others, among them subclasses of fairseq's, are left as they are.
"""

from typing import Any, Dict

import numpy as np
from fairseq import tasks
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks.translation import TranslationTask

from ..checkpoints import CheckpointError
from ..config import ConfigError
from .dictionaries import KEY, dictionary_hashes, other_dictionaries
from .generation_options import check, warn_of_reduced
from .replacing import PROTECTS, replaces

_SKIP = (
    "--skip-invalid-size-inputs-valid-test (in YAML dataset.skip_invalid_size_inputs_valid_test)"
)


class CheckedTranslationTask(TranslationTask):
    """fairseq's ``translation``, which compares dictionaries and checks what it is given."""

    #: one sentence if the model that was loaded has other dictionaries than the task
    other_dictionaries = ""

    def state_dict(self) -> Dict[str, Any]:
        """What a checkpoint keeps of the task: the hashes of its dictionaries, too."""
        return {**super().state_dict(), KEY: dictionary_hashes(self)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> Any:
        """Take a checkpoint's ``task_state``, and compare its dictionaries.

        Merely loading a model with other dictionaries is no error: fairseq's own tests do so.
        """
        # of an ensemble, an earlier model may have had others
        self.other_dictionaries = self.other_dictionaries or other_dictionaries(self, state_dict)
        kept = {name: value for name, value in state_dict.items() if name != KEY}
        return super().load_state_dict(kept)

    def refuse_other_dictionaries(self) -> None:
        """Raise CheckpointError if the model that was loaded has other dictionaries."""
        if self.other_dictionaries:
            raise CheckpointError(self.other_dictionaries)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's, which fails in formatting the message for a model that is not registered.

        Raises:
            CheckpointError: there is no such model, as for a checkpoint of another plugin.
        """
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in ARCH_MODEL_REGISTRY and name not in MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered; correct model._name (--arch), or, for a "
                "checkpoint of another plugin, add the --user-dir that it was trained with."
            )
        return super().build_model(cfg, from_checkpoint)

    def valid_step(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's; raises CheckpointError if the dictionaries are not the model's."""
        self.refuse_other_dictionaries()
        return super().valid_step(*args, **kwargs)

    def filter_indices_by_size(
        self, indices: Any, dataset: Any, max_positions: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As fairseq's, whose error names only the first sentence that is too long.

        Raises:
            ConfigError: sentences are too long; how many, and which option leaves them out.
        """
        try:
            return super().filter_indices_by_size(indices, dataset, max_positions, *args, **kwargs)
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

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """As fairseq's, for options that can work.

        Raises:
            CheckpointError: the dictionaries are not the model's.
            ConfigError: an option cannot work.
        """
        self.refuse_other_dictionaries()
        check(args)
        warn_of_reduced(args, len(self.target_dictionary))
        return super().build_generator(models, args, *rest, **kwargs)


@replaces(
    tasks,
    "setup_task",
    PROTECTS,
    "all",
    "`--task translation` refuses another dictionary than the model's, and options that cannot "
    "work",
)
def setup_task(cfg: Any, **kwargs: Any) -> Any:
    """As fairseq's; the task ``translation`` is a ``CheckedTranslationTask``."""
    task = setup_task.original(cfg, **kwargs)
    if type(task) is TranslationTask:
        task.__class__ = CheckedTranslationTask
    return task
