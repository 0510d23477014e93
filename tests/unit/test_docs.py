"""What the documents point to is there."""

import re
from pathlib import Path

from tests.mutation import functions_in

ROOT = Path(__file__).resolve().parents[2]
PROMISES = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = sorted(
    set(re.findall(r"`((?:unit|parity|integration|system)/\w+\.py)(?:::(\w+))?`", PROMISES))
)


def test_the_tests_that_hold_promises_are_there():
    def there(path, name):
        tests = functions_in(ROOT / "tests" / path)
        return name in tests if name else any(test.startswith("test_") for test in tests)

    assert len(NAMED) > 70
    assert [f"{path}::{name}" for path, name in NAMED if not there(path, name)] == []


def test_every_promise_names_its_test():
    """A row of the tables ends with a test, but for what does not work and what is not promised."""
    tables = PROMISES.partition("## What does not work")[0]
    rows = [row for row in tables.splitlines() if row.startswith("| ") and "promise |" not in row]
    assert len(rows) > 40
    assert [row for row in rows if ".py" not in row.split(" | ")[-1]] == [
        row for row in rows if row.endswith("| – |")
    ]


def test_the_drawing_of_figure_1_names_files_that_exist():
    """docs/figure1.svg: each box says which file of the plugin it is."""
    named = set(
        re.findall(r"\b\w+\.py\b", (ROOT / "docs" / "figure1.svg").read_text(encoding="utf-8"))
    )
    assert len(named) > 5
    there = {path.name for path in (ROOT / "transformer_plugin").rglob("*.py")}
    assert named <= there
