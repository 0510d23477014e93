"""Makes the table of transformer_plugin/README.md: which attributes of fairseq the plugin replaces.

    python scripts/replaced.py            write the table
    python scripts/replaced.py --check    exit 1 if it is stale

The rows are what ``@replaces`` says in transformer_plugin/compat/.
"""

import argparse
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "transformer_plugin" / "README.md"
BEGIN, END = "<!-- made by scripts/replaced.py -->\n", "<!-- end -->\n"


def table() -> str:
    """Return the table as Markdown: what repairs fairseq first, then what protects a training."""
    from transformer_plugin.compat.replacing import PROTECTS, REPLACED
    from vaswani.common.markdown import markdown_table

    rows = sorted(REPLACED, key=lambda row: (row.kind == PROTECTS, row.attribute))
    columns = ["replaced", "", "versions", "what is different then"]
    cells = [[f"`{row.attribute}`", row.kind, row.versions, row.reason] for row in rows]
    return "\n".join(markdown_table(columns, cells)) + "\n"


def page(text: str) -> str:
    """Return the page with the present table."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(argv: list[str]) -> int:
    """Write or check the table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--check", action="store_true")
    check = options.parse_args(argv).check
    text = PAGE.read_text(encoding="utf-8")
    if not check:
        PAGE.write_text(page(text), encoding="utf-8")
    elif page(text) != text:
        print("transformer_plugin/README.md is stale: run python scripts/replaced.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
