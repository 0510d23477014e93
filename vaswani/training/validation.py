"""The validation loss of any parameters, computed as the run's own training computes it.

It is the negative log-likelihood in bits per token, ``valid_nll_loss`` in fairseq's log, and so the
base-2 logarithm of the validation perplexity; ``valid_loss`` if the criterion has no other. Label
smoothing is left out of it: it penalises an average for being more certain than its parts, and so
preferred a single checkpoint where the average translates better.

The run's criterion goes over its (first) validation set, in the run's own batches, by fairseq's
Trainer. Task, model and batches are made once, and then any number of parameters validated, in
float32, as they will be decoded, even if the training was in bf16 or fp16: all numbers that are
compared are computed in this one way, and none is taken from a log.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from fairseq import tasks
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from omegaconf import DictConfig
from torch import Tensor

from transformer_plugin.compat import validation_text
from vaswani.common.errors import UserError
from vaswani.common.find import first_data_bin
from vaswani.common.yaml_tables import Sections
from vaswani.configuration.fairseq_config import fairseq_form, with_defaults
from vaswani.configuration.plugin import saved_config
from vaswani.folders.run import Run

#: called with 1 after each batch
Progress = Callable[[int], object]
#: the sections of a run's configuration on which its validation depends
SECTIONS = ("task", "model", "criterion", "dataset")


class Validation:
    """A run's validation: call it with parameters (name → tensor) to get their loss.

    Args:
        checkpoint: one of the run's; says what the model is, and where the data is
        run: its run (or the folder that the checkpoint is in)

    Raises:
        UserError: why this run's validation cannot be repeated: its data is gone, for example.
    """

    def __init__(self, checkpoint: Path, run: Run) -> None:
        try:
            config = fairseq_form(validation_config(checkpoint, run))
            task = tasks.setup_task(config.task)
            self.model = task.build_model(config.model)
            criterion = task.build_criterion(config.criterion)
            subset = config.dataset.valid_subset.split(",")[0]  # the one that fairseq looks at
            task.load_dataset(subset, combine=config.dataset.combine_valid_subsets, epoch=1)
            self.trainer = Trainer(config, task, self.model, criterion)
            self.batches = self.trainer.get_valid_iterator(subset)
            most = config.dataset.max_valid_steps
            self.most = None if most is None else most + 1  # as many as fairseq takes
        except Exception as error:  # anything that fairseq, or a model of one's own, may raise
            raise UserError(" ".join(str(error).split()) or type(error).__name__) from error

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.batches) if self.most is None else min(self.most, len(self.batches))

    def __call__(self, parameters: Mapping[str, Tensor], on_batch: Progress | None = None) -> float:
        """Return the loss; infinite if it is not a number. Arguments and errors: ``measure``."""
        logged = self.measure(parameters, on_batch)
        loss = logged.get("nll_loss", logged["loss"])
        return loss if math.isfinite(loss) else math.inf

    def measure(
        self, parameters: Mapping[str, Tensor], on_batch: Progress | None = None
    ) -> dict[str, float]:
        """Return the criterion's values: ``loss`` (with label smoothing, if any), ``nll_loss`` …

        Args:
            parameters: of the run's model; they are copied
            on_batch: called with 1 after each batch
        """
        self.model.load_state_dict(dict(parameters))
        batches = self.batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False)
        with metrics.aggregate(new_root=True) as logged:
            for batch in itertools.islice(batches, self.most):
                self.trainer.valid_step(batch)
                if on_batch:
                    on_batch(1)
        return {name: float(logged[name].avg) for name in ("loss", "nll_loss") if name in logged}


def validation_config(checkpoint: Path, run: Run) -> DictConfig:
    """Return fairseq's configuration to validate in one process; raise UserError without data."""
    table = saved_config(checkpoint, run)
    data = table["task"].get("data")
    if data and not first_data_bin(data).is_dir():
        raise UserError(
            f"there is no data in {first_data_bin(data)}: run this where 'vaswani train' was run"
        )

    sections: Sections = {name: dict(table[name]) for name in SECTIONS}
    sections["dataset"]["num_workers"] = 0
    if "precision" in sections["model"]:
        sections["model"]["precision"] = "fp32"
    if sections["task"].get("eval_bleu"):  # translating all of it is not part of the loss
        sections["task"]["eval_bleu"] = False
    common = {"seed": 1, "cpu": False, "user_dir": None, **table["common"]}
    sections["common"] = {name: common[name] for name in ("seed", "cpu", "user_dir")}
    sections["distributed_training"] = {"distributed_world_size": 1}
    return with_defaults(sections)


def text_validated_on(checkpoint: Path, run: Run) -> str | None:
    """Return the hash of the text that a run is validated on now; None if it does not exist.

    Args:
        checkpoint: one of the run's
        run: its run (or the folder that the checkpoint is in)
    """
    config = saved_config(checkpoint, run)
    data = config["task"].get("data")
    dataset = config["dataset"]
    if not data:
        return None
    subsets = str(dataset.get("valid_subset") or "valid")
    return validation_text.validation_text(
        str(data), subsets, bool(dataset.get("combine_valid_subsets"))
    )
