"""What rows.yaml asks for, as systems are compared (experiments/system_tables.py), with verdicts.

A change is better or worse than ours if the difference is significant after equal updates, by the
rule of experiments/intervals.py. BLEU and the validation loss have a verdict each.
"""

import statistics
from collections.abc import Sequence

from experiments.fairseq_runs import rate_text
from experiments.intervals import SEEDS_OF_AN_INTERVAL, Difference
from experiments.records import Record
from experiments.system_tables import (
    SystemsExperiment,
    bits_of,
    both_note,
    by_seed,
    minus_first,
    over_both,
    rule_of,
)
from experiments.tables import Table

NOT_SIGNIFICANT = "not significant"
TOO_FEW_SEEDS = "too few seeds"
"""For a verdict: fewer than three, even if p is small."""


class LaterChanges(SystemsExperiment):
    """The paper's model with one later change each."""

    def tables(self, record: Record) -> list[Table]:
        """Return the table of verdicts, then the others."""
        return [verdict_table(record, list(record["rows"])), *super().tables(record)]

    def page_table(self, record: Record) -> Table:
        """Return the table of verdicts for ``page_rows`` of ``rows.yaml``."""
        return verdict_table(record, self.table["page_rows"])


def verdict(difference: Difference, better: int) -> str:
    """Return the verdict on a change, by its difference from ours.

    Args:
        difference: of the change from ours
        better: 1 if higher is better, -1 if lower
    """
    if difference.seeds < SEEDS_OF_AN_INTERVAL:
        return TOO_FEW_SEEDS
    if not difference.shown:
        return NOT_SIGNIFICANT
    return "better" if difference.value * better > 0 else "worse"


def cell(difference: Difference | None, better: int, form: str = "+.2f") -> str:
    """Format a difference: ``+1.77 ± 0.76 (p 0.0016): better``; a dash for ours."""
    if difference is None:
        return "–"
    return f"{difference.text(form)}: {verdict(difference, better)}"


def verdict_table(record: Record, names: Sequence[str]) -> Table:
    """Return some rows with their verdicts against the first; the rule compares all rows."""
    bleu_minus = minus_first(record, "bleu")
    bits_minus = minus_first(record, "bits")
    first = next(iter(record["rows"]))
    columns = ["model", "peak rate", "BLEU", f"BLEU minus {first}", "± over seeds and sentences"]
    columns += ["validation loss, bits", f"loss minus {first}"]
    lines = []
    for name in names:
        row = record["rows"][name]
        bleu = statistics.mean(by_seed(row, "bleu").values())
        bits = statistics.mean(bits_of(row).values())
        cells = [name, rate_text(row), f"{bleu:.2f}", cell(bleu_minus.get(name), better=1)]
        cells += [over_both(row), f"{bits:.3f}"]
        cells.append(cell(bits_minus.get(name), better=-1, form="+.3f"))
        lines.append(cells)
    return Table(columns, lines, f"{rule_of(record)} {both_note(record)}")


make = LaterChanges
