"""The map of the plugin in CONTRIBUTING.md names every file of it, and nothing that is gone."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "transformer_plugin"


def test_the_map_of_the_plugin_is_complete() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where a thing goes\n")[2].partition("\n## ")[0]
    section = section.replace("`transformer_plugin/", "`")
    named = set(re.findall(r"(?<![\w/.])(?:[\w.]+/)*\w+\.py\b", section))
    named |= set(re.findall(r"(?<![\w/.])(?:\w+/)+(?![\w.])", section))
    there = {path.name for path in PLUGIN.glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in PLUGIN.glob("*/__init__.py")}
    places = (PLUGIN, ROOT, ROOT / "vaswani")
    gone = {name for name in named if not any((place / name).exists() for place in places)}
    assert (there - named, gone) == (set(), set())
