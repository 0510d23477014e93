"""Checks that each value in a table has the type that is declared for it.

For an experiment's YAML, what omegaconf would convert is accepted: "4" is a whole number. Elsewhere
(``strict``: JSON, and options in Python) nothing is converted.

omegaconf checks too, but reads 0.5 as a whole number (0) and ``no`` as the text "False", and its
message is "Value 'abc' of type 'str' could not be converted to Integer".
"""

import enum
import math
import reprlib
import typing
from typing import Any, Dict, List, Literal, Mapping, Optional, Union

from vaswani.common.errors import UserError

#: as omegaconf reads them
_TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "n")


def check_types(
    given: Mapping[str, Any], declared: Dict[str, Any], where: str, strict: bool = False
) -> None:
    """Check a section's values.

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
        if value is None and not _may_be_none(kind):
            raise UserError(f"{where}{key} is empty, but must be {_words(kind)}")
        if value is not None and not (_is(value, kind) if strict else _fits(value, kind)):
            hint = "" if strict else _hint(value, _bare(kind))
            shown = reprlib.repr(value)
            raise UserError(f"{where}{key} is {shown}, but must be {_words(kind)}{hint}")


def _hint(value: Any, kind: Any) -> str:
    """What YAML may have misread, to end a message with."""
    if kind is str and isinstance(value, (bool, float)):
        return " (YAML reads words such as no, on and 1e5 as something else: quote them)"
    if kind is int and isinstance(value, float) and value.is_integer():
        return f": write {value:.0f}"
    return ""


def _may_be_none(kind: Any) -> bool:
    return kind is Any or type(None) in typing.get_args(kind)


def _bare(kind: Any) -> Any:
    """``X`` of ``Optional[X]``."""
    if typing.get_origin(kind) is Union:
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        return kinds[0] if len(kinds) == 1 else Any
    return kind


def _choices(kind: Any) -> Optional[List[str]]:
    """The names in an enumeration, or in a ``Literal``."""
    if typing.get_origin(kind) is Literal:
        return [str(choice) for choice in typing.get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [str(choice.value) for choice in kind]
    return None


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value, as read from YAML, has a type."""
    kind = _bare(kind)
    choices = _choices(kind)
    if choices is not None:
        return isinstance(value, enum.Enum) or str(value) in choices
    if typing.get_origin(kind) in (list, List):
        item = (typing.get_args(kind) or (Any,))[0]
        return isinstance(value, (list, tuple)) and all(_fits(part, item) for part in value)
    if kind is bool:
        return isinstance(value, bool) or value in (0, 1) or str(value).lower() in _TRUTHS
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


def _is(value: Any, kind: Any) -> bool:
    """Whether a value has a type, without any conversion: True is no number, nor is numpy's 5."""
    kind = _bare(kind)
    choices = _choices(kind)
    if choices is not None:
        return isinstance(value, str) and value in choices
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, typing.get_origin(kind) or kind)


def _words(kind: Any) -> str:
    """A type in words."""
    bare = _bare(kind)
    choices = _choices(bare)
    if choices is not None:
        found = f"one of {', '.join(choices)}"
    elif typing.get_origin(bare) in (list, List):
        whole = typing.get_args(bare)[:1] == (int,)
        found = "a list of whole numbers, such as [1]" if whole else "a list, such as [0.001]"
    else:
        known = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        known[dict] = "a table"
        found = known.get(bare, "given")
    return found + (" or null" if _may_be_none(kind) else "")
