"""What ``vaswani prepare`` says of a stage."""

import sys
from itertools import islice
from pathlib import Path

from vaswani.common.environment import peak_megabytes
from vaswani.common.files import Table
from vaswani.common.find import DOCS
from vaswani.data.pairs import Report
from vaswani.data.text import read_lines
from vaswani.data.tokenisation import hardly_spaced
from vaswani.folders.recipe import SENTENCEPIECE, Recipe

#: lines from which it is judged whether a text has spaces
LINES_JUDGED = 1000


def say_what_was_made(recipe: Recipe, output: Path, report: Table, seconds: float) -> None:
    """Say what a stage did: counts by set, beside the expected ones, pairs per second, memory.

    Args:
        output: the stage's folder or file, which has its name
        seconds: how long it took
    """
    counts = {key: Report(**value) for key, value in report.items() if isinstance(value, dict)}
    pairs = sum(of_split.seen for of_split in counts.values())
    rate = f", {pairs / max(seconds, 1e-3):,.0f} pairs/s" if pairs else ""
    cost = f"{seconds:.0f} s{rate}; largest process {peak_megabytes():,.0f} MB"
    print(f"{output}: made ({cost})", file=sys.stderr)
    for split, of_split in counts.items():
        expected = (recipe.expected or {}).get(f"{output.name}/{split}")
        compared = ""
        if expected and recipe.limit is None:
            off = abs(of_split.kept - expected) > expected / 100
            see = f": more than 1 % off, see {DOCS / 'wmt14-data.md'}" if off else ""
            compared = f" (expected {expected:,}{see})"
        print(f"  {split}: {of_split.summary()}{compared}", file=sys.stderr)
    for key, value in report.items():
        if not isinstance(value, dict):
            print(f"  {key}: {value:,}", file=sys.stderr)


def show_dropped(name: str, dropped: Table, examples: int) -> None:
    """Print examples of the pairs that a stage left out of a set, so many for each reason."""
    for reason, shown in dropped.items():
        for place, source, target in shown[:examples]:
            print(f"{name}, {reason}: {place}\n    {source}\n    {target}")


def warn_of_unspaced(pair: tuple[Path, Path]) -> None:
    """Say what to do about text that Moses cannot split, judging by its first lines."""
    for path in pair:
        if hardly_spaced(islice(read_lines(path), LINES_JUDGED)):
            print(
                f"warning: {path} has hardly any spaces, at which Moses splits words: prepare it "
                f"with --subword {SENTENCEPIECE}, which needs none",
                file=sys.stderr,
            )
            return
