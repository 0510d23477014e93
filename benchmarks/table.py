"""Turns rounds of measurements into table rows: medians, spread, ratio to the first system."""

import statistics
from collections.abc import Sequence
from typing import Any

from vaswani.common.markdown import markdown_table

Row = dict[str, Any]


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Return the median, minimum and maximum of values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def speed_rows(
    rounds: dict[str, list[dict[str, float]]], references: dict[str, str] | None = None
) -> list[Row]:
    """Return one row for each system: tokens per second, and their ratios to those of the
    references.

    A ratio is the median of one per round: within a round the systems run one after the other
    on the same batches, so that a machine that slows down slows both.

    Args:
        rounds: seconds and tokens, by system
        references: a column's title → the system that it compares with, if that was measured
            (default: ``ratio``, to the first system)
    """
    references = references or {"ratio": next(iter(rounds))}
    rows = []
    for name, measured in rounds.items():
        speeds = [m["tokens"] / m["seconds"] for m in measured]
        row: Row = {"system": name, "tokens/s": median_and_range(speeds)}
        for title, reference in references.items():
            if reference in rounds:
                pairs = zip(rounds[reference], measured, strict=True)
                row[title] = median_and_range([a["seconds"] / b["seconds"] for a, b in pairs])
        rows.append(row)
    return rows


def markdown(rows: list[Row]) -> str:
    """Return a Markdown table with the columns of all rows, in order of first appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[cell(row.get(name)) for name in columns] for row in rows]
    return "\n".join(markdown_table(columns, cells))


def cell(value: Any) -> str:
    """Format a value as text for the table; a spread is ``median (least–most)``."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return f"{cell(value['median'])} ({cell(value['min'])}–{cell(value['max'])})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
