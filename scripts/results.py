"""Puts the figures into docs/results.md and docs/reproduce.md, from the records and the paper.

    python scripts/results.py            fill in the tables
    python scripts/results.py --check    exit 1 if a page says anything else

docs/results.yaml names the records, and has the paper's figures. A table stands between the marks
``<!-- results:NAME -->`` and ``<!-- /results:NAME -->``; all else on the pages is written by hand.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments.fairseq_runs import rate_text  # noqa: E402
from experiments.intervals import mean_text  # noqa: E402
from experiments.neighbours.experiment import neighbours_table  # noqa: E402
from experiments.parsing.experiment import all_parsers  # noqa: E402
from experiments.rates.experiment import best_table  # noqa: E402
from experiments.recall.experiment import accuracy_table  # noqa: E402
from experiments.record_files import record_file  # noqa: E402
from experiments.records import read_record  # noqa: E402
from experiments.since2017.experiment import verdict_table  # noqa: E402
from experiments.system_tables import (  # noqa: E402
    bits_of,
    both_note,
    by_seed,
    difference_text,
    mean_of,
    minus_first,
    over_both,
    rule_of,
)
from experiments.table3.experiment import contrast_table  # noqa: E402
from experiments.tables import Table, put  # noqa: E402
from vaswani.paper import table1  # noqa: E402

FIGURES = yaml.safe_load((ROOT / "docs" / "results.yaml").read_text(encoding="utf-8"))
PAIRS = ("en-de", "en-fr")
OUTSIDE = "parameters outside embeddings"
NEIGHBOURS = (
    "ours",
    "relative in both",
    "relative in the encoder",
    "positions 8 apart",
    "LSTM, additive attention",
)
PARSERS = {
    "right-branching": "right-branching",
    "PCFG on gold tags": "PCFG, from gold tags",
    "ours, tags: own source, free": "ours, from gold tags",
    "ours, tags, relative positions: own source, free": "with relative positions",
    "ours, words, then dropout 0.2: own source, free": "ours, from words",
    "ours, words, relative positions: own source, free": "with relative positions",
}
"""Of the record → on the page."""
EVERYDAY = (
    "ours",
    "ours, relative positions",
    "fairseq's Transformer",
    "LSTM, additive attention",
    "fconv",
    "fconv, wide",
)
SINCE_2017 = (
    "ours",
    "ours, relative positions",
    "SwiGLU",
    "pre-norm",
    "BPE-dropout 0.1",
    "all that pay",
)
PAGES = {
    "docs/results.md": (
        "table 1",
        "small",
        "systems",
        "equal updates",
        "everyday",
        "since 2017",
        "rates",
        "neighbours",
        "table 3, Multi30k",
        "parsing",
        "recall",
    ),
    "docs/reproduce.md": ("table 2", "table 3", "table 4"),
}


def record(name: str) -> dict[str, Any]:
    """A record by its name in docs/results.yaml, or a log of one."""
    path = ROOT / FIGURES["records"][name]
    text = path.read_bytes() if path.is_file() else record_file(path.parent, path.name)
    content: dict[str, Any] = json.loads(text)
    return content


def link(name: str) -> str:
    """A link to the page of the record that has this log."""
    folder = Path(FIGURES["records"][name]).parent
    return f"[record](../{folder}.md)"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown; None is a dash."""
    cells = [["–" if cell is None else str(cell) for cell in row] for row in rows]
    return "\n".join(Table(columns, cells).lines())


# ---- the paper's -------------------------------------------------------------------------------


def table_2() -> str:
    """Every row, and the names by which ours is trained."""
    columns = ["system", "En-De", "En-Fr", "operations, En-De", "En-Fr", "`vaswani reproduce`"]
    rows = []
    for row in FIGURES["table 2"]:
        costs = [row.get("cost en-de"), row.get("cost en-fr")]
        in_powers = [f"{cost:.1e}" if cost else None for cost in costs]
        scores = [row.get("en-de"), row.get("en-fr")]
        rows.append([row["system"], *scores, *in_powers, row.get("command")])
    return markdown(columns, rows)


