"""A new model for one's own text: its settings are those of ``published_settings.py``.

``experiment.yaml.j2`` is the experiment that is written, with a reason above each value. Here is
what has to be computed for it, and what ``vaswani new`` prints about it.
"""

import math
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from transformer_plugin.config import (
    VaswaniTransformerBigConfig,
    VaswaniTransformerConfig,
    VaswaniTransformerTinyConfig,
    VaswaniTranslationConfig,
)
from vaswani.common.files import sha256_of
from vaswani.common.templates import render
from vaswani.common.yaml_tables import parse_yaml
from vaswani.configuration.fairseq_config import config_of
from vaswani.configuration.plugin import load_plugin
from vaswani.data import read_data_bin
from vaswani.data.text import read_lines
from vaswani.data.tokenisation import hardly_spaced
from vaswani.folders.data_bin import DataBin
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import BPE, SUBWORD_MODELS, Recipe
from vaswani.planning import arithmetic, batching
from vaswani.planning.published_settings import BPE_DROPOUT, Settings, settings_for, value_for

TEMPLATE = Path(__file__).with_name("experiment.yaml.j2")
#: so that even a small text has some: our choice
LEAST_UPDATES_PER_EPOCH = 10
#: the fewest target tokens of an update, on each GPU: our choice
LEAST_BATCH = 400
#: a CPU gains nothing from larger batches of padded tokens
CPU_MAX_TOKENS = 8192
#: of an experiment whose batch is not chosen yet
DRAFT = batching.Batch(CPU_MAX_TOKENS, 1, 0.0, 0.0, updates_per_epoch=1)
#: updates between checkpoints: few enough to see early progress, and as many as in the WMT
#: experiments; between these limits, whole epochs
OFTEN, SELDOM = 100, 1500
#: so many checkpoints are saved at least, however short the training: 'vaswani average' chooses
LEAST_CHECKPOINTS = 10


@dataclass(frozen=True)
class Conditions:
    """What an experiment is written for: a text, the machine, and the settings that suit them."""

    name: str
    data: Path
    languages: tuple[str, str]
    pairs: int
    gpus: int
    preset: str
    settings: Settings
    #: whether the two languages share their dictionary
    shared: bool
    #: how many validation sentences are left out, how many there are, and the longest kept
    left_out: int
    validation: int
    longest: int
    #: whether the target sentences are trees (6.3)
    trees: bool
    #: how text is restored for BLEU
    restoring: dict[str, str]
    #: whether the training text was split with BPE-dropout
    bpe_dropout: bool = False


def conditions_of(name: str, data: Path, preset: str | None) -> Conditions:
    """Return the conditions for binarised text in ``data`` on this machine.

    Raises:
        UserError: there is no data or validation set, or one of them is empty or damaged.
    """
    load_plugin()
    text = read_data_bin.parallel_text({"data": str(data)})
    languages = text.languages
    prepared = PreparedText.around(text.data.folder)
    pairs = len(read_data_bin.sentence_lengths(text, "train")[0])
    valid = np.maximum(*read_data_bin.sentence_lengths(text, "valid"))
    longest = longest_sentence()
    recipe = prepared.recipe()
    settings = settings_of_text(recipe, pairs)
    gpus = torch.cuda.device_count()
    dictionaries = {sha256_of(text.data.dictionary(language)) for language in languages}
    return Conditions(
        name=name,
        data=data,
        languages=languages,
        pairs=pairs,
        gpus=gpus,
        preset=preset or (settings.preset if gpus else "tiny"),
        settings=settings,
        shared=len(dictionaries) == 1,
        left_out=int((valid > longest).sum()),
        validation=len(valid),
        longest=int(valid[valid <= longest].max(initial=0)),
        trees=recipe is not None and recipe.trees,
        restoring=restoring(prepared, recipe, languages[1]),
        bpe_dropout=recipe is not None and recipe.bpe_dropout is not None,
    )


def settings_of_text(recipe: Recipe | None, pairs: int) -> Settings:
    """Return the settings for a text of ``pairs`` pairs, which BPE-dropout may have copied.

    Args:
        recipe: how it was prepared, if that is known
        pairs: in the data-bin, all copies together
    """
    copies = recipe.copies if recipe else 1
    settings = settings_for(pairs / copies)
    epochs = math.ceil(settings.epochs / copies)  # each of which is so many of the text
    return replace(settings, epochs=epochs)


def longest_sentence() -> int:
    """Return the longest sentence that task and model accept by default, in tokens."""
    return int(VaswaniTranslationConfig().max_source_positions)


def restoring(text: PreparedText, recipe: Recipe | None, lang: str) -> dict[str, str]:
    """Return how to restore text from subwords for BLEU: fairseq's names, and sacreBLEU's tokens.

    As the recipe allows: text that was tokenised before, or elsewhere, is scored as tokens.
    """
    path = text.sentences("valid", lang)
    kind = recipe.subword if recipe else BPE
    names = {"remove_bpe": SUBWORD_MODELS[kind].remove, "detokeniser": "space", "tokens": "none"}
    if recipe and not recipe.tokenised and path.is_file():
        names["tokens"] = "char" if hardly_spaced(islice(read_lines(path), 200)) else "13a"
        names["detokeniser"] = "moses" if kind == BPE else "space"
    return names


