"""A table, and how it is written in Markdown: once for all experiments."""

from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """Columns and rows of text; ``note`` stands above them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def lines(self) -> list[str]:
        """In Markdown."""
        cells = [self.columns, ["---"] * len(self.columns), *self.rows]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        return [self.note, "", *lines] if self.note else lines


def joined(tables: Sequence[Table]) -> str:
    """Several tables, one below the other."""
    return "\n\n".join("\n".join(table.lines()) for table in tables)


def put(page: str, label: str, text: str) -> str:
    """A page with a text between the two marks ``<!-- results:LABEL -->`` and ``<!-- /… -->``."""
    begin = f"<!-- results:{label} -->\n"
    end = f"\n<!-- /results:{label} -->"
    before, _, rest = page.partition(begin)
    _, end_mark, after = rest.partition(end)
    assert end_mark, f"the page has no marks for {label}"
    return before + begin + text + end + after
