"""The checks: each has an id, a section of the paper, two sentences and a function.

To add one, write a function in the file of its subject, and decorate it with :func:`check_of` (or
with ``check_of_layers``, ``check_of_embeddings`` or ``check_of_wiring``, which call it).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .findings import Finding
from .subject import AdapterError

Look = Callable[[Any], Finding]

NOT_COVERED = (
    "formulas of layers after the first",
    "initial weights",
    "data and batches",
    "the training itself",
    "averaged checkpoints",
)
"""aspects of a model that no check covers"""


@dataclass(frozen=True)
class Check:
    """One check of one side of a model.

    Args:
        id: its name in tests, JSON, ``--select``, ``--explain`` and ``ACCEPT``; never changed
        section: of the paper
        passes: the sentence when the model agrees with the paper
        fails: the sentence when it does not
        look: the function of the check
        needs: functions of the file that the check calls
        side: ``encoder`` or ``decoder``, ``source`` or ``target``, where a check has both
        explains: ids of checks that also fail where this one fails, for the same cause
    """

    id: str
    section: str
    passes: str
    fails: str
    look: Look
    needs: tuple[str, ...] = ()
    side: str = ""
    explains: tuple[str, ...] = ()


CHECKS: list[Check] = []


def check_of(
    check_id: str,
    section: str,
    *,
    passes: str,
    fails: str,
    needs: tuple[str, ...] = (),
    side: str = "",
    explains: tuple[str, ...] = (),
) -> Callable[[Any], Any]:
    """Register the decorated function as a check; arguments as in :class:`Check`."""

    def add(look: Look) -> Look:
        CHECKS.append(Check(check_id, section, passes, fails, look, needs, side, explains))
        return look

    return add


ADAPTER = Check(
    "adapter",
    "file",
    passes="Every function of the file returns what it should.",
    fails="A function of the file fails.",
    look=lambda subject: Finding(),
)
"""Not in :data:`CHECKS`: it fails where a function of the file raises or returns a wrong value."""


def ids() -> list[str]:
    """Return the id of every check, in the order of the paper."""
    return list(dict.fromkeys(each.id for each in in_order(CHECKS)))


def in_order(checks: Iterable[Check]) -> list[Check]:
    """Sort checks by section of the paper; Table 3 comes last."""
    return sorted(checks, key=section_order)


def section_order(check: Check) -> str:
    """Return a key that sorts checks by section: the file first, Table 3 last."""
    return check.section.replace("file", "0").replace("Table", "7")


def select(chosen: Iterable[str]) -> list[Check]:
    """Return the checks with these ids or sections; ``3.2`` includes 3.2.1 to 3.2.3.

    Raises:
        AdapterError: there is no such check.
    """
    checks = []
    for name in chosen:
        named = [each for each in CHECKS if each.id == name or is_in(each.section, name)]
        if not named:
            raise AdapterError(
                f"--select {name}: there is no check or section of this name: "
                "'vaswani check FILE.py --verbose' lists all ids"
            )
        checks += named
    return [each for each in CHECKS if each in checks]


def is_in(section: str, chosen: str) -> bool:
    """Return whether a section is the chosen one or a part of it."""
    return section == chosen or section.startswith(f"{chosen}.")
