"""A new model for one's own text: sizes, batch and schedule by the table in ``recipes.py``."""

import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from vaswani.planning import arithmetic, experiment_text
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
from vaswani.planning.experiment_summary import facts, head
from vaswani.planning.experiment_text import Entry, Sections
from vaswani.planning.recipes import of

MODELS = {"tiny": "_tiny", "base": "", "big": "_big"}
#: a CPU gains nothing from larger batches of padded tokens
CPU_MAX_TOKENS = 8192
#: updates between checkpoints: few enough to see early progress, and as many as in the WMT
#: experiments; between these limits, whole epochs
OFTEN, SELDOM = 100, 1500
#: so many checkpoints are saved at least, however short the training: 'vaswani average' chooses
LEAST_CHECKPOINTS = 10


def first_experiment(
    name: str, data: Path, preset: Optional[str]
) -> Tuple[str, List[Tuple[str, str]]]:
    """The experiment's text, and the facts to print about it.

    Raises:
        UserError: the data cannot be trained on, or the machine is too small.
    """
    conditions = conditions_of(name, data, preset)
    # first with the row's batch, then with the batch that fits this text and machine
    row = conditions.row
    draft = Batch(CPU_MAX_TOKENS, 1, row.batch_tokens, row.batch_tokens, 1, 0)
    config = configured(sections(conditions, draft, row.batch_tokens))
    text = training_text(config, None)
    wanted = config.task.batch_tokens = batch_tokens(conditions, text, row.batch_tokens)
    most = CPU_MAX_TOKENS
    if conditions.gpus:
        sizes = arithmetic.sizes_of(config.model, len(text.task.target_dictionary))
        parameters = count_parameters(config, text.task)
        most = most_tokens(sizes, parameters, conditions.memory, memory_use(config))
    batch = choose_batch(config, text, max(1, conditions.gpus), most)
    found = sections(conditions, batch, wanted)
    configured(found)
    return experiment_text.text_of(head(conditions), found), facts(conditions, batch)


def configured(found: Sections) -> Any:
    """fairseq's configuration of an experiment; raises now if anything is wrong with it."""
    from vaswani.experiment.fairseq_config import config_of

    table: Dict[str, Any] = {
        section: {entry.key: entry.value for entry in entries} for section, entries in found.items()
    }
    return config_of(table, "the new experiment")


# ---- the sections -----------------------------------------------------------------------------


def sections(conditions: Conditions, batch: Batch, wanted: int) -> Sections:
    """All sections, in the order of the shipped experiments."""
    row, preset = conditions.row, conditions.preset
    task = [Entry("batch_tokens", wanted, batch_reason(conditions, wanted))]
    found = experiment_text.always(str(conditions.data), conditions.languages, task)
    found["model"] = model(conditions)
    found["criterion"] = list(experiment_text.CRITERION)
    found["optimizer"] = list(experiment_text.OPTIMIZER)
    if row.weight_decay:
        found["optimizer"].append(
            Entry("weight_decay", row.weight_decay, f"not the paper's: {row.source}")
        )
    found["lr_scheduler"] = schedule(conditions)
    found["dataset"] = dataset(conditions, batch)
    epochs = f"{row.epochs} epochs at most" if row.epochs else "as many as in the paper"
    found["optimization"] = [
        Entry(
            "update_freq",
            [batch.update_freq],
            "batches accumulated for one update, so that it sees task.batch_tokens",
        ),
        Entry(
            "max_update",
            row.updates(preset, batch.updates_an_epoch or 1),
            f"{epochs} ({row.source}); {batch.updates_an_epoch:,} updates per epoch. Raise it, and "
            "the same command continues",
        ),
        Entry("clip_norm", 0.0),
    ]
    found["checkpoint"] = checkpoint(conditions, batch)
    found["generation"] = list(experiment_text.SEARCH)
    return found


def batch_reason(conditions: Conditions, wanted: int) -> str:
    """Why an update sees this many tokens."""
    row = conditions.row
    if wanted == row.batch_tokens:
        return f"target tokens per update: {row.source}"
    return (
        f"target tokens per update: {row.batch_tokens:,} ({row.source}), but at least "
        f"{LEAST_UPDATES_AN_EPOCH} updates per epoch, and {LEAST_BATCH} tokens on each GPU"
    )


