"""CONTRIBUTING's table names every file of the plugin, and every file that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = [ROOT, *(ROOT / name for name in ("transformer_plugin", "vaswani_transformer", "vaswani"))]


def test_the_map_of_the_plugin_is_complete() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where a thing goes\n")[2].partition("\n## ")[0]
    section = section.replace("`transformer_plugin/", "`")
    named = set(re.findall(r"(?<![\w/.])(?:[\w.]+/)*\w+\.py\b", section))
    named |= set(re.findall(r"(?<![\w/.])(?:\w+/)+(?![\w.])", section))
    there = {path.name for path in (ROOT / "transformer_plugin").glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in ROOT.glob("transformer_plugin/*/__init__.py")}
    gone = {name for name in named if not any((place / name).exists() for place in PLACES)}
    assert (there - named, gone) == (set(), set())
