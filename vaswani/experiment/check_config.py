"""Checks that an experiment's values can work, alone and together: each failure is one sentence."""

import ast
import importlib.util
from pathlib import Path
from typing import Any, List, Mapping, Optional

from vaswani.common.errors import UserError
from vaswani.experiment.option_rules import AMP, BF16, RULES, Rule


def check_config(config: Any) -> None:
    """Check the values of a complete configuration.

    Raises:
        UserError: a value that fairseq would fail on later, hang on, or misread.
    """
    for section, rules in RULES.items():
        check_values(config.get(section) or {}, rules, f"{section}.")
    for check in (check_batch, check_end, check_precision, check_checkpoint):
        check(config)


def check_values(given: Any, rules: Mapping[str, Rule], where: str) -> None:
    """Check a section's values by the rules for its keys; ``where`` comes before a key in messages.

    Raises:
        UserError: a value for which its rule does not hold; None is no value.
    """
    for key, rule in rules.items():
        value = given.get(key)
        if value is not None and not holds(rule, value):
            raise UserError(f"{where}{key} is {value}, but must be {rule.words}")


def check_here(config: Any) -> None:
    """Check what a training needs of this machine (a plan may be for another one).

    Raises:
        UserError: a GPU, a file or a package is missing.
    """
    for check in (check_devices, check_files, check_packages):
        check(config)


def holds(rule: Rule, value: Any) -> bool:
    """Whether a rule holds; for a value that cannot be compared, it does not."""
    try:
        return rule.holds(value)
    except (TypeError, ValueError):
        return False


def check_batch(config: Any) -> None:
    """Raises UserError if nothing limits the batch size."""
    if config.dataset.max_tokens is None and config.dataset.batch_size is None:
        raise UserError(
            "nothing limits how large a batch is: give dataset.max_tokens (padded tokens, for "
            "example 4096) or dataset.batch_size (sentences)"
        )


def check_end(config: Any) -> None:
    """Raises UserError if a training would never end."""
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
    """Raises UserError for 16-bit options that do not do what one would expect."""
    common = config.common
    if str(config.model.get("_name")).startswith("vaswani_transformer"):
        for name in ("bf16", "memory_efficient_bf16"):  # fairseq's own models may use these
            if common.get(name):
                raise UserError(f"common.{name} is true, but must be false: {BF16}")
        if common.get("amp"):
            raise UserError(f"common.amp is true, but must be false: {AMP}")
        if common.fp16 and config.model.get("precision") == "bf16":
            raise UserError(
                "common.fp16 and model.precision: bf16 exclude each other: give one of them"
            )
    if common.memory_efficient_fp16 and not common.fp16:
        raise UserError("common.memory_efficient_fp16 does nothing without common.fp16: true")
    if common.fp16 and common.amp:
        raise UserError("common.fp16 and common.amp exclude each other: give one of them")


def check_devices(config: Any) -> None:
    """Raises UserError for options that need a GPU if none is used."""
    advice = {"fp16": "give model.precision: bf16 instead", "profile": "leave it out"}
    for name, instead in advice.items():
        if config.common.get(name) and config.common.cpu:
            raise UserError(f"common.{name} needs a GPU, and none is used here: {instead}")


def check_files(config: Any) -> None:
    """Raises UserError if the checkpoint to start from does not exist."""
    for key in ("finetune_from_model", "continue_once"):
        path = config.checkpoint.get(key)
        if path and not Path(path).is_file():
            raise UserError(f"checkpoint.{key}: there is no checkpoint {path}")


def check_checkpoint(config: Any) -> None:
    """Raises UserError for overrides that cannot be read, or a metric that is not measured."""
    checkpoint = config.checkpoint
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
    """What a validation measures; None for other criteria or tasks, where it is not known."""
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
    for option, (requested, package) in needs.items():
        if requested and importlib.util.find_spec(package) is None:
            raise UserError(
                f"{option} needs the package '{package}': pip install it, or leave the option out"
            )
