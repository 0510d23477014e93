"""What the JSON file of a model folder, or of an export, may say. Needs no torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from .typed import check_types

#: the sections of config.json, and in vaswani.json, by their types
SECTIONS: Mapping[str, Any] = {
    "text": dict[str, Any],
    "generation": dict[str, Any],
    "origin": dict[str, Any],
    "architecture": dict[str, Any],
    "variant": dict[str, Any] | None,
    "source_lengths": dict[str, int],
    "scores": dict[str, dict[str, dict[str, Any]]],
    "limits": dict[str, int],
}
#: what is read of a section, by its type
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "text": {"source_lang": str, "target_lang": str},
    "origin": {"updates": int | None, "label_smoothing": float | None},
    "variant": {"arch": str, "options": dict[str, Any]},
    "limits": {"source": int, "target": int},
}
#: the sections, and entries, that have to be there
NEEDED = ("text", "generation", "origin", "architecture")
NEEDED_ENTRIES = {
    "text": ("source_lang", "target_lang"),
    "variant": ("arch", "options"),
    "limits": ("source", "target"),
}


def check_sections(table: Mapping[str, Any], where: str, needed: Iterable[str] = NEEDED) -> None:
    """Raise ValueError for a section that is missing, or has a value of another type.

    Args:
        table: what a folder's JSON file says
        where: it is, for the message
        needed: the sections that it has to have
    """
    for section in needed:
        if section not in table:
            raise ValueError(f"{where} lacks {section!r}")
    check_types(table, SECTIONS, where)
    for section, hints in ENTRIES.items():
        entries = table.get(section)
        if entries is None:
            continue
        for name in NEEDED_ENTRIES.get(section, ()):
            if name not in entries:
                raise ValueError(f"{where}: {section} lacks {name!r}")
        check_types(entries, hints, f"{where}: {section}")