def first_experiment(name: str, data: Path, preset: str | None) -> tuple[str, list[str]]:
    """Return the text of the first experiment, and the lines to print about it.

    Raises:
        UserError: the data cannot be trained on, or the machine is too small.
    """
    conditions = conditions_of(name, data, preset)
    config = configuration_of(new_model(conditions, DRAFT, conditions.settings.batch_tokens))
    text = batching.training_text(config)
    target_tokens = batch_tokens(conditions, text, conditions.settings.batch_tokens)
    most = CPU_MAX_TOKENS
    if conditions.gpus:
        sizes = arithmetic.sizes_of(config.model, len(text.task.target_dictionary))
        parameters = batching.count_parameters(config, text.task)
        memory = batching.gpu_memory(conditions.gpus)
        use = batching.memory_use(config, conditions.gpus)
        most = batching.most_tokens(sizes, parameters, memory, use)
    gpus = max(1, conditions.gpus)
    batch = batching.choose_batch(config, text, gpus, most, target_tokens=target_tokens)
    experiment = new_model(conditions, batch, target_tokens)
    configuration_of(experiment)
    return experiment, facts(conditions, batch)


def configuration_of(experiment: str) -> DictConfig:
    """Return fairseq's configuration of an experiment; raise now if anything is wrong with it."""
    where = "the new experiment"
    return config_of(parse_yaml(experiment, where), where)


def batch_tokens(conditions: Conditions, text: batching.TrainingText, most: int) -> int:
    """Return the target tokens per update: ``most``, or fewer if the text is small."""
    total = text.lengths[1] * conditions.pairs
    fewer = int(min(most, total / LEAST_UPDATES_PER_EPOCH))
    return max(fewer, LEAST_BATCH * max(1, conditions.gpus))


def new_model(conditions: Conditions, batch: batching.Batch, batch_tokens: int) -> str:
    """Return the experiment for a model of a preset's sizes."""
    presets = {
        "tiny": (
            "_tiny",
            VaswaniTransformerTinyConfig(),
            "the sizes for small text and for CPUs (not in the paper)",
        ),
        "base": ("", VaswaniTransformerConfig(), "the paper's base model (Table 3)"),
        "big": ("_big", VaswaniTransformerBigConfig(), "the paper's big model (Table 3)"),
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
    template: Path, conditions: Conditions, batch: batching.Batch, batch_tokens: int, **values: Any
) -> str:
    """Return the text of an experiment: a template, filled in with common values and ``values``."""
    settings = conditions.settings
    preset = conditions.preset
    per_epoch = batch.updates_per_epoch or 1
    max_update = settings.updates(preset, per_epoch)
    most = max_update // (per_epoch * LEAST_CHECKPOINTS)
    return render(
        template,
        conditions=conditions,
        settings=settings,
        batch=batch,
        batch_tokens=batch_tokens,
        machine=describe_machine(conditions),
        commands=next_commands(conditions.name, conditions.data),
        warmup=value_for(preset, settings.warmup),
        average=value_for(preset, settings.average),
        max_update=max_update,
        interval=max(1, min(math.ceil(OFTEN / per_epoch), most)),
        updates_between_saves=SELDOM,
        longest_sentence=longest_sentence(),
        least_batch=LEAST_BATCH,
        least_updates_per_epoch=LEAST_UPDATES_PER_EPOCH,
        bpe_dropout=BPE_DROPOUT,
        **values,
    )


# ---- what is printed --------------------------------------------------------------------------


def next_commands(name: str, data: Path) -> list[str]:
    """Return the commands from an experiment to its score, and to a model that translates text."""
    subset = DataBin(data).subset_option()
    scored = [
        f"vaswani train {name}",
        f"vaswani average {name}",
        f"vaswani generate {name}{subset}",
        f"vaswani score {name}{subset}",
    ]
    packed = [f"vaswani pack {name}", f"vaswani translate runs/{name}/model"]
    return scored + ([] if PreparedText.around(data).has_trees() else packed)


def describe_machine(conditions: Conditions) -> str:
    """Describe the machine: "a CPU", "1 GPU", "8 GPUs"."""
    gpus = conditions.gpus
    return f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "a CPU"


def facts(conditions: Conditions, batch: batching.Batch) -> list[str]:
    """Return the lines on what was decided and left out; the experiment has the reasons."""
    settings = conditions.settings
    per_epoch = batch.updates_per_epoch or 1
    updates = settings.updates(conditions.preset, per_epoch)
    lines = [
        f"{conditions.pairs:,} pairs {'-'.join(conditions.languages)}, to be trained on "
        f"{describe_machine(conditions)}",
        f"settings: {settings.source}; the file has the reason for each",
        f"at most {updates:,} updates, {per_epoch:,} per epoch, of {batch.target_tokens:,.0f} "
        "target tokens",
    ]
    if conditions.bpe_dropout:
        lines.append(BPE_DROPOUT)
    if batch.left_out:
        lines.append(f"left out: {batch.left_out:,} training pairs, longer than a batch")
    if conditions.left_out:
        lines.append(
            f"left out: {conditions.left_out:,} of {conditions.validation:,} validation sentences, "
            f"longer than {longest_sentence():,} tokens"
        )
    return lines
