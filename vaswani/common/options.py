"""A verb's options as a dataclass, and the command-line parser built from it.

    @dataclass(frozen=True, kw_only=True)
    class Options(Checked):
        run: str = argument("RUN")
        subset: str = option("test", help="subset whose translations are scored (default: test)")
        bpe: Optional[int] = option(metavar="N", help="merges of the joint BPE", least=1)
        dry_run: bool = option(False, help="print the commands without running them")

Name, type and default of an option are those of its field, so one verb calls another with
``Options(run="mine")``, not with a command line. So are the limits of a number, which are checked
in either case if the dataclass is derived from :class:`Checked`. (fairseq's and hydra's parser
builders have no positional arguments, and take seconds to import: too long for ``--help``.)
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, field, fields
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from vaswani.common.errors import UserError
from vaswani.common.files import Table

T = TypeVar("T")
#: the metavar of arguments that set keys of a configuration
ASSIGNMENT = "key=value"


def option(
    default: object = None,
    help: str | None = None,
    *,
    metavar: str | None = None,
    choices: Sequence[str] | None = None,
    flag: str | None = None,
    required: bool = False,
    least: float | None = None,
    above: float | None = None,
) -> Any:
    """Return a field that is an option. A ``bool`` is a switch; an ``Optional[bool]`` also has a
    --no-….

    Given twice, an option is refused, unless it is a list: that takes every value, in order.

    Args:
        flag: the option's name if it cannot be the field's, such as ``--from``
        required: whether the option must be given; it then has no default
        least: the lowest number
        above: the number must be greater
    """
    shown = {"help": help, "metavar": metavar, "choices": choices, "flag": flag}
    metadata = {**shown, "least": least, "above": above}
    if required:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def argument(
    metavar: str | None = None,
    help: str | None = None,
    *,
    default: object = MISSING,
    any_name: bool = False,
) -> Any:
    """Return a field that is a positional argument; one with a default may be left out.

    A list takes any number of values; without a default, at least one. Its default is always [].

    Args:
        any_name: whether it is the name of text to read, and may hold any bytes
    """
    metadata = {"help": help, "metavar": metavar, "positional": True, "any_name": any_name}
    if isinstance(default, list):
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag_of(item: "Field[Any]") -> str:
    """Return an option's flag: ``--test-set``."""
    return item.metadata.get("flag") or f"--{item.name.replace('_', '-')}"


# ---- what is checked when options are read -----------------------------------------------------


def check_range(
    name: str, value: object, least: float | None = None, above: float | None = None
) -> None:
    """Raise UserError unless an option's value is a finite number within its limits.

    NaN, which is neither below nor above anything, is refused. (The plugin's options have a
    function like this in ``transformer_plugin/checks.py``, whose import takes seconds.)

    Args:
        name: of the option, for the message
        value: what was given
        least: the lowest number
        above: the number must be greater
    """
    if isinstance(value, int) and abs(value) > sys.maxsize:  # which counts no list, nor lines
        raise UserError(f"{name} must be at most {sys.maxsize:,}, not {value}")
    if not isinstance(value, Real) or not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, not {value}")
    if least is not None and value < least:
        raise UserError(f"{name} must be at least {least:g}, not {value}")
    if above is not None and value <= above:
        raise UserError(f"{name} must be above {above:g}, not {value}")


class Checked:
    """A dataclass of options whose numbers are checked when one is made."""

    def __post_init__(self) -> None:
        """Raise UserError, naming the option, for a number outside its limits."""
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            limits = item.metadata
            if isinstance(value, Real):
                check_range(flag_of(item), value, limits.get("least"), limits.get("above"))


def check_encoding(options: Any) -> None:
    """Raise UserError for an argument that is not UTF-8.

    Python reads the other bytes of a command line as surrogates, which no file of text can hold
    (a checkpoint, a configuration, a model card). Only names of text to read may have them.
    """
    for item in fields(options):
        value = getattr(options, item.name)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not item.metadata.get("any_name") and not is_utf8(word):
                shown = word.encode(errors="surrogateescape").decode(errors="backslashreplace")
                raise UserError(
                    f"the argument '{shown}' is not UTF-8: rename the file or folder, or write the "
                    "text in UTF-8"
                )


def is_utf8(word: str) -> bool:
    """Return whether a word of the command line was UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def last_of_each(assignments: Sequence[str]) -> list[str]:
    """Keep the last ``key=value`` word for each key, in order."""
    last = {word.partition("=")[0]: word for word in assignments}
    return [word for word in assignments if last[word.partition("=")[0]] == word]


# ---- the parser -------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add a dataclass's fields to a parser: its own, then those shared by several verbs."""
    hints = get_type_hints(kind)
    for item in sorted(fields(kind), key=lambda item: item.name not in kind.__annotations__):
        name, how = how_to_add(item, hints[item.name])
        parser.add_argument(name, **how)


def how_to_add(item: "Field[Any]", hint: Any) -> tuple[str, Table]:
    """Return the arguments of ``ArgumentParser.add_argument`` for a field with this type."""
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
        how["action"] = EitherOnce if optional else SwitchOnce
    elif get_origin(hint) is list:
        how.update(action="append", required=needed)
    else:
        how.update(action=StoreOnce, required=needed)
        if hint is not str:
            how["type"] = hint
    return flag_of(item), how


class Once(argparse.Action):
    """An action that refuses an option's second value: it would silently replace the first."""

    times = 0

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value; raise argparse's error for a second one."""
        self.times += 1
        if self.times > 1:
            raise argparse.ArgumentError(self, "given twice: give it once")
        super().__call__(parser, namespace, values, option_string)


class StoreOnce(Once, argparse._StoreAction):
    """A value, once."""


class SwitchOnce(Once, argparse._StoreTrueAction):
    """A switch, once."""


class EitherOnce(Once, argparse.BooleanOptionalAction):
    """``--name`` or ``--no-name``, once."""


def check_assignments(words: Sequence[str]) -> None:
    """Raise UserError if a ``key=value`` repeats a key: only the last one would count."""
    keys: set[str] = set()
    for word in words:
        key, equals, _ = word.partition("=")
        if equals and key in keys:
            raise UserError(f"{key} is given twice: give it once")
        keys.add(key)


def parse(parser: argparse.ArgumentParser, kind: type[T], words: Sequence[str]) -> T:
    """Return the options given on a command line; as in argparse, an error exits with 2.

    Args:
        parser: an empty parser
        kind: the dataclass
        words: the command line, without program and verb
    """
    add_options(parser, kind)
    # intermixed: 'CONFIG --gpus 2 key=value' reads as well as 'CONFIG key=value --gpus 2'
    values = vars(parser.parse_intermixed_args(words))
    for item in fields(kind):  # type: ignore[arg-type]
        if item.metadata.get("metavar") == ASSIGNMENT:
            check_assignments(values[item.name])
    return kind(**values)
