"""An experiment that starts from the weights of a trained run: ``vaswani new NAME --from RUN``.

fairseq's ``checkpoint.finetune_from_model`` loads only the weights, once: a training that was
stopped continues from its own last checkpoint, where ``restore_file`` with ``reset_optimizer``
would start over each time. An average works too; it has no optimizer state, and needs none here.

Fine-tuning starts at the learning rate at which the run ended (a higher one would undo what was
learned), and ends after a few epochs, or when validation stops improving: both are our choice.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from vaswani.common.errors import UserError
from vaswani.experiment.best_checkpoint import find_checkpoint
from vaswani.experiment.checkpoints import Checkpoint, describe
from vaswani.experiment.find import find_run, read_yaml
from vaswani.experiment.run_record import STATISTICS, statistics
from vaswani.model_folder.folder import read_folder
from vaswani.model_folder.model_as_run import as_trained, checkpoint_of, is_model
from vaswani.planning import experiment_text
from vaswani.planning.batching import Batch, choose_batch, measured, training_text
from vaswani.planning.conditions import Conditions, batch_tokens, conditions_of
from vaswani.planning.experiment_summary import facts, next_commands
from vaswani.planning.experiment_text import Entry, Sections
from vaswani.planning.first_experiment import (
    CPU_MAX_TOKENS,
    configured,
    sections,
)
from vaswani.planning.recipes import Row

EPOCHS, PATIENCE, AVERAGE = 10, 3, 5
#: at most this many warm-up updates: the optimizer's moments start from zero again
MOST_WARMUP = 100


def fine_tuned(name: str, data: Path, run: str) -> Tuple[str, List[Tuple[str, str]]]:
    """The experiment's text, and the facts to print about it.

    Raises:
        UserError: there is no such run, or the data's dictionaries are not the run's.
        CheckpointError: the run's checkpoint cannot be read.
    """
    folder, checkpoint, before = beginning(run)
    languages = (before["task"]["source_lang"], before["task"]["target_lang"])
    conditions = replace(conditions_of(name, data, "tiny"), row=row(0, 1))
    if conditions.languages != languages:
        raise UserError(
            f"{data} is {'-'.join(conditions.languages)}, but {folder} translates "
            f"{'-'.join(languages)}: prepare text in these languages"
        )
    as_before = {
        "model": model(before["model"], checkpoint),
        "criterion": same(before["criterion"], ("_name", "label_smoothing")),
        "common": experiment_text.common(before.get("common", {}).get("user_dir")),
    }
    batch, wanted = batch_for(conditions, before, as_before, checkpoint, folder)
    warmup = max(1, min(MOST_WARMUP, batch.updates_an_epoch or 1))
    conditions = replace(conditions, row=row(wanted, warmup))
    found = {**sections(conditions, batch, wanted), **as_before}
    found["lr_scheduler"] = schedule(before["model"], folder, checkpoint, warmup)
    found["checkpoint"].insert(
        1,
        Entry(
            "finetune_from_model",
            str(checkpoint.path),
            "the initial weights; optimizer, schedule and batches start over. Once this run has a "
            "checkpoint, training continues from that",
        ),
    )
    configured(found)
    head = [
        f"{' to '.join(languages)}: fine-tuning of {folder} on {conditions.pairs:,} pairs in "
        f"{data}. Written by 'vaswani new'; change what you like and train again with another "
        "run=NAME.",
        "",
        *(f"   {command}" for command in next_commands(name, data)),
    ]
    told = [fact for fact in facts(conditions, batch) if fact[0] != "model"]
    told.insert(1, ("from", f"{checkpoint.path}, after {checkpoint.updates:,} updates"))
    return experiment_text.text_of(head, found), told


def beginning(name: str) -> Tuple[Path, Checkpoint, Dict[str, Any]]:
    """The folder of a run or packed model, its weights as a checkpoint, and its configuration."""
    path = Path(name)
    if is_model(path):
        model = read_folder(path)
        return path, describe(checkpoint_of(model)), as_trained(model)
    folder = find_run(name)
    return (
        folder,
        describe(find_checkpoint(str(folder))[0]),
        read_yaml(folder / "config.yaml"),
    )


def row(batch_tokens: int, warmup: int) -> Row:
    """The values for fine-tuning, in the form of a row of the table."""
    source = "as in the run, and our choice for the rest"
    return Row(
        pairs=0,
        preset="",
        dropout=(0.0, 0.0, 0.0),  # the run's
        batch_tokens=batch_tokens,
        warmup=(warmup, warmup, warmup),
        epochs=EPOCHS,
        patience=PATIENCE,
        average=(AVERAGE, AVERAGE, AVERAGE),
        weight_decay=0.0,
        source=source,
    )


def batch_for(
    conditions: Conditions,
    before: Dict[str, Any],
    as_before: Sections,
    checkpoint: Checkpoint,
    folder: Path,
) -> Tuple[Batch, int]:
    """The run's batch on this machine and text, and the target tokens that it should have.

    Raises:
        UserError: the data's dictionaries are not the run's.
    """
    max_tokens = before["dataset"].get("max_tokens") or CPU_MAX_TOKENS
    freq = before["optimization"]["update_freq"][0]
    draft = Batch(max_tokens, freq, 0.0, 0.0, 1, 0)
    config = configured({**sections(conditions, draft, 1), **as_before})
    text = training_text(config, None)
    refuse_other_dictionaries(text.task, checkpoint.path, folder)
    gpus = max(1, conditions.gpus)
    wanted = before["task"].get("batch_tokens") or 0
    wanted = wanted or measured(config, text, gpus, max_tokens, freq).target_tokens
    config.task.batch_tokens = batch_tokens(conditions, text, int(wanted))
    most = max(max_tokens, CPU_MAX_TOKENS)
    return choose_batch(config, text, gpus, most), config.task.batch_tokens


def model(before: Dict[str, Any], checkpoint: Checkpoint) -> List[Entry]:
    """The run's model, every option as it was."""
    found = same(before, tuple(before))
    reason = f"as it was trained for {checkpoint.updates:,} updates"
    return [found[0]._replace(reason=reason), *found[1:]]


