"""What ``vaswani prepare`` says of a finished stage."""

import sys
from pathlib import Path
from typing import Any

from vaswani.common.environment import peak_megabytes
from vaswani.data.pairs import Report
from vaswani.data.recipe import Recipe
from vaswani.experiment.find import DOCS


def say_what_was_made(recipe: Recipe, made: Path, report: dict[str, Any], seconds: float) -> None:
    """Say what a stage did: counts by set, beside the expected ones, pairs per second, memory.

    Args:
        made: the stage's folder or file, which has its name
        seconds: how long it took
    """
    counts = {key: Report(**value) for key, value in report.items() if isinstance(value, dict)}
    seen = sum(of_split.seen for of_split in counts.values())
    rate = f", {seen / max(seconds, 1e-3):,.0f} pairs/s" if seen else ""
    cost = f"{seconds:.0f} s{rate}; largest process {peak_megabytes():,.0f} MB"
    print(f"{made}: made ({cost})", file=sys.stderr)
    for split, of_split in counts.items():
        expected = (recipe.expected or {}).get(f"{made.name}/{split}")
        compared = ""
        if expected and recipe.limit is None:
            off = abs(of_split.kept - expected) > expected / 100
            see = f": more than 1 % off, see {DOCS / 'wmt14-data.md'}" if off else ""
            compared = f" (expected {expected:,}{see})"
        print(f"  {split}: {of_split.summary()}{compared}", file=sys.stderr)
    for key, value in report.items():
        if not isinstance(value, dict):
            print(f"  {key}: {value:,}", file=sys.stderr)


def show_dropped(name: str, dropped: dict[str, Any], examples: int) -> None:
    """Print examples of the pairs that a stage left out of a set, so many for each reason."""
    for reason, shown in dropped.items():
        for place, source, target in shown[:examples]:
            print(f"{name}, {reason}: {place}\n    {source}\n    {target}")
