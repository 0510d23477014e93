"""Whether an experiment can be trained: its types, its values, the machine, fairseq's components.

Each failure is one sentence that names the option. fairseq has some hundred components, which check
their options with assertions or not at all: an error raised in fairseq's code while it builds one
is caused by the options that were given, and so becomes a sentence, too.
"""

import ast
import contextlib
import enum
import importlib.util
import math
import reprlib
import traceback
import typing
from pathlib import Path
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Union

from vaswani.common.errors import UserError
from vaswani.experiment.devices import on_cpu
from vaswani.experiment.option_rules import RULES, Rule

#: texts that omegaconf reads as true or false
TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "n")
#: fairseq's functions that build something from a section of the configuration
BUILDERS = {
    "setup_task": "task",
    "build_model": "model",
    "build_criterion": "criterion",
    "build_optimizer": "optimizer",
    "_build_optimizer": "optimizer",
    "build_lr_scheduler": "lr_scheduler",
}
PACKAGES = ("fairseq", "fairseq_cli", "transformer_plugin", "vaswani")


def check_config(config: Any) -> None:
    """Check the values of a complete configuration.

    Raises:
        UserError, ConfigError: a value that fairseq would fail on later, hang on, or misread.
    """
    for section, rules in RULES.items():
        check_values(config.get(section) or {}, rules, f"{section}.")
    for check in (check_batch, check_end, check_components, check_checkpoint):
        check(config)


def check_here(config: Any) -> None:
    """Check what a training needs of this machine (a plan may be for another one).

    Raises:
        UserError, ConfigError: a GPU, a file or a package is missing.
    """
    for check in (check_devices, check_files, check_packages):
        check(config)


# ---- values together, and the machine ------------------------------------------------------------


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


def check_components(config: Any) -> None:
    """Check the options of the plugin's components by their own rules, and its precision.

    What other components are given is checked by them.

    Raises:
        ConfigError: a value or a combination that cannot work.
        UserError: 16-bit options that exclude each other, or do nothing.
    """
    from transformer_plugin import config as plugin
    from transformer_plugin.compat.scope import is_plugin_model

    common = config.common
    if is_plugin_model(config.model._name):
        plugin.check_model_config(config.model)
        plugin.check_precision(common, config.model.get("precision"))
    if config.criterion._name == "vaswani_label_smoothed_cross_entropy":
        plugin.check_label_smoothing(config.criterion.label_smoothing)
    if config.lr_scheduler._name == "vaswani_inverse_sqrt":
        plugin.check_schedule_config(config.lr_scheduler)
    if common.memory_efficient_fp16 and not common.fp16:
        raise UserError("common.memory_efficient_fp16 does nothing without common.fp16: true")
    if common.fp16 and common.amp:
        raise UserError("common.fp16 and common.amp exclude each other: give one of them")


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
    known = measured.get(config.criterion._name)
    if known is None or config.task._name not in ("translation", "vaswani_translation"):
        return None
    more = ["accuracy"] if config.criterion.get("report_accuracy") else []
    return known + more + (["bleu"] if config.task.get("eval_bleu") else [])


def check_devices(config: Any) -> None:
    """Raises UserError for options that need a GPU if none is used."""
    if config.common.get("profile") and on_cpu(config):
        raise UserError("common.profile needs a GPU, and none is used here: leave it out")


def check_files(config: Any) -> None:
    """Raises UserError if the checkpoint to start from does not exist."""
    for key in ("finetune_from_model", "continue_once"):
        path = config.checkpoint.get(key)
        if path and not Path(path).is_file():
            raise UserError(f"checkpoint.{key}: there is no checkpoint {path}")


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


# ---- values of one option ------------------------------------------------------------------------


def check_values(given: Any, rules: Mapping[str, Rule], where: str) -> None:
    """Check a section's values by the rules for its keys; ``where`` comes before a key in messages.

    Raises:
        UserError: a value for which its rule does not hold; None is no value.
    """
    for key, rule in rules.items():
        value = given.get(key)
        if value is not None and not holds(rule, value):
            raise UserError(f"{where}{key} is {value}, but must be {rule.words}")


def holds(rule: Rule, value: Any) -> bool:
    """Whether a rule holds; for a value that cannot be compared, it does not."""
    try:
        return rule.holds(value)
    except (TypeError, ValueError):
        return False


# ---- types ---------------------------------------------------------------------------------------


