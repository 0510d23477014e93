"""What ``vaswani new`` says about an experiment: at the top of the file, and on the terminal."""

from pathlib import Path
from typing import List, Tuple

from vaswani.data.data_bin import subset_option
from vaswani.planning.batching import Batch
from vaswani.planning.conditions import Conditions, experiment_positions
from vaswani.planning.recipes import of


def head(conditions: Conditions) -> List[str]:
    """What the file says about itself."""
    name, row = conditions.name, conditions.row
    machine = f"{conditions.gpus} GPUs" if conditions.gpus else "a CPU"
    return [
        f"{' to '.join(conditions.languages)}: {conditions.pairs:,} training pairs in "
        f"{conditions.data}, to be trained on {machine}. Written by 'vaswani new'; change what you "
        "like and train again with another run=NAME.",
        "",
        *(f"   {command}" for command in next_commands(name, conditions.data)),
        "   fairseq-hydra-train --config-dir FOLDER --config-name NAME (both absolute), and",
        '       common.user_dir="$(vaswani plugin-dir)"',
        "",
        f"The row of vaswani/planning/recipes.py for this many pairs: {row.source}.",
    ]


def next_commands(name: str, data: Path) -> List[str]:
    """The commands from an experiment to its score, and to a model that translates text."""
    subset = subset_option(data)
    return [
        f"vaswani train {name}",
        f"vaswani average {name}",
        f"vaswani generate {name}{subset}",
        f"vaswani score {name}{subset}",
        f"vaswani pack {name}",
        f"vaswani translate runs/{name}/model",
    ]


def facts(conditions: Conditions, batch: Batch) -> List[Tuple[str, str]]:
    """What was decided, and why."""
    row, preset = conditions.row, conditions.preset
    machine = f"{conditions.gpus} GPUs" if conditions.gpus else "no GPU"
    updates = row.updates(preset, batch.updates_an_epoch or 1)
    patience = f", or {row.patience} validations without improvement" if row.patience else ""
    found = [
        ("text", f"{conditions.pairs:,} pairs {'-'.join(conditions.languages)}: {row.source}"),
        ("model", f"{preset}, dropout {of(preset, row.dropout)} ({machine})"),
        (
            "batch",
            f"{batch.target_tokens:,.0f} target tokens per update: {batch.max_tokens:,} padded × "
            f"{batch.update_freq} × {max(1, conditions.gpus)}",
        ),
        (
            "training",
            f"{updates:,} updates, {batch.updates_an_epoch:,} per epoch{patience}: "
            f"{updates * batch.target_tokens / 1e6:,.0f}M target tokens at most",
        ),
        ("average", f"chosen from the last {of(preset, row.average)} checkpoints"),
    ]
    left_out = []
    if batch.left_out:
        left_out.append(f"{batch.left_out:,} training pairs, longer than a batch")
    if conditions.left_out:
        longest = experiment_positions()
        left_out.append(
            f"{conditions.left_out:,} of {conditions.validation:,} validation sentences, longer "
            f"than {longest:,} tokens"
        )
    return found + ([("left out", "; ".join(left_out))] if left_out else [])
