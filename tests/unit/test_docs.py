"""What the documents point to is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_drawing_of_figure_1_names_files_that_exist():
    """docs/figure1.svg: each box says which file of the plugin it is."""
    named = set(
        re.findall(r"\b\w+\.py\b", (ROOT / "docs" / "figure1.svg").read_text(encoding="utf-8"))
    )
    assert len(named) > 5
    there = {path.name for path in (ROOT / "transformer_plugin").rglob("*.py")}
    assert named <= there
