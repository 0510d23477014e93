"""``@replaces``: the one way in which loading the plugin changes fairseq.

Each replacement says why, and is listed in ``REPLACED``, from which ``scripts/replaced.py`` makes
the table of docs/coming-from-fairseq.md. It is made when the file that it stands in is imported.
"""

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List

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


REPLACED: List[Replacement] = []


def replaces(
    owner: Any, name: str, kind: str, versions: str, reason: str, needed: bool = True
) -> Callable[[Any], Any]:
    """Decorator: what it decorates takes the place of ``owner.name``, its ``.original``.

    A class method or static method is replaced by one. ``__wrapped__`` is not set: TorchScript
    reads the source of what it compiles, and would follow it to the original's.

    Args:
        owner: a module or a class of fairseq
        name: its attribute
        kind: ``REPAIRS`` or ``PROTECTS``
        versions: the versions that need it, for the table
        reason: what loading the plugin changes, for the table
        needed: whether the installed versions need it; if not, it is only listed

    Raises:
        RuntimeError: it was replaced before, by a second copy of this plugin.
    """
    module = owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__
    of_class = "" if isinstance(owner, types.ModuleType) else f".{owner.__name__}"
    attribute = f"{module}{of_class}.{name}"

    def decorator(replacement: Any) -> Any:
        REPLACED.append(Replacement(attribute, kind, versions, reason))
        if not needed:
            return replacement
        before = vars(owner)[name]  # not getattr, which would bind a class method
        method = type(before) if isinstance(before, (classmethod, staticmethod)) else None
        original = before.__func__ if method else before
        if hasattr(original, "replaced_by"):
            raise RuntimeError(
                f"{attribute} is replaced already, by {original.replaced_by}: of two copies of "
                "this plugin only one can be loaded; give --user-dir that one"
            )
        replacement.original, replacement.replaced_by = original, str(Path(__file__).parent.parent)
        setattr(owner, name, method(replacement) if method else replacement)
        return replacement

    return decorator
