"""Whether an experiment can be trained: its values, the machine. Types of a file's values.

Each failure is one sentence that names the option. What fairseq's components are given is checked
by them.
"""

import math
import reprlib
import typing
from pathlib import Path
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union

from vaswani.common.errors import UserError
from vaswani.experiment.option_rules import Rule


def check_config(config: Any) -> None:
    """Check the values of a complete configuration.

    Raises:
        UserError, ConfigError: a value that fairseq would fail on later, hang on, or misread.
    """
    for check in (check_numbers, check_batch, check_end, check_components):
        check(config)


# ---- values together, and the machine ------------------------------------------------------------


def check_numbers(config: Any) -> None:
    """Raises UserError for a NaN: as a limit it would never be reached."""
    for section, given in config.items():
        for key, value in given.items() if hasattr(given, "items") else ():
            for number in value if isinstance(value, Sequence) else [value]:
                if isinstance(number, float) and math.isnan(number):
                    raise UserError(f"{section}.{key} is {value}, but must be a number")


def check_batch(config: Any) -> None:
    """Raises UserError if nothing limits the batch size."""
    if (config.dataset.max_tokens or 0) < 1 and (config.dataset.batch_size or 0) < 1:
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
    """
    from transformer_plugin import checks as plugin
    from transformer_plugin.compat.scope import is_plugin_model

    if is_plugin_model(config.model._name):
        plugin.check_model_config(config.model)
        plugin.check_precision(config.common, config.model.get("precision"))
    if config.criterion._name == "vaswani_label_smoothed_cross_entropy":
        plugin.check_label_smoothing(config.criterion.label_smoothing)
    if config.lr_scheduler._name == "vaswani_inverse_sqrt":
        plugin.check_schedule_config(config.lr_scheduler)


def check_here(config: Any) -> None:
    """Raises UserError if the checkpoint to start from does not exist."""
    for key in ("finetune_from_model", "continue_once"):
        path = config.checkpoint.get(key)
        if path and not Path(path).is_file():
            raise UserError(f"checkpoint.{key}: there is no checkpoint {path}")


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


def check_types(given: Mapping[str, Any], declared: Dict[str, Any], where: str) -> None:
    """Check that values, of JSON or of options in Python, have the types declared for them.

    Args:
        given: the values by their keys
        declared: the type of each key; others are not checked
        where: what comes before a key in the message: ``model/config.json: text.``

    Raises:
        UserError: a value of the wrong type; names the key and what it may be.
    """
    for key, value in given.items():
        kind = declared.get(key)
        if kind is None:
            continue
        if value is None and not may_be_none(kind):
            raise UserError(f"{where}{key} is empty, but must be {type_in_words(kind)}")
        if value is not None and not is_exactly(value, kind):
            shown = reprlib.repr(value)
            raise UserError(f"{where}{key} is {shown}, but must be {type_in_words(kind)}")


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
    """The choices of a ``Literal``."""
    if typing.get_origin(kind) is Literal:
        return [str(choice) for choice in typing.get_args(kind)]
    return None


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
    else:
        known = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        known[dict] = "a table"
        words = known.get(bare, "given")
    return words + (" or null" if may_be_none(kind) else "")
