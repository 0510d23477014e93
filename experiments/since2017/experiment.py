"""What rows.yaml asks for, as systems are compared (experiments/system_tables.py), with verdicts.

A change pays where the 95 % interval of its difference from ours, over the same seeds, is on its
side of zero: in BLEU at equal updates, in the validation loss there and at equal time.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.intervals import SEEDS_OF_AN_INTERVAL, Interval, paired_interval
from experiments.records import Record
from experiments.system_tables import SystemsExperiment, bits_of, by_seed, mean_of
from experiments.tables import Table

NOT_SHOWN = "not shown"


class LaterChanges(SystemsExperiment):
    """The paper's model with one later change each."""

    def tables(self, record: Record) -> list[Table]:
        """The verdicts first."""
        return [verdict_table(record, list(record["rows"])), *super().tables(record)]


def verdict(difference: Interval, seeds: int, better: int) -> str:
    """What a difference from ours says of a change.

    Args:
        difference: over the seeds that both have
        seeds: how many these are
        better: 1 if higher is better, -1 if lower
    """
    if seeds < SEEDS_OF_AN_INTERVAL or not difference.excludes_zero:
        return NOT_SHOWN
    return "pays" if difference.value * better > 0 else "does not"


def cell(
    values: dict[int, float], reference: dict[int, float], better: int, form: str = "+.2f"
) -> str:
    """``+1.77 ± 0.98: pays``, of figures by seed; a dash if no seed has both."""
    seeds = len(values.keys() & reference.keys())
    difference = paired_interval(values, reference)
    if difference is None:
        return "–"
    return f"{difference.text(form)}: {verdict(difference, seeds, better)}"


def bits_then(row: dict[str, Any]) -> dict[int, float]:
    """The validation loss at equal time, of the runs that had one."""
    return {
        seed: bits for seed, bits in by_seed(row, "bits_at_equal_time").items() if bits is not None
    }


def verdict_table(record: Record, names: Sequence[str]) -> Table:
    """Some rows, and minus the first with their verdicts."""
    first = record["rows"][names[0]]
    minutes = record["equal_seconds"] / 60
    columns = ["change", "BLEU", "minus ours", "validation, bits", "minus ours"]
    columns += [f"minus ours after {minutes:.0f} CPU minutes", "CPU minutes"]
    lines = []
    for name in names:
        row = record["rows"][name]
        bleu, bits, bits_in_time = by_seed(row, "bleu"), bits_of(row), bits_then(row)
        differences = ["–"] * 3
        if row is not first:
            differences = [
                cell(bleu, by_seed(first, "bleu"), better=1),
                cell(bits, bits_of(first), better=-1, form="+.3f"),
                cell(bits_in_time, bits_then(first), better=-1, form="+.3f"),
            ]
        means = [statistics.mean(values.values()) for values in (bleu, bits)]
        cost = f"{mean_of(row, 'processor_seconds') / 60:.0f}"
        at_equal_updates = [f"{means[0]:.2f}", differences[0], f"{means[1]:.3f}", differences[1]]
        lines.append([name, *at_equal_updates, differences[2], cost])
    note = (
        "Minus ours: the same seeds, with 95 % intervals (Student's t), at equal updates, and when "
        "the row that costs least had ended."
    )
    return Table(columns, lines, note)


make = LaterChanges
