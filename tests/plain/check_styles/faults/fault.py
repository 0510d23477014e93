"""What a planted fault is."""

from dataclasses import dataclass, field

Edits = list[tuple[str, str]]
"""Pairs of the text to replace, wherever it stands, and its replacement."""


@dataclass(frozen=True)
class Fault:
    """A mistake in a few lines of a style's text, and the finding that names it."""

    name: str
    id: str
    """of the expected finding; several alternatives are separated by |"""
    says: str = ""
    """a regular expression that the finding's text matches"""
    batch_first: Edits = field(default_factory=list)
    multihead: Edits = field(default_factory=list)
    sequence_first: Edits = field(default_factory=list)
    searches: bool = False
    """whether the card needs ``translate``, which takes a second"""

    def styles(self) -> list[str]:
        """Return the styles in which the fault is planted."""
        names = ("batch_first", "multihead", "sequence_first")
        return [name for name in names if getattr(self, name)]
