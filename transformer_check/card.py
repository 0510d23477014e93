"""The card: the findings of all checks, with one problem for each cause."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .findings import DIFFERENCE, ERROR, FAILED, NOT_RUN, PASSED, STATUSES, VARIANT, Finding
from .registry import NOT_COVERED, Check, section_order

SEVERITY = (ERROR, DIFFERENCE, VARIANT)
"""from the worst"""


class Result(NamedTuple):
    """A check and its finding."""

    check: Check
    finding: Finding

    @property
    def sentence(self) -> str:
        """The finding's own sentence, or the check's for this result."""
        if self.finding.says:
            return self.finding.says
        return self.check.fails if self.finding.failed else self.check.passes


def name_with_side(result: Result) -> str:
    """Return the id of a result's check, with its side in brackets if it has one."""
    return f"{result.check.id} ({result.check.side})" if result.check.side else result.check.id


@dataclass
class Problem:
    """A cause: the results of one check that failed, and its consequences.

    Args:
        results: of the check, one for each side with the same sentence
        consequences: results of other checks that failed for this cause
    """

    results: list[Result]
    consequences: list[Result] = field(default_factory=list)

    @property
    def check(self) -> Check:
        """The check that failed."""
        return self.results[0].check

    @property
    def status(self) -> str:
        """The worst status of the results; an error, if a consequence is one."""
        statuses = {result.finding.status for result in self.results}
        if any(result.finding.status == ERROR for result in self.consequences):
            return ERROR
        return next(status for status in SEVERITY if status in statuses)

    @property
    def sentence(self) -> str:
        """The sentence of the results, with their sides."""
        sides = " and ".join(result.check.side for result in self.results if result.check.side)
        sentence = self.results[0].sentence
        return f"{sentence.removesuffix('.')} ({sides})." if sides else sentence


class Card:
    """The results of one implementation, in the order of the paper.

    Args:
        name: of the file
        results: of each check
        accepted: ids of checks whose differences are intended (``ACCEPT`` in the file)
        places: function of the file → where it is defined
        seconds: how long the checks took
    """

    def __init__(
        self,
        name: str,
        results: Iterable[Result],
        accepted: Iterable[str] = (),
        places: dict[str, str] | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.results = sorted(results, key=lambda result: section_order(result.check))
        self.accepted = frozenset(accepted)
        self.places = places or {}
        self.seconds = seconds
        self.problems = find_problems(self.results)

    def __getitem__(self, check_id: str) -> Finding:
        """Return the worst finding of a check over its sides.

        Raises:
            KeyError: there is no check with this id.
        """
        own = [result.finding for result in self.results if result.check.id == check_id]
        if not own:
            raise KeyError(f"there is no check with the id {check_id}")
        order = (*SEVERITY, PASSED, NOT_RUN)
        return min(own, key=lambda finding: order.index(finding.status))

    def of_side(self, check_id: str, side: str) -> Finding:
        """Return the finding of one side of a check.

        Raises:
            KeyError: the check has no such side.
        """
        for check, finding in self.results:
            if (check.id, check.side) == (check_id, side):
                return finding
        raise KeyError(f"there is no check with the id {check_id} and the side {side}")

    def count(self, status: str) -> int:
        """Count the results with this status; each side of a check counts."""
        return sum(result.finding.status == status for result in self.results)

    def ids(self, *statuses: str) -> list[str]:
        """Return the ids of checks with a side of one of these statuses."""
        own = [result.check.id for result in self.results if result.finding.status in statuses]
        return list(dict.fromkeys(own))

    def problems_of(self, status: str) -> list[Problem]:
        """Return the problems of this status that the file does not accept."""
        return [p for p in self.problems if p.status == status and not self.accepts(p)]

    def accepts(self, problem: Problem) -> bool:
        """Return whether the file accepts a problem; an error is never accepted."""
        return problem.status != ERROR and problem.check.id in self.accepted

    @property
    def has_errors(self) -> bool:
        """Whether a check found an error."""
        return self.count(ERROR) > 0

    @property
    def differs(self) -> bool:
        """Whether there is a problem that the file does not accept."""
        return any(not self.accepts(problem) for problem in self.problems)

    def text(self, verbose: bool = False) -> str:
        """Return the card as text; with ``verbose``, every check is listed."""
        from .layout import lines_of  # it describes cards, so it imports this module

        return "\n".join(lines_of(self, verbose))

    def where(self, result: Result) -> list[str]:
        """Return the functions of the file and the modules that a result concerns."""
        places = [self.places[name] for name in result.check.needs if name in self.places]
        return [*places, *result.finding.modules]

    def json(self) -> str:
        """Return the card as JSON, for programs."""
        causes = {}
        for problem in self.problems:
            for consequence in problem.consequences:
                causes[consequence.check.id, consequence.check.side] = problem.check.id
        checks = []
        for result in self.results:
            check, finding = result
            checks.append(
                {
                    "id": check.id,
                    "section": check.section,
                    "side": check.side,
                    "check": result.sentence,
                    "status": finding.status,
                    "found": finding.found,
                    "expected": finding.expected,
                    "where": self.where(result),
                    "fix": finding.fix,
                    "reason": finding.reason,
                    "needs": list(check.needs),
                    "cause": causes.get((check.id, check.side), ""),
                    "accepted": finding.failed and check.id in self.accepted,
                }
            )
        counts = {status: self.count(status) for status in STATUSES}
        card = {"name": self.name, "counts": counts, "checks": checks}
        return json.dumps(card | {"not_covered": list(NOT_COVERED)}, indent=1)


def roots_of(check_id: str, causes: dict[str, str]) -> list[str]:
    """Return a check's id, then the id of the check that explains it, and so on to the root."""
    chain = [check_id]
    while chain[-1] in causes:
        chain.append(causes[chain[-1]])
    return chain


def find_problems(results: list[Result]) -> list[Problem]:
    """Group the results that failed by cause, the worst problems first.

    A result is a consequence if a check that failed explains it. Its cause is the end of this chain
    of explanations: the check that no other explains.
    """
    failed = [result for result in results if result.finding.status in FAILED]
    causes: dict[str, str] = {}  # id → id of a check that explains it
    for result in failed:
        for explained in (*result.check.explains, *result.finding.explains):
            if explained not in roots_of(result.check.id, causes):  # two may explain each other
                causes.setdefault(explained, result.check.id)
    problems: list[Problem] = []
    for result in failed:
        if result.check.id in causes:
            continue
        own = [p for p in problems if p.check.id == result.check.id]
        same = [p for p in own if p.results[0].sentence == result.sentence]
        if same:
            same[0].results.append(result)
        else:
            problems.append(Problem([result]))
    for result in failed:
        if result.check.id in causes:
            root = causes[result.check.id]
            while root in causes:
                root = causes[root]
            problem = next(p for p in problems if p.check.id == root)
            problem.consequences.append(result)
    return sorted(problems, key=lambda problem: SEVERITY.index(problem.status))
