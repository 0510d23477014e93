"""A verb's options as a dataclass, and the command-line parser built from it.

    @dataclass(frozen=True, kw_only=True)
    class Options:
        run: str = argument("RUN")
        subset: str = option("test", help="which translations of the run (default: test)")
        bpe: Optional[int] = option(metavar="N", help="merges of the joint BPE")
        dry_run: bool = option(False, help="print the commands without running them")

Name, type and default of an option are those of its field, so one verb calls another with
``Options(run="mine")``, not with a command line. (fairseq's and hydra's parser builders have no
positional arguments, and take seconds to import: too long for ``--help``.)
"""

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, Field, field, fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def option(
    default: Any = None,
    help: str | None = None,
    *,
    metavar: str | None = None,
    choices: Sequence[str] | None = None,
    flag: str | None = None,
    required: bool = False,
) -> Any:
    """A field that is an option. A ``bool`` is a switch; an ``Optional[bool]`` also has a --no-….

    Args:
        flag: the option's name if it cannot be the field's, such as ``--from``
        required: whether the option must be given; it then has no default
    """
    given = {"help": help, "metavar": metavar, "choices": choices, "flag": flag}
    if required:
        return field(metadata=given)
    return field(default=default, metadata=given)


def argument(
    metavar: str | None = None,
    help: str | None = None,
    *,
    default: Any = MISSING,
) -> Any:
    """A field that is a positional argument; one with a default may be left out.

    A list takes any number of values; without a default, at least one. Its default is always [].
    """
    given = {"help": help, "metavar": metavar, "positional": True}
    if isinstance(default, list):
        return field(default_factory=list, metadata=given)
    return field(default=default, metadata=given)


def flag_of(item: "Field[Any]") -> str:
    """An option's flag: ``--test-set``."""
    return item.metadata["flag"] or f"--{item.name.replace('_', '-')}"


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add a dataclass's fields to a parser: its own, then those shared by several verbs."""
    hints = get_type_hints(kind)
    for item in sorted(fields(kind), key=lambda item: item.name not in kind.__annotations__):
        name, how = how_to_add(item, hints[item.name])
        parser.add_argument(name, **how)


def how_to_add(item: "Field[Any]", hint: Any) -> tuple[str, dict[str, Any]]:
    """The arguments of ``ArgumentParser.add_argument`` for a field with this type."""
    names = ("help", "metavar", "choices")
    how = {name: item.metadata[name] for name in names if item.metadata.get(name) is not None}
    default = None if item.default is MISSING else item.default
    needed = item.default is MISSING and item.default_factory is MISSING
    optional = get_origin(hint) in (Union, UnionType)
    if optional:
        hint = next(part for part in get_args(hint) if part is not type(None))
    if item.metadata.get("positional"):
        if get_origin(hint) is list:
            how["nargs"] = "+" if needed else "*"
        elif not needed:
            how["nargs"] = "?"
        return item.name, how
    how.update(dest=item.name, default=default)
    if hint is bool:
        how["action"] = argparse.BooleanOptionalAction if optional else "store_true"
    else:
        how["required"] = needed
        if hint is not str:
            how["type"] = hint
    return flag_of(item), how


def parse(parser: argparse.ArgumentParser, kind: type[T], words: Sequence[str]) -> T:
    """The options given on a command line; as in argparse, an error exits with 2.

    Args:
        parser: an empty parser
        kind: the dataclass
        words: the command line, without program and verb
    """
    add_options(parser, kind)
    # intermixed: 'CONFIG --gpus 2 key=value' reads as well as 'CONFIG key=value --gpus 2'
    return kind(**vars(parser.parse_intermixed_args(words)))
