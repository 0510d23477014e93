"""What the values of an experiment may be: each rule once, each failure one sentence.

Only options that fairseq itself leaves unchecked stand here; those of the plugin's components are
checked where they are used, so that fairseq's own commands refuse them, too.
"""

import ast
import importlib.util
import math
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from vaswani.errors import UserError


class Rule(NamedTuple):
    """What a value must be, in words and as a test; None passes where there is no value."""

    words: str
    holds: Callable[[Any], bool]


def at_least(least: float) -> Rule:
    """A number from ``least`` on; neither infinite nor NaN."""
    return Rule(f"{least:g} or more", lambda value: least <= value < math.inf)


def between(least: float, most: float) -> Rule:
    """A number in a range, both ends included."""
    return Rule(f"from {least:,} to {most:,}", lambda value: least <= value <= most)


def each(rule: Rule) -> Rule:
    """A list with at least one item, of which each holds."""
    words = f"a list of at least one number, each {rule.words}"
    return Rule(words, lambda value: bool(value) and all(map(rule.holds, value)))


def never(why: str) -> Rule:
    """A switch that cannot be on."""
    return Rule(f"false: {why}", lambda value: not value)


def _are_buckets(value: Any) -> bool:
    from numpy import __version__

    return value == 0 or (value > 0 and __version__.startswith("1."))


def _is_empty(value: Any) -> bool:
    return not value


def _is_mmap(value: Any) -> bool:
    return str(value) == "mmap"


POSITIVE = Rule("a number above 0", lambda value: 0 < value < math.inf)
SHARE = Rule("in [0, 1)", lambda value: 0 <= value < 1)
FILLED = Rule("given", lambda value: bool(str(value).strip()))
COUNT, NATURAL, LIMIT = at_least(0), at_least(1), at_least(-1)
#: numpy takes 32 bits, and fairseq adds the epoch and the number of updates
SEED = between(0, 4_000_000_000)
BF16 = "it would train the weights themselves in bfloat16; give model.precision: bf16 instead"
ONE_MACHINE = "the plugin's models are not split over devices"

RULES: Dict[str, Dict[str, Rule]] = {
    "common": {
        "seed": SEED,
        "log_interval": NATURAL,
        "empty_cache_freq": COUNT,
        "all_gather_list_size": NATURAL,
        "tpu": never("neither fairseq's TPU mode nor the plugin was tried there"),
        "fp16_init_scale": POSITIVE,
        "fp16_scale_window": NATURAL,
        "fp16_scale_tolerance": between(0, 1),
        "min_loss_scale": POSITIVE,
        "threshold_loss_scale": POSITIVE,
        "amp_batch_retries": NATURAL,
        "amp_init_scale": POSITIVE,
        "amp_scale_window": NATURAL,
        "model_parallel_size": Rule(f"1: {ONE_MACHINE}", lambda value: value == 1),
        "log_file": Rule("in a folder that is there", lambda p: Path(p).parent.is_dir()),
        "quantization_config_path": Rule("a file that is there", lambda p: Path(p).is_file()),
    },
    "dataset": {
        "num_workers": between(0, max(64, 4 * (os.cpu_count() or 1))),
        "max_tokens": NATURAL,
        "batch_size": NATURAL,
        "max_tokens_valid": NATURAL,
        "batch_size_valid": NATURAL,
        "required_batch_size_multiple": NATURAL,
        "required_seq_len_multiple": NATURAL,
        "data_buffer_size": COUNT,
        "train_subset": FILLED,
        "valid_subset": FILLED,
        "validate_interval": NATURAL,
        "validate_interval_updates": COUNT,
        "validate_after_updates": COUNT,
        "fixed_validation_seed": SEED,
        "max_valid_steps": NATURAL,
        "curriculum": COUNT,
        "dataset_impl": Rule("null or mmap, what 'vaswani prepare' writes", _is_mmap),
    },
    "optimization": {
        "max_epoch": COUNT,
        "max_update": COUNT,
        "stop_time_hours": COUNT,
        "clip_norm": COUNT,
        "update_freq": each(NATURAL),
        "lr": each(POSITIVE),
        "stop_min_lr": LIMIT,
    },
    "checkpoint": {
        "save_dir": FILLED,
        "save_interval": NATURAL,
        "save_interval_updates": COUNT,
        "keep_interval_updates": LIMIT,
        "keep_interval_updates_pattern": LIMIT,
        "keep_last_epochs": LIMIT,
        "keep_best_checkpoints": LIMIT,
        "patience": LIMIT,
        "checkpoint_suffix": Rule("empty: a run's checkpoints have names of their own", _is_empty),
        "checkpoint_shard_count": Rule(f"1: {ONE_MACHINE}", lambda value: value == 1),
    },
    "distributed_training": {
        "distributed_world_size": NATURAL,
        "bucket_cap_mb": NATURAL,
        "localsgd_frequency": NATURAL,
        "pipeline_model_parallel": never(ONE_MACHINE),
    },
    "task": {
        "max_source_positions": NATURAL,
        "max_target_positions": NATURAL,
        "num_batch_buckets": Rule("0: fairseq's buckets need numpy 1", _are_buckets),
        "batch_tokens": COUNT,
    },
    "criterion": {"label_smoothing": SHARE},
    "optimizer": {"weight_decay": COUNT, "adam_eps": COUNT},
    "lr_scheduler": {
        "warmup_updates": COUNT,
        "warmup_init_lr": Rule("a number", math.isfinite),
        "lr": each(POSITIVE),
    },
    "model": {
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), SHARE),
        **{
            f"{side}_{size}": between(1, most)
            for side in ("encoder", "decoder")
            for size, most in (
                ("layers", 1000),
                ("embed_dim", 2**17),
                ("ffn_embed_dim", 2**20),
                ("attention_heads", 2**13),
            )
        },
    },
}


