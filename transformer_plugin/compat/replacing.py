"""``@replaces``: the only way in which the plugin changes fairseq.

Each replacement has a reason, and is listed in ``REPLACED``, from which ``scripts/replaced.py``
makes the table of docs/coming-from-fairseq.md. Repairs of fairseq are applied when their file is
imported; replacements that protect a training, when ``protect`` is called.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REPAIRS = "repairs"
"""fairseq fails, or its result is wrong."""
PROTECTS = "protects"
"""fairseq works as intended, and a user's work could be lost or spoilt."""


@dataclass(frozen=True)
class Replacement:
    """A replaced attribute of fairseq: its name, kind, the versions that need it, the reason."""

    attribute: str
    kind: str
    versions: str
    reason: str


REPLACED: list[Replacement] = []
_ON_REQUEST: list[Callable[[], None]] = []


def replaces(
    owner: Any, name: str, kind: str, versions: str, reason: str, needed: bool = True
) -> Callable[[Any], Any]:
    """Replace ``owner.name`` by the decorated object, whose ``.original`` is the old one.

    Args:
        owner: a module or a class of fairseq
        name: its attribute
        kind: ``REPAIRS`` or ``PROTECTS``
        versions: the versions that need it, for the table
        reason: the effect of the replacement, for the table
        needed: whether the installed versions need it; if not, it is only listed
    """
    in_module = "" if isinstance(owner, types.ModuleType) else f"{owner.__module__}."
    attribute = f"{in_module}{owner.__name__}.{name}"

    def decorator(replacement: Any) -> Any:
        def replace() -> None:
            before = vars(owner)[name]  # not getattr, which would bind it
            static = isinstance(before, staticmethod)
            replacement.original = before.__func__ if static else before
            setattr(owner, name, staticmethod(replacement) if static else replacement)

        REPLACED.append(Replacement(attribute, kind, versions, reason))
        if kind == PROTECTS:
            _ON_REQUEST.append(replace)
        elif needed:
            replace()
        return replacement

    return decorator


def protect() -> None:
    """Apply the replacements that protect a training, once per process."""
    while _ON_REQUEST:
        _ON_REQUEST.pop()()
