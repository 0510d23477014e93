"""``@replaces``: the one way in which the plugin changes fairseq.

Each replacement says why, and is listed in ``REPLACED``, from which ``scripts/replaced.py`` makes
the table of transformer_plugin/README.md. What repairs fairseq is replaced when the file that it
stands in is imported; what protects a training, when ``protect`` is called.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REPAIRS = "repairs"
"""fairseq fails, or gives something wrong."""
PROTECTS = "protects"
"""fairseq works as intended, and a user's work could be lost or spoilt."""


@dataclass(frozen=True)
class Replacement:
    """One attribute of fairseq: which, of which kind, where fairseq needs it, and what for."""

    attribute: str
    kind: str
    versions: str
    reason: str


REPLACED: list[Replacement] = []
_ON_REQUEST: list[Callable[[], None]] = []


def replaces(
    owner: Any, name: str, kind: str, versions: str, reason: str, needed: bool = True
) -> Callable[[Any], Any]:
    """Decorator: what it decorates takes the place of ``owner.name``, its ``.original``.

    Args:
        owner: a module or a class of fairseq
        name: its attribute
        kind: ``REPAIRS`` or ``PROTECTS``
        versions: the versions that need it, for the table
        reason: what is different then, for the table
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
    """Replace what protects a training, in this process, unless that was done before."""
    while _ON_REQUEST:
        _ON_REQUEST.pop()()
