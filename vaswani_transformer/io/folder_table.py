"""The content of a model folder's config.json, as types. Needs no torch.

The vaswani.json of an export, which has some of the sections, is read in ``vaswani``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .typed import check_types, read_record

#: the first entries of a model folder's config.json
FORMAT = "vaswani-transformer"
VERSION = 1
#: the entries that are read in these sections, and their types; other entries are information
TEXT: Mapping[str, Any] = {"source_lang": str, "target_lang": str}
ORIGIN: Mapping[str, Any] = {"updates": int | None, "label_smoothing": float | None}

T = TypeVar("T", bound="FolderTable")


@dataclass(frozen=True, kw_only=True)
class FolderTable:
    """The sections needed to translate raw text, as in the file.

    Attributes:
        text: how text is prepared, with ``source_lang`` and ``target_lang``
        generation: how to search
        origin: the checkpoint and its training
        source_lengths: per cent of the training lines → the number of subwords they do not exceed
        scores: by subset of the data and by measure
    """

    text: dict[str, Any]
    generation: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=dict)
    source_lengths: dict[str, int] = field(default_factory=dict)
    scores: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def from_json(cls: type[T], table: Mapping[str, Any], where: str) -> T:
        """Read the sections, and ignore all other entries.

        Args:
            table: the content of the file
            where: name of the file, for the message

        Raises:
            ValueError: a section or an entry is missing, or is of another type.
        """
        sections = read_record(cls, table, where, ignore_unknown=True)
        for name in TEXT:
            if name not in sections.text:
                raise ValueError(f"{where}: the section 'text' has no {name!r}")
        check_types(sections.text, TEXT, f"{where}: text")
        check_types(sections.origin, ORIGIN, f"{where}: origin")
        return sections

    @property
    def langs(self) -> tuple[str, str]:
        """Languages of source and target."""
        return self.text["source_lang"], self.text["target_lang"]


@dataclass(frozen=True)
class Variant:
    """A variant of the paper's model.

    Attributes:
        arch: the name by which a user-dir registers it
        options: options that the paper's model does not have, by name
    """

    arch: str
    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelTable(FolderTable):
    """The sections of config.json in a model folder.

    Attributes:
        origin: as in :class:`FolderTable`, but required
        architecture: fields of ``TransformerConfig``; in earlier folders, not all
        variant: the variant, unless the model is the paper's
    """

    origin: dict[str, Any]
    architecture: dict[str, Any]
    variant: Variant | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of config.json."""
        variant = {} if self.variant is None else {"variant": vars(self.variant)}
        return {
            "format": FORMAT,
            "format_version": VERSION,
            "scores": self.scores,
            **variant,
            "architecture": self.architecture,
            "text": self.text,
            "source_lengths": self.source_lengths,
            "generation": self.generation,
            "origin": self.origin,
        }
