"""Table 2's systems on three small texts, as docs/results.md shows them."""

import statistics

from experiments.fairseq_runs import rate_text
from experiments.records import Record
from experiments.system_tables import by_seed, minus_first
from experiments.tables import Table

WIDE = "fconv, wide"
"""A system on everyday sentences alone."""


def texts_table(captions: Record, phrases: Record, everyday: Record) -> Table:
    """Return the table of each system's BLEU on each text, which is compared by itself."""
    rows = dict(captions["rows"])
    rows["fconv"] = rows.pop("fairseq's fconv")
    texts = [{**captions, "rows": rows}, phrases, everyday]
    columns = [
        "BLEU (rate): minus ours",
        "29,000 captions, 4,000 updates",
        "20,000 phrases, 1,200 updates",
        "204,608 everyday pairs, 2,500 updates",
    ]
    names = [*phrases["rows"], WIDE]
    lines = [[name, *(system_cell(text, name) for text in texts)] for name in names]
    degrees = [next(iter(minus_first(text, "bleu").values())).degrees for text in texts]
    note = (
        "Minus ours: of the same seeds, with 95 % intervals (Student's t; two-way layout, row and "
        "seed; variance pooled over the rows of each record, "
        f"{', '.join(map(str, degrees))} degrees of freedom). p: two-sided t test, corrected by "
        "Holm's method for the rows of each record. Fewer than three seeds are named."
    )
    return Table(columns, lines, note)


def system_cell(text: Record, name: str) -> str:
    """Format a system's mean BLEU, its rate, and its difference from ours."""
    if name not in text["rows"]:
        return "–"
    row = text["rows"][name]
    mean = f"{statistics.mean(by_seed(row, 'bleu').values()):.1f} ({rate_text(row)})"
    seeds = {1: "; 1 seed", 2: "; 2 seeds"}.get(len(row["runs"]), "")
    difference = minus_first(text, "bleu").get(name)
    return f"{mean}: {difference.text('+.1f')}{seeds}" if difference else f"{mean}{seeds}"
