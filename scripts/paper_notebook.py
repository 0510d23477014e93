"""Makes examples/walkthrough/paper.ipynb, with its outputs, from examples/walkthrough/paper.py.

    python scripts/paper_notebook.py        needs pip install -e '.[notebook]'; takes a minute

The page is written as Python with a comment at the start of each cell: ``# %%`` before code,
``# %% [markdown]`` before text, whose lines are comments.
"""

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "examples" / "walkthrough" / "paper.py"
NOTEBOOK = PAGE.with_suffix(".ipynb")
MARKDOWN = "[markdown]"


def cells(page: str) -> list[tuple[str, str]]:
    """Return (``markdown`` or ``code``, text) of each cell of a page, in its order."""
    pairs = []
    for part in ("\n" + page).split("\n# %%")[1:]:
        head, _, body = part.partition("\n")
        body = body.strip("\n")
        if head.strip() == MARKDOWN:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.split("\n")]
            pairs.append(("markdown", "\n".join(lines)))
        else:
            pairs.append(("code", body))
    return pairs


def main() -> int:
    """Run the cells, and write them with their output and pictures."""
    import nbformat
    from nbclient import NotebookClient

    make = {
        "markdown": nbformat.v4.new_markdown_cell,
        "code": nbformat.v4.new_code_cell,
    }
    notebook = nbformat.v4.new_notebook(
        cells=[
            make[kind](text, id=f"cell-{number}")
            for number, (kind, text) in enumerate(cells(PAGE.read_text(encoding="utf-8")), 1)
        ]
    )
    where = {"metadata": {"path": str(PAGE.parent)}}
    NotebookClient(notebook, record_timing=False, resources=where).execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(notebook, NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
