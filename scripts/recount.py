"""Recomputes the costs in records of small tables, and what is made from them.

    python scripts/recount.py [FOLDER ...]     (default: the small tables of docs/results.yaml)

A record made before ``benchmarks/small_table.py`` counted every batch of an update has the cost of
one batch as that of an update. It is multiplied by the table's ``update_freq``, once: a run then
says how many batches it was counted with. The table on the record's page and its picture are made
again from the record; the page's other text is left as it is.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import small_table  # noqa: E402
from vaswani.common.files import atomic_write, read_json  # noqa: E402
from vaswani.paper import SMALL_TABLES  # noqa: E402
from vaswani.paper.small_tables import Row, read_table  # noqa: E402

BATCHES, CHANGE = "batches_per_update", "optimization.update_freq="
COSTS = ("operations", "processor_seconds", "operations_by_rule")


def default() -> list[Path]:
    """The folders of the small tables' records."""
    text = (ROOT / "docs" / "results.yaml").read_text(encoding="utf-8")
    records = [path for path in yaml.safe_load(text)["records"].values() if path]
    folders = [(ROOT / "benchmarks" / "results" / path).parent for path in records]
    return [one for one in folders if read_json(one / "record.json").get("table") in SMALL_TABLES]


def batches_of(row: Row) -> int:
    """How many batches an update of this row has."""
    changes = [one[len(CHANGE) :] for one in row.change if one.startswith(CHANGE)]
    return int(yaml.safe_load(changes[-1])[-1])


def recount(record: dict[str, Any]) -> None:
    """Bring the costs of a record's runs up to date, in place."""
    for row in read_table(record["table"], path=ROOT / "configs" / "small_tables.yaml").rows:
        for run in record["rows"].get(row.name, {"runs": []})["runs"]:
            if BATCHES not in run:
                run[BATCHES] = batches_of(row)
                run.update({key: run[BATCHES] * run[key] for key in COSTS})


def with_table(page: str, lines: list[str]) -> str:
    """A page with its first table replaced."""
    old = page.splitlines()
    first = next(number for number, line in enumerate(old) if line.startswith("| system |"))
    last = next(number for number in range(first, len(old)) if not old[number].startswith("|"))
    return "\n".join([*old[:first], *lines, *old[last:], ""])


def main(folders: list[Path]) -> int:
    """Recount each record, then make its table and picture again."""
    for folder in folders:
        record = read_json(folder / "record.json")
        recount(record)
        with atomic_write(folder / "record.json") as stream:
            json.dump(record, stream, indent=1)
        small_table.draw(folder.with_name(f"{folder.name}.png"), record)
        page = folder.with_name(f"{folder.name}.md")
        text = with_table(page.read_text(encoding="utf-8"), small_table.lines_of(record))
        with atomic_write(page) as stream:
            stream.write(text)
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or default()))
