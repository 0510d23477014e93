"""``--explain ID``: the equation, correct code, and the place in this project's code."""

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from .registry import ADAPTER, CHECKS, Check
from .subject import AdapterError


class Explanation(NamedTuple):
    """A section of ``explanations.md``."""

    statement: str
    code: str
    place: str
    """of an object of this project, with its module"""


def explanations() -> dict[str, Explanation]:
    """Return the explanation of every check, by id."""
    text = Path(__file__).with_name("explanations.md").read_text(encoding="utf-8")
    sections = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        check_id, _, rest = section.partition("\n")
        statement, code, place = re.split(r"\n\n(?=    )|\n\n(?=\S+\s*\Z)", rest.strip())
        sections[check_id] = Explanation(statement, textwrap.dedent(code), place.strip())
    return sections


def object_at(place: str) -> Any:
    """Return the object with a dotted name, such as ``package.module.Class.method``.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    parts = place.split(".")
    for number in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:number]))
        except ModuleNotFoundError:
            continue
        for name in parts[number:]:
            value = getattr(value, name)
        return value
    raise ModuleNotFoundError(place)


def checks_with(check_id: str) -> list[Check]:
    """Return the check with an id, once for each side.

    Raises:
        AdapterError: there is no check with this id.
    """
    checks = [each for each in (*CHECKS, ADAPTER) if each.id == check_id]
    if not checks:
        raise AdapterError(
            f"--explain {check_id}: there is no check with this id: "
            "'vaswani check FILE.py --verbose' lists all ids"
        )
    return checks


def explain(check_id: str) -> str:
    """Return the explanation of a check as text.

    Raises:
        AdapterError: there is no check with this id.
    """
    checks = checks_with(check_id)
    statement, code, place = explanations()[check_id]
    source = object_at(place)
    file = Path(inspect.getsourcefile(source) or "")
    line = inspect.getsourcelines(source)[1]
    name = file.resolve().relative_to(root()).as_posix()
    sides = " and ".join(each.side for each in checks if each.side)
    return "\n".join(
        [
            f"{check_id} ({checks[0].section}{', ' + sides if sides else ''})",
            f"  passes  {checks[0].passes}",
            f"  fails   {checks[0].fails}",
            "",
            statement,
            "",
            *(f"    {line}" for line in code.splitlines()),
            "",
            f"In this project: {name}:{line}, {source.__qualname__}",
        ]
    )


def root() -> Path:
    """Return the folder that contains this project's packages."""
    return Path(__file__).resolve().parents[1]
