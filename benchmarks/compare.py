"""Two records side by side: ``python -m benchmarks.compare OLD.json NEW.json``.

It compares the ratios to fairseq, each measured within one run, and the speeds themselves, which
mean something only if both records come from the same idle machine.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import Row, markdown

KEYS = ("work", "batch", "varied", "value", "system")
"""What identifies a row within a benchmark."""


def rows_of(path: str) -> dict[tuple[Any, ...], Row]:
    """Return a record's rows, keyed by benchmark and ``KEYS``.

    Raises:
        SystemExit: there is no such file, or it is not a record.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        results = record["results"]
    except (OSError, ValueError, KeyError, TypeError):
        raise SystemExit(f"{path} is no record of python -m benchmarks.run (its .json)") from None
    rows = {}
    for name, result in results.items():
        for row in result["rows"]:
            identity = (name, *(row.get(key) for key in KEYS))
            rows[identity] = row
    return rows


def number(value: Any) -> Any:
    """Return a figure, or the median of a spread."""
    return value["median"] if isinstance(value, dict) else value


def side_by_side(old: dict[tuple[Any, ...], Row], new: dict[tuple[Any, ...], Row]) -> list[Row]:
    """Return the rows that both records have."""
    rows = []
    for key in old:
        if key not in new:
            continue
        row: Row = {"what": " ".join(str(part) for part in key if part is not None)}
        for figure in ("tokens/s", "ratio", "peak MB"):
            before = number(old[key].get(figure))
            after = number(new[key].get(figure))
            if before and after:
                row[f"{figure}, old"] = before
                row[f"{figure}, new"] = after
                row[f"{figure}, new/old"] = after / before
        rows.append(row)
    return rows


def main(argv: Sequence[str]) -> int:
    """Print the comparison of two records."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    options.add_argument("old", metavar="OLD.json")
    options.add_argument("new", metavar="NEW.json")
    args = options.parse_args(argv)
    rows = side_by_side(rows_of(args.old), rows_of(args.new))
    if not rows:
        raise SystemExit("the two records have no row in common")
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