def check_config(config: Any) -> None:
    """Check the values of a complete configuration.

    Raises:
        UserError: a value that fairseq would fail on later, hang at, or take for another.
    """
    for section, rules in RULES.items():
        for key, rule in rules.items():
            value = (config.get(section) or {}).get(key)
            if value is not None and not holds(rule, value):
                raise UserError(f"{section}.{key} is {value}, but must be {rule.words}")
    for check in (check_batch, check_end, check_precision, check_checkpoint, check_packages):
        check(config)


def holds(rule: Rule, value: Any) -> bool:
    """Whether a rule holds; a value that cannot be compared is one that does not."""
    try:
        return rule.holds(value)
    except (TypeError, ValueError):
        return False


def check_batch(config: Any) -> None:
    """Raises UserError where nothing bounds a batch."""
    if config.dataset.max_tokens is None and config.dataset.batch_size is None:
        raise UserError(
            "nothing says how large a batch is: give dataset.max_tokens (padded tokens, for "
            "example 4096) or dataset.batch_size (sentences)"
        )


def check_end(config: Any) -> None:
    """Raises UserError where a training would never end."""
    ends = config.optimization
    if not (
        ends.max_update > 0
        or ends.max_epoch > 0
        or ends.stop_time_hours > 0
        or ends.stop_min_lr > 0
        or config.checkpoint.patience > 0
    ):
        raise UserError(
            "the training would never end: give optimization.max_update, for example 100000 (or "
            "optimization.max_epoch, optimization.stop_time_hours, checkpoint.patience)"
        )


def check_precision(config: Any) -> None:
    """Raises UserError for 16-bit trainings that this machine or the optimizer cannot do."""
    common = config.common
    if str(config.model.get("_name")).startswith("vaswani_transformer"):
        for name in ("bf16", "memory_efficient_bf16"):  # fairseq's own models may be trained so
            if common.get(name):
                raise UserError(f"common.{name} is true, but must be false: {BF16}")
    if common.memory_efficient_fp16 and not common.fp16:
        raise UserError("common.memory_efficient_fp16 does nothing without common.fp16: true")
    asked = [n for n in ("fp16", "profile") if common.get(n)]
    if asked and common.cpu:
        instead = "leave it out" if asked == ["profile"] else "give model.precision: bf16 instead"
        raise UserError(f"common.{asked[0]} needs a GPU, and none is used here: {instead}")
    if common.fp16 and common.amp:
        raise UserError("common.fp16 and common.amp exclude each other: give one of them")


def check_checkpoint(config: Any) -> None:
    """Raises UserError for checkpoints that cannot be read, or a metric that is not measured."""
    checkpoint = config.checkpoint
    for key in ("finetune_from_model", "continue_once"):
        path = checkpoint.get(key)
        if path and not Path(path).is_file():
            raise UserError(f"checkpoint.{key}: there is no checkpoint {path}")
    try:
        overrides = ast.literal_eval(str(checkpoint.optimizer_overrides))
    except (ValueError, SyntaxError):
        overrides = None
    if not isinstance(overrides, dict):
        raise UserError(
            f"checkpoint.optimizer_overrides is {checkpoint.optimizer_overrides}, but must be a "
            "dictionary in quotes, such as '{\"lr\": 0.001}'"
        )
    known = metrics_of(config)
    if known and checkpoint.best_checkpoint_metric not in known:
        raise UserError(
            f"checkpoint.best_checkpoint_metric is {checkpoint.best_checkpoint_metric}, but the "
            f"validation measures {', '.join(known)} (bleu with task.eval_bleu: true)"
        )


def metrics_of(config: Any) -> Optional[List[str]]:
    """What a validation measures; None for another criterion or task, where it is not known."""
    measured = {
        "vaswani_label_smoothed_cross_entropy": ["loss", "nll_loss", "ppl", "accuracy"],
        "label_smoothed_cross_entropy": ["loss", "nll_loss", "ppl"],
        "cross_entropy": ["loss", "ppl"],
    }
    found = measured.get(config.criterion._name)
    if found is None or config.task._name not in ("translation", "vaswani_translation"):
        return None
    more = ["accuracy"] if config.criterion.get("report_accuracy") else []
    return found + more + (["bleu"] if config.task.get("eval_bleu") else [])


def check_packages(config: Any) -> None:
    """Raises UserError for an option whose package is not installed."""
    backend = str(config.distributed_training.ddp_backend)
    needs = {
        "common.wandb_project": (config.common.get("wandb_project"), "wandb"),
        "common.aim_repo": (config.common.get("aim_repo"), "aim"),
        "common.azureml_logging": (config.common.get("azureml_logging"), "azureml"),
        "checkpoint.write_checkpoints_asynchronously": (
            config.checkpoint.get("write_checkpoints_asynchronously"),
            "iopath",
        ),
        f"distributed_training.ddp_backend={backend}": (backend == "fully_sharded", "fairscale"),
    }
    for option, (asked, package) in needs.items():
        if asked and importlib.util.find_spec(package) is None:
            raise UserError(f"{option} needs the package '{package}': pip install it, or leave it")
