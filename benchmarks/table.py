"""Rounds of measurements become rows of a table: medians, spread, ratio to the first system."""

import statistics
from typing import Any, Dict, List, Sequence

Row = Dict[str, Any]


def middle(values: Sequence[float]) -> Dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def compare(rounds: Dict[str, List[Dict[str, float]]]) -> List[Row]:
    """One row for each system: tokens a second, and how many times the first system's.

    The ratio is taken round by round, of measurements made one after the other on the same
    batches, so that a machine that slows down slows both; then comes their median.
    """
    first = next(iter(rounds))
    rows = []
    for name, measured in rounds.items():
        speeds = [m["tokens"] / m["seconds"] for m in measured]
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(rounds[first], measured, strict=True)]
        rows.append({"system": name, "tokens/s": middle(speeds), "ratio": middle(ratios)})
    return rows


def markdown(rows: List[Row]) -> str:
    """A Markdown table; the columns are those of all rows, in the order they come up."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(cell(row.get(name)) for name in columns) + " |")
    return "\n".join(lines)


def cell(value: Any) -> str:
    """A value as it stands in the table; a spread as ``median (least–most)``."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return f"{cell(value['median'])} ({cell(value['min'])}–{cell(value['max'])})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
