"""The clean styles in other sizes."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_check import Card, check
from transformer_check.subject import load

from .planting import text_of

SIZES: dict[str, dict[str, Any]] = {
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "six layers": {"layers": 6},
    "eight heads": {"heads": 8},
    "five heads": {"heads": 5, "d_model": 40},
    "seven heads": {"heads": 7, "d_model": 56},
    "one head": {"heads": 1},
    "wide": {"d_model": 64, "d_ff": 256},
    "narrow": {"d_model": 16, "d_ff": 40, "heads": 2},
    "wide network": {"d_ff": 128},
    "many types": {"vocabulary": 1000},
    "few types": {"vocabulary": 18},
    "short": {"max_length": 48},
}


def card_of_size(style: str, size: str) -> Card:
    """Return the card of a clean style, built with another size; without ``translate``."""
    text = text_of(style) + "\n\ntranslate = None\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{style}.py"
        path.write_text(text, encoding="utf-8")
        adapter = load(path)
        return check(adapter, replace(adapter.CONFIG, **SIZES[size]))
