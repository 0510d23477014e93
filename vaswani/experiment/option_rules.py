"""The table of rules: valid values for each option of fairseq's own that it does not check.

The rules for options of the plugin's components are in ``transformer_plugin/config.py``, since
fairseq's commands obey them too.
"""

import math
import os
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple


class Rule(NamedTuple):
    """What a value must be, in words and as a test; None, which is no value, is not tested."""

    words: str
    holds: Callable[[Any], bool]


def at_least(least: float) -> Rule:
    """A number from ``least`` on; neither infinite nor NaN."""
    return Rule(f"{least:g} or more", lambda value: least <= value < math.inf)


def between(least: float, most: float) -> Rule:
    """A number in a range, both ends included."""
    return Rule(f"from {least:,} to {most:,}", lambda value: least <= value <= most)


def each(rule: Rule) -> Rule:
    """A list with at least one item, for each of which the rule holds."""
    words = f"a list of at least one number, each {rule.words}"
    return Rule(words, lambda value: bool(value) and all(map(rule.holds, value)))


def never(why: str) -> Rule:
    """A switch that cannot be on."""
    return Rule(f"false: {why}", lambda value: not value)


def _are_buckets(value: Any) -> bool:
    from numpy import __version__

    return value == 0 or (value > 0 and __version__.startswith("1."))


def _can_be_a_file(value: Any) -> bool:
    return Path(value).parent.is_dir() and not Path(value).is_dir()


def _is_empty(value: Any) -> bool:
    return not value


def _is_mmap(value: Any) -> bool:
    return str(value) == "mmap"


POSITIVE = Rule("a number above 0", lambda value: 0 < value < math.inf)
SHARE = Rule("in [0, 1)", lambda value: 0 <= value < 1)
FILLED = Rule("given", lambda value: bool(str(value).strip()))
COUNT, NATURAL, LIMIT = at_least(0), at_least(1), at_least(-1)
#: numpy accepts 32 bits, and fairseq adds the epoch and the number of updates
SEED = between(0, 4_000_000_000)
ONE_MACHINE = "the plugin's models are not split over devices"

RULES: Dict[str, Dict[str, Rule]] = {
    "common": {
        "seed": SEED,
        "log_interval": NATURAL,
        "empty_cache_freq": COUNT,
        "all_gather_list_size": NATURAL,
        "tpu": never("neither fairseq's TPU mode nor the plugin was tested there"),
        "fp16_init_scale": POSITIVE,
        "fp16_scale_window": NATURAL,
        "fp16_scale_tolerance": between(0, 1),
        "min_loss_scale": POSITIVE,
        "threshold_loss_scale": POSITIVE,
        "amp_batch_retries": NATURAL,
        "amp_init_scale": POSITIVE,
        "amp_scale_window": NATURAL,
        "model_parallel_size": Rule(f"1: {ONE_MACHINE}", lambda value: value == 1),
        "log_file": Rule("a file in an existing folder", _can_be_a_file),
        "quantization_config_path": Rule("an existing file", lambda p: Path(p).is_file()),
    },
    "dataset": {
        "num_workers": between(0, max(64, 4 * (os.cpu_count() or 1))),
        "max_tokens": NATURAL,
        "batch_size": NATURAL,
        "max_tokens_valid": NATURAL,
        "batch_size_valid": NATURAL,
        "required_batch_size_multiple": NATURAL,
        "required_seq_len_multiple": between(1, 1024),
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
        "checkpoint_suffix": Rule("empty: a run's checkpoints have fixed names", _is_empty),
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
        "eval_bleu_lines": COUNT,
        "save_all_last": COUNT,
    },
}
#: a model's options in a file that does not build the model, such as an export's
MODEL_SIZES: Dict[str, Rule] = {
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
}