def table_3() -> str:
    """Every row, in two columns."""
    paper = yaml.safe_load((ROOT / "configs" / "table3.yaml").read_text(encoding="utf-8"))["rows"]
    cells = [[name, row["ppl"], row["bleu"]] for name, row in paper.items()]
    half = len(cells) // 2
    rows = [[*left, "", *right] for left, right in zip(cells[:half], cells[half:], strict=True)]
    return markdown(["row", "perplexity", "BLEU", "", "row", "perplexity", "BLEU"], rows)


def table_4() -> str:
    """Every row."""
    keys = ("parser", "training", "f1")
    rows = [[row[key] for key in keys] for row in FIGURES["table 4"]]
    return markdown(["parser", "training", "WSJ 23, F1"], rows)


# ---- ours --------------------------------------------------------------------------------------


def small() -> str:
    """What was trained to its end on small text."""
    multi30k = record("Multi30k")
    rows = [
        [
            "Multi30k En-De, tiny, test_2016_flickr",
            f"{multi30k['bleu_tokenised']['score']:.2f}",
            "`make multi30k`",
            link("Multi30k"),
        ]
    ]
    for pair in PAIRS:
        demo = record(f"demo {pair}")
        scores = f"{demo['bleu']['score']:.2f}; {demo['exact_match']:.1f} % exactly right"
        command = f"`make demo PAIR={pair}`"
        rows.append([f"the demo's text, {pair}", scores, command, link(f"demo {pair}")])
    return markdown(["ours, small", "BLEU", "command", "record"], rows)


def systems() -> str:
    """Table 2's systems on three small texts; each text is a table of its own to the rule."""
    texts = [record(name) for name in ("captions", "demo", "everyday")]
    columns = [
        "BLEU (rate): minus ours",
        "29,000 captions, 4,000 updates",
        "20,000 phrases, 1,200 updates",
        "204,608 everyday pairs, 2,500 updates",
    ]
    texts[0]["rows"]["fconv"] = texts[0]["rows"].pop("fairseq's fconv")
    names = [*texts[1]["rows"], "fconv, wide"]
    rows = [[name, *(cell_of_systems(text, name) for text in texts)] for name in names]
    degrees = [next(iter(minus_first(text, "bleu").values())).degrees for text in texts]
    note = (
        "Minus ours: of the same seeds, with 95 % intervals (Student's t; two-way layout, row and "
        "seed; variance pooled over the rows of each record, "
        f"{', '.join(map(str, degrees))} degrees of freedom). p: two-sided t test, corrected by "
        "Holm's method for the rows of each record. Fewer than three seeds are named."
    )
    return "\n".join(Table(columns, rows, note).lines())


def cell_of_systems(text: dict[str, Any], name: str) -> str:
    """A row's mean BLEU, its rate, and its difference from ours."""
    if name not in text["rows"]:
        return "–"
    row = text["rows"][name]
    mean = f"{statistics.mean(by_seed(row, 'bleu').values()):.1f} ({rate_text(row)})"
    seeds = {1: "; 1 seed", 2: "; 2 seeds"}.get(len(row["runs"]), "")
    difference = minus_first(text, "bleu").get(name)
    return f"{mean}: {difference.text('+.1f')}{seeds}" if difference else f"{mean}{seeds}"


def equal_updates() -> str:
    """Ours and fairseq's Transformer."""
    whole = record("equal updates")
    columns = ["system", "rate", "BLEU", "minus ours", "chrF", "minus ours"]
    columns += ["validation, bits", "minus ours"]
    return (
        f"{comparison(whole, list(whole['rows']), columns, outside=False)}\n\n{time_line([whole])}"
    )


def everyday() -> str:
    """Systems on everyday sentences, at equal updates."""
    columns = ["system", "rate", OUTSIDE, "BLEU", "minus ours", "± over seeds and sentences"]
    columns += ["chrF", "minus ours", "validation, bits", "minus ours"]
    whole = record("everyday")
    table = comparison(whole, list(EVERYDAY), columns, outside=True)
    return f"{table}\n\n{time_line([whole])}"