def check_types(
    given: Mapping[str, Any], declared: Dict[str, Any], where: str, strict: bool = False
) -> None:
    """Check that a section's values have the types that are declared for them.

    For an experiment's YAML, what omegaconf would convert is accepted: "4" is a whole number.
    Elsewhere (``strict``: JSON, and options in Python) nothing is converted. omegaconf checks too,
    but reads 0.5 as a whole number (0) and ``no`` as the text "False", and its message is "Value
    'abc' of type 'str' could not be converted to Integer".

    Args:
        given: the values by their keys
        declared: the type of each key; others are not checked
        where: what comes before a key in the message: ``configs/a.yaml: model.``
        strict: whether a value must have the type as it is

    Raises:
        UserError: a value of the wrong type; names the key and what it may be.
    """
    for key, value in given.items():
        kind = declared.get(key)
        if kind is None or (isinstance(value, str) and "${" in value and not strict):
            continue
        if value is None and not may_be_none(kind):
            raise UserError(f"{where}{key} is empty, but must be {type_in_words(kind)}")
        if value is not None and not (
            is_exactly(value, kind) if strict else converts_to(value, kind)
        ):
            hint = "" if strict else misread_by_yaml(value, without_optional(kind))
            shown = reprlib.repr(value)
            raise UserError(f"{where}{key} is {shown}, but must be {type_in_words(kind)}{hint}")


def misread_by_yaml(value: Any, kind: Any) -> str:
    """What YAML may have misread, to end a message with."""
    if kind is str and isinstance(value, (bool, float)):
        return " (YAML reads words such as no, on and 1e5 as something else: quote them)"
    if kind is int and isinstance(value, float) and value.is_integer():
        return f": write {value:.0f}"
    return ""


def may_be_none(kind: Any) -> bool:
    """Whether None is a value of a type."""
    return kind is Any or type(None) in typing.get_args(kind)


def without_optional(kind: Any) -> Any:
    """``X`` of ``Optional[X]``."""
    if typing.get_origin(kind) is Union:
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        return kinds[0] if len(kinds) == 1 else Any
    return kind


def choices_of(kind: Any) -> Optional[List[str]]:
    """The names in an enumeration, or in a ``Literal``."""
    if typing.get_origin(kind) is Literal:
        return [str(choice) for choice in typing.get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [str(choice.value) for choice in kind]
    return None


def converts_to(value: Any, kind: Any) -> bool:
    """Whether a value, as read from YAML, has a type."""
    kind = without_optional(kind)
    choices = choices_of(kind)
    if choices is not None:
        return isinstance(value, enum.Enum) or str(value) in choices
    if typing.get_origin(kind) in (list, List):
        item = (typing.get_args(kind) or (Any,))[0]
        return isinstance(value, (list, tuple)) and all(converts_to(part, item) for part in value)
    if kind is bool:
        return isinstance(value, bool) or value in (0, 1) or str(value).lower() in TRUTHS
    if kind is str:
        return isinstance(value, (str, int)) and not isinstance(value, bool)
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, (int, str, kind)):
            return False
        try:
            return not math.isnan(kind(value))  # no option accepts NaN
        except (ValueError, OverflowError):
            return False
    return True


def is_exactly(value: Any, kind: Any) -> bool:
    """Whether a value has a type, without any conversion: True is no number, nor is numpy's 5."""
    kind = without_optional(kind)
    choices = choices_of(kind)
    if choices is not None:
        return isinstance(value, str) and value in choices
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, typing.get_origin(kind) or kind)


def type_in_words(kind: Any) -> str:
    """A type in words."""
    bare = without_optional(kind)
    choices = choices_of(bare)
    if choices is not None:
        words = f"one of {', '.join(choices)}"
    elif typing.get_origin(bare) in (list, List):
        whole = typing.get_args(bare)[:1] == (int,)
        words = "a list of whole numbers, such as [1]" if whole else "a list, such as [0.001]"
    else:
        known = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        known[dict] = "a table"
        words = known.get(bare, "given")
    return words + (" or null" if may_be_none(kind) else "")


# ---- what fairseq cannot build -------------------------------------------------------------------


@contextlib.contextmanager
def named_by_section(config: Any) -> Iterator[None]:
    """While the block runs, fairseq's failure to build a component becomes one sentence.

    Other errors are left as they are.

    Raises:
        ConfigError: names the section and quotes fairseq's message.
    """
    from transformer_plugin.config import ConfigError

    try:
        yield
    except Exception as error:
        reason = build_error(error, config)
        if reason is None:
            raise
        raise ConfigError(reason) from error


def build_error(error: Exception, config: Any) -> Optional[str]:
    """The message for an error; None unless fairseq's own code raised it in building a section."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(next((p for p in PACKAGES if p in Path(f.filename).parts), ""), f) for f in frames]
    known = [package for package, _ in places if package]
    if not known or not known[-1].startswith("fairseq"):
        return None
    built = [
        "distributed_training" if frame.name == "__init__" else BUILDERS[frame.name]
        for package, frame in places
        if frame.name in BUILDERS
        or (package == "fairseq" and frame.name == "__init__" and is_trainer(frame.filename))
    ]
    if not built:
        return None
    section = config.get(built[-1])
    name = section.get("_name") if hasattr(section, "get") else getattr(section, "_name", None)
    lines = str(error).strip().splitlines() or ["no reason given"]
    what = f"'{name}'" if name else "the component"
    return (
        f"{built[-1]}: fairseq cannot build {what} with these options "
        f"({type(error).__name__}: {lines[0][:200]}): correct them"
    )


def is_trainer(path: str) -> bool:
    """Whether a file is that of fairseq's Trainer."""
    return Path(path).name == "trainer.py"
