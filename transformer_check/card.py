"""The card: what each check found, by section of the paper."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PAPER = "as in the paper"
ON_PURPOSE = "differs, as in many models on purpose"
DIFFERS = "differs"
ERROR = "error"
NOT_CHECKED = "not checked"

STATUSES = [PAPER, ON_PURPOSE, DIFFERS, ERROR, NOT_CHECKED]


@dataclass(frozen=True)
class Result:
    """What one check found; the three sentences say more if it is not as in the paper."""

    status: str = PAPER
    expected: str = ""
    seen: str = ""
    meaning: str = ""


def not_checked(what_to_do: str) -> Result:
    """Nothing can be said, and what would change that."""
    return Result(NOT_CHECKED, meaning=what_to_do)


@dataclass(frozen=True)
class Check:
    """One check: a section of the paper, what is to be true, and the function that looks."""

    section: str
    title: str
    look: Callable[[Any], Result]
    needs: tuple[str, ...] = ()
    """functions of the file without which there is nothing to look at"""


CHECKS: list[Check] = []

NEVER = (
    "formulas of layers after the first",
    "initial weights",
    "data and batches",
    "the training itself",
    "averaged checkpoints",
)
"""what no check looks at"""


def check_of(section: str, title: str, *needs: str) -> Callable[[Any], Any]:
    """Put the function below into :data:`CHECKS`."""

    def add(look: Callable[[Any], Result]) -> Callable[[Any], Result]:
        CHECKS.append(Check(section, title, look, needs))
        return look

    return add


class Card:
    """All checks of one implementation with their results, in the order of the paper."""

    def __init__(self, name: str, results: list[tuple[Check, Result]]) -> None:
        self.name = name
        self.results = sorted(results, key=lambda pair: pair[0].section.replace("Table", "7"))

    def __getitem__(self, title: str) -> Result:
        return next(result for check, result in self.results if check.title == title)

    def count(self, status: str) -> int:
        """How many checks have this status."""
        return sum(result.status == status for _, result in self.results)

    def titles(self, *statuses: str) -> list[str]:
        """The checks with one of these statuses."""
        return [check.title for check, result in self.results if result.status in statuses]

    def summary(self) -> str:
        """One line: how many checks, and how many of each status."""
        counts = [(self.count(status), status) for status in STATUSES]
        return f"{len(self.results)} checks: " + "; ".join(f"{n} {what}" for n, what in counts if n)

    def text(self) -> str:
        """For people: what is as in the paper in a section on one line, then each difference."""
        lines = [f"{self.name}: {self.summary()}"]
        for section in dict.fromkeys(check.section for check, _ in self.results):
            here = [pair for pair in self.results if pair[0].section == section]
            for reason in dict.fromkeys(result.meaning for _, result in here):
                alike = [c.title for c, r in here if r.meaning == reason and not r.expected]
                if alike:
                    status = f"{NOT_CHECKED} ({reason})" if reason else PAPER
                    lines.append(f"{section:<8}{status}: {'; '.join(alike)}")
            for check, result in here:
                if result.expected:
                    status = "ERROR" if result.status == ERROR else result.status
                    lines += [
                        f"{section:<8}{status}: {check.title}",
                        f"{'':10}expected {result.expected}; seen {result.seen}",
                        f"{'':10}{result.meaning}",
                    ]
        lines.append(f"not looked at: {'; '.join(self.not_looked_at())}")
        return "\n".join(lines)

    def not_looked_at(self) -> list[str]:
        """By section, how many checks had nothing to look at; and what no check looks at."""
        unchecked = [
            check.section for check, result in self.results if result.status == NOT_CHECKED
        ]
        parts = []
        for section in dict.fromkeys(unchecked):
            every = sum(check.section == section for check, _ in self.results)
            parts.append(f"{section} ({unchecked.count(section)} of {every} checks)")
        return [*parts, *NEVER]

    def json(self) -> str:
        """For machines."""
        checks = [
            {"section": check.section, "check": check.title, **asdict(result)}
            for check, result in self.results
        ]
        counts = {status: self.count(status) for status in STATUSES}
        card = {"name": self.name, "counts": counts, "checks": checks}
        return json.dumps(card | {"not_looked_at": self.not_looked_at()}, indent=1)