def since_2017() -> str:
    """Later changes, at equal updates; the time of both records that have measured it."""
    whole = record("since 2017")
    table = lines_of(verdict_table(whole, SINCE_2017))
    return f"{table}\n\n{time_line([record('since 2017, on a CPU'), whole])}"


def rates() -> str:
    """Each model at its own best rate, by the newest record, if there is one."""
    folders = sorted((ROOT / "experiments" / "rates" / "records").glob("*"))
    if not folders:
        return "No record yet."
    page = (folders[-1] / "page.md").relative_to(ROOT)
    return f"{lines_of(best_table(read_record(folders[-1])))}\n\n[All cells](../{page})."


def time_line(records: list[dict[str, Any]]) -> str:
    """What the passes of each row cost, in one sentence: a figure for each record's measurement."""
    measured: dict[str, list[str]] = {}
    for whole in records:
        for name, row in whole["rows"].items():
            minutes = mean_of(row, "processor_seconds") / 60
            measured.setdefault(name, []).append(f"{minutes:.1f}")
    each = "; ".join(f"{name} {', '.join(figures)}" for name, figures in measured.items())
    return (
        f"Time, CPU minutes of the forward and backward passes, a figure per measurement: {each}."
    )


def comparison(whole: dict[str, Any], names: list[str], columns: list[str], outside: bool) -> str:
    """Some rows of a record, each minus the first.

    Args:
        outside: with parameters outside embeddings, and intervals over test sentences, too
    """
    minus = {key: minus_first(whole, key) for key in ("bleu", "chrf", "bits")}
    rows = []
    for name in names:
        row = whole["rows"][name]
        cells = [name, rate_text(row)]
        if outside:
            cells.append(f"{row[OUTSIDE]:,}")
        for key in ("bleu", "chrf"):
            cells.append(mean_text(list(by_seed(row, key).values())))
            cells.append(difference_text(minus[key].get(name)))
            if outside and key == "bleu":
                cells.append(over_both(row))
        cells.append(f"{statistics.mean(bits_of(row).values()):.3f}")
        cells.append(difference_text(minus["bits"].get(name), "+.3f"))
        rows.append(cells)
    return "\n".join(Table(columns, rows, f"{rule_of(whole)} {both_note(whole)}").lines())


def parsing() -> str:
    """Some of the parsers on open trees."""
    scores = all_parsers(record("parsing"))
    columns = ["parser", "F1, at most 20 words", "F1, all", "complete match, %"]
    rows = [
        [title, *(f"{scores[name][key]:.1f}" for key in ("f1 to 20", "f1", "complete_match"))]
        for name, title in PARSERS.items()
    ]
    return markdown(columns, rows)


def lines_of(table: Table | None) -> str:
    """A table of an experiment's own."""
    assert table
    return "\n".join(table.lines())


TEXTS: dict[str, Callable[[], str]] = {
    "table 1": lambda: "\n".join(table1.lines_of(record("table 1"))),
    "table 2": table_2,
    "table 3": table_3,
    "table 4": table_4,
    "small": small,
    "systems": systems,
    "equal updates": equal_updates,
    "everyday": everyday,
    "since 2017": since_2017,
    "rates": rates,
    "neighbours": lambda: lines_of(neighbours_table(record("neighbours"), list(NEIGHBOURS))),
    "table 3, Multi30k": lambda: lines_of(contrast_table(record("table 3, Multi30k"))),
    "parsing": parsing,
    "recall": lambda: lines_of(accuracy_table(record("recall"), (1, 2, 8, 64))),
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
    stale = [page for page in PAGES if (ROOT / page).read_text(encoding="utf-8") != filled_in(page)]
    for page in stale:
        if check:
            print(f"results.py: {page} is stale: run python scripts/results.py", file=sys.stderr)
        else:
            (ROOT / page).write_text(filled_in(page), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
