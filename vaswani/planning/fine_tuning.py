"""An experiment that starts from the weights of a trained run: ``vaswani new NAME --from RUN``.

The experiment sets fairseq's ``checkpoint.finetune_from_model``, which loads the weights and
nothing else, and only when the training has no checkpoint yet. A stopped training therefore
continues from its own last checkpoint; with ``restore_file`` and ``reset_optimizer`` it would start
over each time. The weights may be an average, which has no optimizer state.

The learning rate peaks at the rate at which the run ended, because a higher rate would undo what
the model has learned. The training ends after ten epochs, or when three validations in a row bring
no improvement. The paper has no fine-tuning: these settings are our choice.
"""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from transformer_plugin.checkpoints import checkpoint_metadata
from transformer_plugin.compat.dictionaries import other_dictionaries
from vaswani.common.errors import UserError
from vaswani.common.yaml_tables import Sections
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.run import Run
from vaswani.packing.collect import collect_model, write_model
from vaswani.packing.data_text import DataOptions
from vaswani.packing.finetune_source import checkpoint_of, is_model, model_as_config
from vaswani.planning import batching, first_experiment
from vaswani.planning.published_settings import Settings
from vaswani.training.checkpoints import Checkpoint, describe, find_checkpoint

TEMPLATE = Path(__file__).with_name("fine_tuning.yaml.j2")
#: largest number of warm-up updates; there is a warm-up because Adam's moments start from zero
MOST_WARMUP = 100
#: settings of the training; the run gives those of the model. Zeros and ones are placeholders:
#: ``fine_tuned`` sets batch and warm-up, which depend on the text
SETTINGS = Settings(
    pairs=0,
    preset="",
    dropout=(0.0, 0.0, 0.0),
    batch_tokens=0,
    warmup=(1, 1, 1),
    epochs=10,
    patience=3,
    average=(5, 5, 5),
    weight_decay=0.0,
    source="as in the run, and our choice for the rest",
)


class FinetuneSource(NamedTuple):
    """The trained model that fine-tuning starts from."""

    #: folder of the run, or of the packed model
    folder: Path
    #: checkpoint with the weights
    checkpoint: Checkpoint
    #: configuration of the training, by sections
    config: Sections


def fine_tuned(name: str, data: Path, run: str) -> tuple[str, list[str]]:
    """Return the text of a fine-tuning experiment, and the lines to print about it.

    Raises:
        UserError: the run does not exist, or the data has other dictionaries than the run.
        CheckpointError: the run's checkpoint cannot be read.
    """
    trained = finetune_source(run, data)
    conditions = replace(first_experiment.conditions_of(name, data, "tiny"), settings=SETTINGS)
    batch, target_tokens = batch_for(conditions, trained)
    warmup = max(1, min(MOST_WARMUP, batch.updates_per_epoch or 1))
    settings = replace(SETTINGS, batch_tokens=target_tokens, warmup=(warmup, warmup, warmup))
    conditions = replace(conditions, settings=settings)
    experiment = fine_tuning(conditions, batch, trained)
    first_experiment.configuration_of(experiment)
    start = f"from {trained.checkpoint.path}, after {trained.checkpoint.updates:,} updates"
    return experiment, [start, *first_experiment.facts(conditions, batch)]


def finetune_source(name: str, data: Path) -> FinetuneSource:
    """Return the model that fine-tuning starts from: a run, a packed model, or a checkpoint.

    Args:
        name: name of a run, or path of a run, a packed model or a checkpoint
        data: data-bin to train on; a checkpoint is packed with its dictionaries

    Raises:
        UserError: the run or model does not exist, or the checkpoint cannot be packed.
    """
    path = Path(name)
    if path.is_file():
        path = packed_checkpoint(path, data)
    if is_model(path):
        model = ModelFolder.read(path)
        if model.table.variant:
            raise UserError(
                f"{path} is a variant of the paper's model, which cannot be fine-tuned from its "
                "packed folder: give the run that it was packed from"
            )
        return FinetuneSource(path, describe(checkpoint_of(model)), model_as_config(model))
    run = Run.find(name)
    checkpoint = describe(find_checkpoint(str(run))[0])
    return FinetuneSource(run.folder, checkpoint, run.configuration())


def packed_checkpoint(checkpoint: Path, data: Path) -> Path:
    """Pack a checkpoint into a model folder beside it, and return that folder.

    The checkpoint may be of fairseq's own transformer.

    Raises:
        UserError: the checkpoint cannot be packed, or its dictionaries have other sizes than those
            of the data.
    """
    folder = checkpoint.with_name(f"{checkpoint.stem}-model")
    contents = collect_model(checkpoint, Run(checkpoint.parent), DataOptions(data=str(data)))
    if write_model(folder, contents):
        print(f"{folder}: {checkpoint} packed, with the dictionaries of {data}", file=sys.stderr)
    return folder


def batch_for(
    conditions: first_experiment.Conditions, trained: FinetuneSource
) -> tuple[batching.Batch, int]:
    """Return a batch as large as the run's, for this machine and text, and its target tokens.

    Raises:
        UserError: the data has other dictionaries than the run.
    """
    max_tokens = trained.config["dataset"].get("max_tokens") or first_experiment.CPU_MAX_TOKENS
    freq = trained.config["optimization"]["update_freq"][0]
    config = first_experiment.configuration_of(
        fine_tuning(conditions, first_experiment.DRAFT, trained)
    )
    text = batching.training_text(config)
    saved = checkpoint_metadata(trained.checkpoint.path)
    if other_dictionaries(text.task, saved.get("task_state") or {}):
        raise UserError(
            f"the dictionaries of the data differ from those that the weights of {trained.folder} "
            "need: prepare the text with 'vaswani prepare --like "
            f"{shlex.quote(str(trained.folder))} …'"
        )
    target_tokens = (
        trained.config["task"].get("batch_tokens") or max_tokens * freq * batching.REAL_SHARE
    )
    batch_tokens = first_experiment.batch_tokens(conditions, text, int(target_tokens))
    most = max(max_tokens, first_experiment.CPU_MAX_TOKENS)
    gpus = max(1, conditions.gpus)
    batch = batching.choose_batch(config, text, gpus, most, target_tokens=batch_tokens)
    return batch, batch_tokens


def fine_tuning(
    conditions: first_experiment.Conditions, batch: batching.Batch, trained: FinetuneSource
) -> str:
    """Return the text of the experiment, with the run's model and loss.

    The schedule is the paper's (5.3), with a factor: its peak is the last learning rate in the
    run's statistics. For a run without statistics, the peak is the rate that equation 3 has after
    the run's number of updates.
    """
    model, criterion = trained.config["model"], trained.config["criterion"]
    width = model["encoder_embed_dim"]
    warmup = conditions.settings.warmup[0]
    rate = None
    for line in Run(trained.folder).statistics():
        rate = line.get("lr", line.get("train_lr", rate))
    peak = rate or (width * trained.checkpoint.updates) ** -0.5
    user_dir = trained.config.get("common", {}).get("user_dir") or "transformer_plugin"
    if Path(user_dir).name == "transformer_plugin":  # no path: it would name this machine
        user_dir = "transformer_plugin"
    return first_experiment.experiment_text(
        TEMPLATE,
        conditions,
        batch,
        conditions.settings.batch_tokens,
        trained=trained,
        user_dir=user_dir,
        model={"_name": model["_name"], **model},
        criterion={key: criterion[key] for key in ("_name", "label_smoothing") if key in criterion},
        peak=peak,
        lr_factor=float(f"{peak * (width * warmup) ** 0.5:.3g}"),
    )
