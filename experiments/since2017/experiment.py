"""What rows.yaml asks for, as systems are compared (experiments/system_tables.py), with verdicts.

A change pays where the 95 % interval of its difference from ours, over the same seeds, is on its
side of zero: in BLEU at equal updates, in the validation loss there and at equal time.
"""

from experiments.intervals import SEEDS_OF_AN_INTERVAL, Interval, paired_interval
from experiments.records import Record
from experiments.system_tables import SystemsExperiment, bits_of, by_seed
from experiments.tables import Table

NOT_SHOWN = "not shown"


class LaterChanges(SystemsExperiment):
    """The paper's model with one later change each."""

    def tables(self, record: Record) -> list[Table]:
        """The verdicts first."""
        return [verdict_table(record), *super().tables(record)]


make = LaterChanges


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


def cell(values: dict[int, float], reference: dict[int, float], better: int) -> str:
    """``+1.77 ± 0.98: pays``, of figures by seed; a dash if no seed has both."""
    seeds = len(values.keys() & reference.keys())
    difference = paired_interval(values, reference)
    if difference is None:
        return "–"
    return f"{difference.text()}: {verdict(difference, seeds, better)}"


def bits_then(row: dict[str, object]) -> dict[int, float]:
    """The validation loss at equal time, of the runs that had one."""
    return {
        seed: bits for seed, bits in by_seed(row, "bits_at_equal_time").items() if bits is not None
    }


def verdict_table(record: Record) -> Table:
    """Each row minus the first, with its verdicts."""
    (_, first), *later = record["rows"].items()
    minutes = record["equal_seconds"] / 60
    columns = ["change", "BLEU", "validation, bits", f"bits after {minutes:.0f} CPU minutes"]
    lines = []
    for name, row in later:
        bleu = cell(by_seed(row, "bleu"), by_seed(first, "bleu"), better=1)
        bits = cell(bits_of(row), bits_of(first), better=-1)
        at_equal_time = cell(bits_then(row), bits_then(first), better=-1)
        lines.append([name, bleu, bits, at_equal_time])
    note = (
        "Minus ours, the same seeds, with 95 % intervals (Student's t): at equal updates, and when "
        "the row that costs least had ended."
    )
    return Table(columns, lines, note)
