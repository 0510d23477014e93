"""Puts the figures into docs/results.md and docs/reproduce.md, from the records and the paper.

    python scripts/results.py            fill in the tables
    python scripts/results.py --check    exit 1 if a page says anything else

docs/results.yaml names the records, and has the paper's figures. A table stands between the marks
``<!-- results:NAME -->`` and ``<!-- /results:NAME -->``; all else on the pages is written by hand.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments import harness  # noqa: E402
from experiments.record_files import record_file  # noqa: E402
from experiments.records import read_record  # noqa: E402
from experiments.tables import Table, put  # noqa: E402

FIGURES = yaml.safe_load((ROOT / "docs" / "results.yaml").read_text(encoding="utf-8"))
PAIRS = ("en-de", "en-fr")
PAGES = {
    "docs/results.md": (
        "small",
        "since 2017",
        "rates",
    ),
    "docs/reproduce.md": ("table 2", "table 4"),
}


def record(name: str) -> dict[str, Any]:
    """Return a record, or one of its logs, by its name in docs/results.yaml."""
    path = ROOT / FIGURES["records"][name]
    text = path.read_bytes() if path.is_file() else record_file(path.parent, path.name)
    content: dict[str, Any] = json.loads(text)
    return content


def link(name: str) -> str:
    """Return a link to the page of the record that has this log."""
    folder = Path(FIGURES["records"][name]).parent
    return f"[record](../{folder}.md)"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown; a cell of None is a dash."""
    cells = [["–" if cell is None else str(cell) for cell in row] for row in rows]
    return "\n".join(Table(columns, cells).lines())


# ---- the paper's -------------------------------------------------------------------------------


def table_2() -> str:
    """Return the Transformer's rows of Table 2, and the names of our experiments."""
    figures = ["BLEU, En-De", "BLEU, En-Fr", "FLOPs, En-De", "FLOPs, En-Fr"]
    columns = ["system", *figures, "`vaswani reproduce`"]
    rows = []
    for row in FIGURES["table 2"]:
        costs = [row.get("cost en-de"), row.get("cost en-fr")]
        in_powers = [f"{cost:.1e}" if cost else None for cost in costs]
        scores = [row.get("en-de"), row.get("en-fr")]
        rows.append([row["system"], *scores, *in_powers, row.get("command")])
    return markdown(columns, rows)


def table_4() -> str:
    """Return the Transformer's rows of Table 4."""
    keys = ("parser", "training", "f1")
    rows = [[row[key] for key in keys] for row in FIGURES["table 4"]]
    return markdown(["parser", "training", "WSJ 23, F1"], rows)


# ---- ours --------------------------------------------------------------------------------------


def small() -> str:
    """Return the results of complete trainings on small text."""
    multi30k = record("Multi30k")
    rows = [
        [
            "tiny model on Multi30k En-De, test_2016_flickr",
            f"{multi30k['bleu_tokenised']['score']:.2f}",
            "`make multi30k`",
            link("Multi30k"),
        ]
    ]
    for pair in PAIRS:
        demo = record(f"demo {pair}")
        scores = f"{demo['bleu']['score']:.2f}; {demo['exact_match']:.1f} % of sentences right"
        command = f"`make demo PAIR={pair}`"
        rows.append([f"demo model, {pair}", scores, command, link(f"demo {pair}")])
    return markdown(["model and test set", "BLEU", "command", "record"], rows)


def of_record(name: str) -> str:
    """Return the table that an experiment shows of a record, named as in docs/results.yaml."""
    folder = (ROOT / FIGURES["records"][name]).parent
    return lines_of(experiment_of(folder).page_table(read_record(folder)))


def experiment_of(folder: Path) -> harness.Experiment:
    """Return the experiment whose record is in a folder."""
    return harness.find(folder.parents[1].relative_to(harness.HERE).as_posix())


def lines_of(table: Table) -> str:
    """Return an experiment's table without its note, since the page explains intervals once."""
    return "\n".join(table._replace(note="").lines())


TEXTS: dict[str, Callable[[], str]] = {
    "table 2": table_2,
    "table 4": table_4,
    "small": small,
    "since 2017": lambda: of_record("since 2017"),
    "rates": lambda: of_record("rates"),
}


def fill_in(page: str) -> str:
    """Replace the tables between the marks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in PAGES[page]:
        text = put(text, name, TEXTS[name]())
    return text


def main(argv: list[str]) -> int:
    """Fill in the pages, or check that they are filled in."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    check = options.parse_args(argv).check
    stale = [page for page in PAGES if (ROOT / page).read_text(encoding="utf-8") != fill_in(page)]
    for page in stale:
        if check:
            print(f"results.py: {page} is stale: run python scripts/results.py", file=sys.stderr)
        else:
            (ROOT / page).write_text(fill_in(page), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
