"""A table with a note above it, and its place in a page: once for all experiments."""

from collections.abc import Sequence
from typing import NamedTuple

from vaswani.common.markdown import markdown_table


class Table(NamedTuple):
    """Columns and rows of text; ``note`` stands above them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def lines(self) -> list[str]:
        """Return the table in Markdown, line by line."""
        lines = markdown_table(self.columns, self.rows)
        return [self.note, "", *lines] if self.note else lines


def join_tables(tables: Sequence[Table]) -> str:
    """Join several tables, one below the other."""
    return "\n\n".join("\n".join(table.lines()) for table in tables)


def put(page: str, label: str, text: str) -> str:
    """Replace the text between ``<!-- results:LABEL -->`` and ``<!-- /… -->`` in a page."""
    begin = f"<!-- results:{label} -->\n"
    end = f"\n<!-- /results:{label} -->"
    before, _, rest = page.partition(begin)
    _, end_mark, after = rest.partition(end)
    assert end_mark, f"the page has no marks for {label}"
    return before + begin + text + end + after
