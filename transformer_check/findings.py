"""The finding of a check: passed, a variant, a difference, an error, or not run."""

from dataclasses import dataclass
from typing import Any

PASSED = "passed"
VARIANT = "variant"
"""many published models differ from the paper in this way on purpose"""
DIFFERENCE = "difference"
ERROR = "error"
"""results or training are wrong, whatever the paper says"""
NOT_RUN = "not run"

STATUSES = (PASSED, VARIANT, DIFFERENCE, ERROR, NOT_RUN)
FAILED = (VARIANT, DIFFERENCE, ERROR)


@dataclass(frozen=True)
class Finding:
    """The result of one check of one side of a model.

    Args:
        status: one of :data:`STATUSES`
        found: what was measured in the model
        expected: the same of the paper's model, in the same words and units
        says: a sentence that says more than the check's own two, and replaces them
        fix: what to change, if that is certain
        modules: names of the modules concerned, as in ``model.named_modules()``
        explains: ids of checks that fail for the same cause, in addition to the check's own
        reason: why the check was not run
    """

    status: str = PASSED
    found: str = ""
    expected: str = ""
    says: str = ""
    fix: str = ""
    modules: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether the model differs from the paper here."""
        return self.status in FAILED


def passed(says: str = "") -> Finding:
    """Return the finding of a check that passed."""
    return Finding(PASSED, says=says)


def error(found: str, expected: str, **more: Any) -> Finding:
    """Return a finding that makes results wrong; ``more`` are other fields of :class:`Finding`."""
    return Finding(ERROR, found, expected, **more)


def differs(found: str, expected: str, **more: Any) -> Finding:
    """Return a difference from the paper; ``more`` are other fields of :class:`Finding`."""
    return Finding(DIFFERENCE, found, expected, **more)


def variant(found: str, expected: str, **more: Any) -> Finding:
    """Return a difference that many models have on purpose; ``more`` as in :func:`differs`."""
    return Finding(VARIANT, found, expected, **more)


def not_run(reason: str) -> Finding:
    """Return the finding of a check that was not run, with the reason."""
    return Finding(NOT_RUN, reason=reason)


def waits_for(check_id: str) -> Finding:
    """Return the finding of a check whose result means nothing until another check passes."""
    return not_run(f"{check_id} has to pass first")
