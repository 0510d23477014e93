"""Records from JSON and YAML tables, with the type of each value checked. Needs no torch.

A file may be edited by hand: ``"false"`` in quotes is text, and true in Python.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: names of types for messages, in singular and plural
KINDS = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "text"),
    list: ("a list", "lists"),
    dict: ("a table", "tables"),
}


def types_in(hint: Any) -> list[Any]:
    """List the types that a hint allows, except None.

    For ``str | list[str] | None`` these are ``str`` and ``list[str]``.
    """
    is_union = get_origin(hint) in (Union, UnionType)
    return [kind for kind in get_args(hint) if kind is not type(None)] if is_union else [hint]


def is_of_type(value: object, hint: Any) -> bool:
    """Return whether a value is of a type; a whole number is also a number, ``true`` is not."""
    if value is None and hint is not Any:
        return type(None) in get_args(hint)
    return any(is_of_kind(value, kind) for kind in types_in(hint))


def is_of_kind(value: object, kind: Any) -> bool:
    """Return whether a value, with its items, is of a type that is not a union."""
    if kind is Any:
        return True
    plain = get_origin(kind) or kind
    if is_dataclass(plain):
        return isinstance(value, Mapping)
    if plain is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool) != (kind is bool):
        return False
    if kind is float and isinstance(value, int):
        return True
    if not isinstance(value, plain):
        return False
    contents = get_args(kind)
    if isinstance(value, list) and contents:
        return all(is_of_type(item, contents[0]) for item in value)
    if isinstance(value, dict) and contents:
        keys_are = all(is_of_type(key, contents[0]) for key in value)
        return keys_are and all(is_of_type(item, contents[1]) for item in value.values())
    return True


def describe_type(hint: Any, several: bool = False) -> str:
    """Describe the values of a type for a message: ``text or a list of text``.

    Args:
        hint: the type
        several: whether to use the plural: ``lists of text``
    """
    words = []
    for kind in types_in(hint):
        plain = get_origin(kind) or kind
        contents = get_args(kind)
        if is_dataclass(plain):
            words.append(KINDS[dict][several])
        elif plain is Literal:
            words += [repr(choice) for choice in contents]
        elif contents and contents[-1] is not Any:
            words.append(f"{KINDS[plain][several]} of {describe_type(contents[-1], several=True)}")
        else:
            words.append(KINDS[plain][several])
    return " or ".join(words)


def check_types(table: Mapping[str, object], hints: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for a value that is not of the type of its key.

    Args:
        table: the values
        hints: the type of each key; other keys are not checked
        where: source of the table, for the message
    """
    for key, hint in hints.items():
        if key in table and not is_of_type(table[key], hint):
            raise ValueError(
                f"{where}: {key} must be {describe_type(hint)}, not {shorten(table[key])}"
            )


def shorten(value: object) -> str:
    """Return a value as text for a message, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_record(kind: type[T], table: object, where: str, ignore_unknown: bool = False) -> T:
    """Read a table as a dataclass; its fields may be dataclasses themselves.

    Args:
        kind: the dataclass; a field without a default is a required key. If a key differs from the
            name of its field, the field's metadata has it as ``key``
        table: the values
        where: source of the table, for the message
        ignore_unknown: whether to ignore keys that are not fields

    Raises:
        ValueError: it is not a table, a key is unknown or missing, or a value is of another type.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table, not {shorten(table)}")
    items = {key_of(item): item for item in fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in items and not ignore_unknown:
            raise ValueError(
                f"{where} has {key!r}, which this version does not know: correct the name, or use "
                "the version that wrote it"
            )
    for key, item in items.items():
        needed = item.default is MISSING and item.default_factory is MISSING
        if needed and key not in table:
            raise ValueError(f"{where} has no {key!r}")
    types = get_type_hints(kind)
    hints = {key: types[item.name] for key, item in items.items()}
    check_types(table, hints, where)
    values = {}
    for key, item in items.items():
        if key in table:
            values[item.name] = read_value(
                hints[key], table[key], f"{where}: {key}", ignore_unknown
            )
    return kind(**values)


def key_of(item: "Field[Any]") -> str:
    """Return the key of a dataclass's field: the ``key`` in its metadata, or its name."""
    key: str = item.metadata.get("key", item.name)
    return key


def read_value(hint: Any, value: Any, where: str, ignore_unknown: bool) -> Any:
    """Read a value of the hint's type; a table becomes the dataclass in the hint."""
    record = next((kind for kind in types_in(hint) if is_dataclass(kind)), None)
    if record is None or value is None:
        return value
    return read_record(record, value, where, ignore_unknown)  # type: ignore[arg-type, type-var]