def same(before: Dict[str, Any], keys: Tuple[str, ...]) -> List[Entry]:
    """Keys of a section with the values that the run had, ``_name`` first."""
    ordered = sorted((key for key in keys if key in before), key=lambda key: key != "_name")
    return [Entry(key, before[key]) for key in ordered]


def schedule(
    model: Dict[str, Any], folder: Path, checkpoint: Checkpoint, warmup: int
) -> List[Entry]:
    """The paper's formula, scaled to peak at the rate at which the run ended."""
    width = model["encoder_embed_dim"]
    rate = last_rate(folder / STATISTICS) or (width * checkpoint.updates) ** -0.5
    factor = float(f"{rate * (width * warmup) ** 0.5:.3g}")
    return [
        Entry("_name", "vaswani_inverse_sqrt", "5.3"),
        Entry("warmup_updates", warmup, "a short one: Adam's moments start from zero again"),
        Entry(
            "lr_factor",
            factor,
            f"so that the rate peaks at {rate:.2g}, where {folder} ended: a higher one would undo "
            "what it has learned",
        ),
    ]


def last_rate(log: Path) -> Optional[float]:
    """The last learning rate in a run's statistics, or None."""
    found = None
    for line in statistics(log):
        found = line.get("lr", line.get("train_lr", found))
    return float(found) if found else None


def refuse_other_dictionaries(task: Any, path: Path, folder: Path) -> None:
    """Raises UserError if the data's dictionaries are not the checkpoint's."""
    from transformer_plugin.checkpoints import outline_of
    from transformer_plugin.compat.dictionaries import other_dictionaries

    other = other_dictionaries(task, outline_of(path).get("task_state") or {})
    if other:
        raise UserError(
            f"the data's dictionaries are not those of {folder}, on which its weights depend: "
            f"prepare the text with 'vaswani prepare --like {folder} …'"
        )
