"""Puts the figures into docs/results.md: the paper's beside ours, from the records.

    python scripts/results.py            fill in the tables
    python scripts/results.py --check    exit 1 if the page says anything else

docs/results.yaml names the records in benchmarks/results, and has the paper's figures. A table
stands between the marks ``<!-- results:NAME -->`` and ``<!-- /results:NAME -->``; all else on the
page is written by hand.
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

from benchmarks import neighbours, parsing, recall, small_table  # noqa: E402
from benchmarks.bugs import put  # noqa: E402
from vaswani.paper import table1  # noqa: E402

RECORDS = ROOT / "benchmarks" / "results"
TABLE = yaml.safe_load((ROOT / "docs" / "results.yaml").read_text(encoding="utf-8"))
NOT_RUN = "not run"
PAIRS = ("en-de", "en-fr")
PAGES = {
    "docs/results.md": ("systems", "table 1", "table 2", "small", "table 2, demo",
                        "table 2, Multi30k", "table 2, Tatoeba", "equal updates",
                        "table 3", "table 3, Multi30k", "table 4", "table 4, open trees",
                        "parsing", "neighbours", "recall"),
}  # fmt: skip


def record(name: str) -> dict[str, Any] | None:
    """A record by its name in docs/results.yaml; None if there is none."""
    path = TABLE["records"][name]
    return json.loads((RECORDS / path).read_text(encoding="utf-8")) if path else None


def from_record(name: str, lines_of: Callable[[dict[str, Any]], list[str]]) -> str:
    """A record's table, or that it was not run."""
    found = record(name)
    return "\n".join(lines_of(found)) if found else f"Here: {NOT_RUN}."


def rows(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown; None is a dash."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in table:
        cells = ["–" if cell is None else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_2() -> str:
    """Every row of the paper's, and the names by which ours is trained."""
    return rows(
        ["system", "En-De", "En-Fr", "operations, En-De", "En-Fr", "ours: `vaswani reproduce`"],
        [
            [
                row["system"],
                *(row.get(key) for key in ("en-de", "en-fr")),
                *(
                    f"{row[key]:.1e}" if key in row else None
                    for key in ("cost en-de", "cost en-fr")
                ),
                row.get("command"),
            ]
            for row in TABLE["table 2"]
        ],
    )


def small() -> str:
    """What was trained to its end on small text."""
    multi30k, demos = record("Multi30k"), [record(f"demo {pair}") for pair in PAIRS]
    assert multi30k and all(demos)
    link = "[log](../benchmarks/results/{})".format
    table = [
        ["Multi30k En-De, tiny, test_2016_flickr", f"{multi30k['bleu_tokenised']['score']:.2f}",
         "`make multi30k`", link(TABLE["records"]["Multi30k"])]
    ]  # fmt: skip
    for pair, demo in zip(PAIRS, demos, strict=True):
        assert demo
        said = f"{demo['bleu']['score']:.2f}; {demo['exact_match']:.1f} % exactly right"
        log = link(TABLE["records"][f"demo {pair}"])
        table.append([f"the demo's text, {pair}", said, f"`make demo PAIR={pair}`", log])
    return rows(["ours, small", "BLEU", "command", "log"], table)


def systems() -> str:
    """Table 2's systems on three small texts, in short."""
    captions, numbers, everyday = map(
        record, ("table 2, Multi30k", "table 2, demo", "table 2, Tatoeba")
    )
    assert captions and numbers and everyday
    both = zip(captions["rows"].values(), numbers["rows"].items(), strict=True)
    return rows(
        [
            "system, BLEU (seeds)",
            "29,000 captions, 4,000 updates",
            "20,000 phrases, 1,200 updates",
            "204,608 everyday pairs, 2,500 updates",
        ],
        [
            [
                name,
                *(
                    small_table.mean([run["bleu"] for run in row["runs"]])
                    for row in (first, second, everyday["rows"].get(name, {"runs": []}))
                ),
            ]
            for first, (name, second) in both
        ],
    )


def table_3() -> str:
    """Every row of the paper's, in two columns."""
    paper = yaml.safe_load((ROOT / "configs" / "table3.yaml").read_text(encoding="utf-8"))["rows"]
    cells = [[name, row["ppl"], row["bleu"]] for name, row in paper.items()]
    half = len(cells) // 2
    both = [[*left, "", *right] for left, right in zip(cells[:half], cells[half:], strict=True)]
    return rows(["row", "perplexity", "BLEU", "", "row", "perplexity", "BLEU"], both)


def table_4() -> str:
    """Every row of the paper's."""
    columns = ("parser", "training", "f1")
    cells = [[row[name] for name in columns] for row in TABLE["table 4"]]
    return rows(["parser", "training", "WSJ 23, F1"], cells)


def open_trees() -> str:
    """The scores of parses of other trees than the Wall Street Journal's."""
    figures = ("recall", "precision", "f1", "complete_match")
    return rows(
        ["parser", "labelled recall", "precision", "F1", "complete match, %", "repaired to trees"],
        [
            [parser, *(f"{scores[name]:.2f}" for name in figures), scores.get("repaired")]
            for parser, scores in (record("table 4, open trees") or {}).items()
        ],
    )


TEXTS: dict[str, Callable[[], str]] = {
    "table 1": lambda: from_record("table 1", table1.lines_of),
    "table 2": table_2,
    "small": small,
    "systems": systems,
    "table 2, demo": lambda: from_record("table 2, demo", small_table.lines_of),
    "table 2, Multi30k": lambda: from_record("table 2, Multi30k", small_table.lines_of),
    "table 2, Tatoeba": lambda: from_record("table 2, Tatoeba", small_table.lines_of),
    "equal updates": lambda: from_record("equal updates", small_table.lines_of),
    "table 3": table_3,
    "table 3, Multi30k": lambda: from_record("table 3, Multi30k", small_table.lines_of),
    "table 4": table_4,
    "table 4, open trees": open_trees,
    "parsing": lambda: from_record("parsing", parsing.lines_of),
    "neighbours": lambda: from_record("neighbours", neighbours.lines_of),
    "recall": lambda: from_record("recall", recall.lines_of),
}


def filled_in(page: str) -> str:
    """A page with the tables that its marks name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in PAGES[page]:
        text = put(text, name, TEXTS[name]())
    return text


def main(argv: list[str]) -> int:
    """Fill in, or check."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    check = options.parse_args(argv).check
    stale = [p for p in PAGES if (ROOT / p).read_text(encoding="utf-8") != filled_in(p)]
    for page in stale:
        if check:
            print(f"results.py: {page} is stale: run python scripts/results.py", file=sys.stderr)
        else:
            (ROOT / page).write_text(filled_in(page), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
