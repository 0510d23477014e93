"""A new model for one's own text: its settings are those of ``published_settings.py``.

``experiment.yaml.j2`` is the experiment that is written, with a reason above each value. Here is
what has to be computed for it, and what ``vaswani new`` prints about it.
"""

import math
from pathlib import Path
from typing import Any

from vaswani.common.templates import render
from vaswani.data.data_bin import subset_option
from vaswani.data.recipe import has_trees
from vaswani.experiment.find import parse_yaml
from vaswani.planning import arithmetic
from vaswani.planning.batching import (
    Batch,
    choose_batch,
    count_parameters,
    memory_use,
    most_tokens,
    training_text,
)
from vaswani.planning.conditions import (
    LEAST_BATCH,
    LEAST_UPDATES_AN_EPOCH,
    Conditions,
    batch_tokens,
    conditions_of,
    experiment_positions,
)
from vaswani.planning.published_settings import Settings, value_for

TEMPLATE = Path(__file__).with_name("experiment.yaml.j2")
#: a CPU gains nothing from larger batches of padded tokens
CPU_MAX_TOKENS = 8192
#: updates between checkpoints: few enough to see early progress, and as many as in the WMT
#: experiments; between these limits, whole epochs
OFTEN, SELDOM = 100, 1500
#: so many checkpoints are saved at least, however short the training: 'vaswani average' chooses
LEAST_CHECKPOINTS = 10


def first_experiment(
    name: str, data: Path, preset: str | None
) -> tuple[str, list[tuple[str, str]]]:
    """The experiment's text, and the facts to print about it.

    Raises:
        UserError: the data cannot be trained on, or the machine is too small.
    """
    conditions = conditions_of(name, data, preset)
    # first with the published batch, then with the batch that fits this text and machine
    settings = conditions.settings
    draft = Batch(CPU_MAX_TOKENS, 1, settings.batch_tokens, settings.batch_tokens, 1, 0)
    config = configured(new_model(conditions, draft, settings.batch_tokens))
    text = training_text(config, None)
    wanted = config.task.batch_tokens = batch_tokens(conditions, text, settings.batch_tokens)
    most = CPU_MAX_TOKENS
    if conditions.gpus:
        sizes = arithmetic.sizes_of(config.model, len(text.task.target_dictionary))
        parameters = count_parameters(config, text.task)
        most = most_tokens(sizes, parameters, conditions.memory, memory_use(config))
    batch = choose_batch(config, text, max(1, conditions.gpus), most)
    experiment = new_model(conditions, batch, wanted)
    configured(experiment)
    return experiment, facts(conditions, batch)


def configured(experiment: str) -> Any:
    """fairseq's configuration of an experiment; raises now if anything is wrong with it."""
    from vaswani.experiment.fairseq_config import config_of

    where = "the new experiment"
    return config_of(parse_yaml(experiment, where), where)


def new_model(conditions: Conditions, batch: Batch, batch_tokens: int) -> str:
    """The experiment for a model of a preset's sizes."""
    from transformer_plugin import config

    presets = {
        "tiny": (
            "_tiny",
            config.VaswaniTransformerTinyConfig(),
            "the sizes for small text and for CPUs (not in the paper)",
        ),
        "base": ("", config.VaswaniTransformerConfig(), "the paper's base model (Table 3)"),
        "big": ("_big", config.VaswaniTransformerBigConfig(), "the paper's big model (Table 3)"),
    }
    suffix, sizes, about_preset = presets[conditions.preset]
    return experiment_text(
        TEMPLATE,
        conditions,
        batch,
        batch_tokens,
        user_dir="transformer_plugin",
        model_name=f"vaswani_transformer{suffix}",
        about_preset=about_preset,
        sizes=sizes,
        width=sizes.encoder_embed_dim,
        dropout=value_for(conditions.preset, conditions.settings.dropout),
    )


def experiment_text(
    template: Path, conditions: Conditions, batch: Batch, batch_tokens: int, **values: Any
) -> str:
    """The text of an experiment: a template with what every experiment needs, and ``values``."""
    settings, preset = conditions.settings, conditions.preset
    an_epoch = batch.updates_an_epoch or 1
    return render(
        template,
        conditions=conditions,
        settings=settings,
        batch=batch,
        batch_tokens=batch_tokens,
        machine=machine(conditions),
        commands=next_commands(conditions.name, conditions.data),
        warmup=value_for(preset, settings.warmup),
        average=value_for(preset, settings.average),
        max_update=settings.updates(preset, an_epoch),
        interval=epochs_between_saves(settings, preset, an_epoch),
        updates_between_saves=SELDOM,
        longest_sentence=experiment_positions(),
        least_batch=LEAST_BATCH,
        least_updates_an_epoch=LEAST_UPDATES_AN_EPOCH,
        **values,
    )


def epochs_between_saves(settings: Settings, preset: str, updates_an_epoch: int) -> int:
    """How many epochs there are between two checkpoints, if epochs are short."""
    training = settings.updates(preset, updates_an_epoch)
    most = training // (updates_an_epoch * LEAST_CHECKPOINTS)
    return max(1, min(math.ceil(OFTEN / updates_an_epoch), most))


# ---- what is printed --------------------------------------------------------------------------


def next_commands(name: str, data: Path) -> list[str]:
    """The commands from an experiment to its score, and of text to a model that translates it."""
    subset = subset_option(data)
    scored = [
        f"vaswani train {name}",
        f"vaswani average {name}",
        f"vaswani generate {name}{subset}",
        f"vaswani score {name}{subset}",
    ]
    packed = [f"vaswani pack {name}", f"vaswani translate runs/{name}/model"]
    return scored + ([] if has_trees(data) else packed)


def machine(conditions: Conditions) -> str:
    """What the experiment is for: "a CPU", "1 GPU", "8 GPUs"."""
    gpus = conditions.gpus
    return f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "a CPU"


def facts(conditions: Conditions, batch: Batch) -> list[tuple[str, str]]:
    """What was decided, and why."""
    settings, preset = conditions.settings, conditions.preset
    updates = settings.updates(preset, batch.updates_an_epoch or 1)
    patience = (
        f", or {settings.patience} validations without improvement" if settings.patience else ""
    )
    decisions = [
        ("text", f"{conditions.pairs:,} pairs {'-'.join(conditions.languages)}: {settings.source}"),
        (
            "model",
            f"{preset}, dropout {value_for(preset, settings.dropout)} ({machine(conditions)})",
        ),
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
        ("average", f"chosen from the last {value_for(preset, settings.average)} checkpoints"),
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
    return decisions + ([("left out", "; ".join(left_out))] if left_out else [])
