"""What ``vaswani prepare`` counts and says of a stage, and refuses of its result."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

from vaswani.common.environment import peak_megabytes
from vaswani.common.errors import UserError
from vaswani.common.find import DOCS
from vaswani.data.pairs import Report
from vaswani.data.text import read_lines
from vaswani.data.tokenisation import hardly_spaced
from vaswani.folders.recipe import SENTENCEPIECE, Recipe

#: lines from which it is judged whether a text has spaces
LINES_JUDGED = 1000


#: what a stage has counted: the pairs of a set, by the set's name; anything else in words
StageReport = dict[str, Report | int]


def report_to_json(report: StageReport) -> dict[str, object]:
    """Return a stage's report in the form of its record."""
    return {
        name: asdict(value) if isinstance(value, Report) else value
        for name, value in report.items()
    }


def report_from_json(table: Mapping[str, Any]) -> StageReport:
    """Return the report in a stage's record."""
    report: StageReport = {}
    names = [item.name for item in fields(Report)]
    for name, value in table.items():
        if isinstance(value, dict):  # another version may have other counts
            report[name] = Report(**{key: value[key] for key in names if key in value})
        else:
            report[name] = value
    return report


def say_what_was_made(recipe: Recipe, output: Path, report: StageReport, seconds: float) -> None:
    """Print what a stage did: counts by set and as expected, pairs per second, memory.

    Args:
        output: the stage's folder or file, which has its name
        seconds: how long it took
    """
    counts = {key: value for key, value in report.items() if isinstance(value, Report)}
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
        if not isinstance(value, Report):
            print(f"  {key}: {value:,}", file=sys.stderr)


def show_dropped(name: str, report: Report, examples: int) -> None:
    """Print examples of the pairs that a stage left out of a set, ``examples`` for each reason."""
    for reason, shown in report.examples.items():
        for place, source, target in shown[:examples]:
            print(f"{name}, {reason}: {place}\n    {source}\n    {target}")


def warn_of_unspaced(pair: tuple[Path, Path]) -> None:
    """Warn of text without spaces, which Moses cannot split, and say what to do."""
    for path in pair:
        if hardly_spaced(islice(read_lines(path), LINES_JUDGED)):
            print(
                f"warning: {path} has hardly any spaces, at which Moses splits words: prepare the "
                f"text with --subword {SENTENCEPIECE}, which needs none",
                file=sys.stderr,
            )
            return


def check_not_empty(recipe: Recipe, folder: Path, counts: StageReport, what: str) -> None:
    """Raise UserError if a set has no pair left."""
    for split, report in counts.items():
        if isinstance(report, Report) and not report.kept:
            share = recipe.valid_every
            hint = f" (one in {share:,} is held out for it)" if split == "valid" and share else ""
            raise UserError(f"the {split} set of {folder} has no pair of {what}{hint}")


def check_not_blank(pair: tuple[Path, Path]) -> None:
    """Raise UserError if no pair has a sentence on both sides: a test set may have blank lines."""
    sides = [read_lines(path) for path in pair]
    if not any(source.strip() and target.strip() for source, target in zip(*sides, strict=True)):
        raise UserError(
            f"the {pair[0].stem} set has no pair of sentences, because on each line at least one "
            "side is blank: give files with a sentence and its translation on the same line"
        )