def model(conditions: Conditions) -> List[Entry]:
    """The preset's sizes, written out, and the values that depend on the text."""
    from transformer_plugin import config

    kinds = {
        "tiny": config.VaswaniTransformerTinyConfig,
        "base": config.VaswaniTransformerConfig,
        "big": config.VaswaniTransformerBigConfig,
    }
    preset, row = conditions.preset, conditions.row
    sizes = kinds[preset]()
    chosen = {
        "tiny": "the sizes for small text and for CPUs (not in the paper)",
        "base": "the paper's base model (Table 3)",
        "big": "the paper's big model (Table 3)",
    }[preset]
    found = [Entry("_name", f"vaswani_transformer{MODELS[preset]}", chosen)]
    for side in ("encoder", "decoder"):
        for size in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
            found.append(Entry(f"{side}_{size}", getattr(sizes, f"{side}_{size}")))
    dropout = of(preset, row.dropout)
    found += [
        Entry("dropout", dropout, f"{row.source}; more text needs less, a larger model more"),
        Entry(
            "init",
            "fairseq",
            "initial weights: as in fairseq's model, which learns more in the same number of "
            "updates; t2t is as in the authors' code",
        ),
        Entry(
            "precision",
            "bf16",
            "matrix products in bfloat16, 1.4 times as fast on a CPU with bfloat16 units; without "
            "them it computes in fp32, and says so",
        ),
    ]
    if not conditions.shared:
        found.append(
            Entry(
                "untie_embeddings",
                True,
                "the data has a dictionary for each language, so they share no matrix (3.4)",
            )
        )
    return found


def schedule(conditions: Conditions) -> List[Entry]:
    """The paper's formula (5.3), with the row's warm-up."""
    from transformer_plugin.config import VaswaniTransformerBigConfig, VaswaniTransformerConfig

    warmup = of(conditions.preset, conditions.row.warmup)
    width = {
        "tiny": 128,
        "base": VaswaniTransformerConfig().encoder_embed_dim,
        "big": VaswaniTransformerBigConfig().encoder_embed_dim,
    }[conditions.preset]
    peak = (width * warmup) ** -0.5
    return [
        Entry("_name", "vaswani_inverse_sqrt", "5.3"),
        Entry(
            "warmup_updates",
            warmup,
            f"{conditions.row.source}; the rate rises to {width}^-0.5 × {warmup:,}^-0.5 = "
            f"{peak:.5f}. If the training diverges, make this longer",
        ),
    ]


def dataset(conditions: Conditions, batch: Batch) -> List[Entry]:
    """Batches, and what is left out of them."""
    left_out = f"{batch.left_out or 0:,} of {conditions.pairs:,} training pairs are longer"
    return [
        Entry(
            "max_tokens",
            batch.max_tokens,
            "sentences × the longer side, padding included, in a batch on one GPU or CPU: an "
            f"update then sees {batch.target_tokens:,.0f} target tokens; {left_out} and left out",
        ),
        Entry("max_tokens_valid", max(8192, conditions.longest)),
        Entry("validate_interval", every(conditions, batch)),
        Entry("num_workers", 2 if conditions.gpus else 0),
        Entry(
            "skip_invalid_size_inputs_valid_test",
            True,
            f"validation sentences of more than {experiment_positions():,} tokens are left out: "
            f"{conditions.left_out:,} of {conditions.validation:,}",
        ),
        Entry(
            "update_epoch_batch_itr",
            True,
            "a resumed run has the same batches as an uninterrupted one",
        ),
    ]


def every(conditions: Conditions, batch: Batch) -> int:
    """How many epochs there are between two checkpoints, if epochs are short."""
    an_epoch = batch.updates_an_epoch or 1
    most = conditions.row.updates(conditions.preset, an_epoch) // (an_epoch * LEAST_CHECKPOINTS)
    return max(1, min(math.ceil(OFTEN / an_epoch), most))


def checkpoint(conditions: Conditions, batch: Batch) -> List[Entry]:
    """How often to save and validate, what to keep to average, when to stop early."""
    row, an_epoch = conditions.row, batch.updates_an_epoch or 1
    average = of(conditions.preset, row.average)
    kept = "those that 'vaswani average' can choose from in the end"
    found = [Entry("save_dir", experiment_text.save_dir(conditions.name))]
    if an_epoch >= SELDOM:
        found += [
            Entry("save_interval", 1000, "each save also validates; none when an epoch ends"),
            Entry("save_interval_updates", SELDOM),
            Entry("keep_interval_updates", average + 1, kept),
            Entry("no_epoch_checkpoints", True),
        ]
    else:
        found += [
            Entry(
                "save_interval", every(conditions, batch), f"epochs, of {an_epoch:,} updates each"
            ),
            Entry("keep_last_epochs", average, kept),
        ]
    if row.patience:
        found.append(
            Entry(
                "patience",
                row.patience,
                "validations without improvement, after which training ends: more would only "
                "memorise the text",
            )
        )
    return found
