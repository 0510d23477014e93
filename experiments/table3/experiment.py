"""Systems' figures, and each row against the base, beside the paper's difference."""

import math
import statistics
from typing import Any

import yaml

from experiments.harness import HERE
from experiments.intervals import Interval, pooled_width
from experiments.records import Record
from experiments.system_tables import SystemsExperiment, bits_of, by_seed
from experiments.tables import Table

PAPER = yaml.safe_load((HERE.parent / "configs" / "table3.yaml").read_text(encoding="utf-8"))[
    "rows"
]
"""The paper's rows, by name."""


class VariationsExperiment(SystemsExperiment):
    """Rows that stand for rows of the paper's Table 3, the base first."""

    def tables(self, record: Record) -> list[Table]:
        """With the contrasts, as soon as the base has two seeds."""
        tables = super().tables(record)
        contrasts = contrast_table(record)
        return [*tables[:1], *([contrasts] if contrasts else []), *tables[1:]]


def contrast_table(record: Record) -> Table | None:
    """Each row minus the base, in the paper and here; all rows tell the variance of training."""
    rows = dict(record["rows"])
    base = rows.pop("base", {"runs": []})
    if len(base["runs"]) < 2:
        return None
    columns = ["row", "the paper's row"]
    columns += ["BLEU: the paper's difference", "ours", ""]
    columns += ["nll in bits: the paper's difference", "ours", ""]
    bleu = differences({"base": base, **rows}, lambda row: by_seed(row, "bleu"))
    bits = differences({"base": base, **rows}, bits_of)
    lines = []
    for name, row in rows.items():
        paper = PAPER[row["paper"]]
        paper_base = PAPER["base"]
        in_bleu = paper["bleu"] - paper_base["bleu"]
        in_bits = log2_ratio(paper["ppl"], paper_base["ppl"])
        cells = [name, row["paper"]]
        cells += [f"{in_bleu:+.2f}", bleu[name].text(), verdict(in_bleu, bleu[name])]
        cells += [f"{in_bits:+.2f}", bits[name].text(), verdict(in_bits, bits[name])]
        lines.append(cells)
    note = "Each row minus the base, with 95 % intervals (Student's t, variance pooled over rows):"
    return Table(columns, lines, note)


def log2_ratio(perplexity: float, base: float) -> float:
    """The difference in bits per token."""
    return math.log2(perplexity / base)


def differences(rows: dict[str, Any], values_of: Any) -> dict[str, Interval]:
    """Each row's mean minus the base's.

    Args:
        rows: the base among them
        values_of: a row → its figures by seed
    """
    values = {name: list(values_of(row).values()) for name, row in rows.items()}
    width = pooled_width(list(values.values()))
    base = values.pop("base")
    intervals = {}
    for name, of_row in values.items():
        difference = statistics.mean(of_row) - statistics.mean(base)
        factor = (1 / len(of_row) + 1 / len(base)) ** 0.5
        intervals[name] = Interval(difference, width * factor)
    return intervals


def verdict(paper: float, ours: Interval) -> str:
    """What our difference says of the paper's."""
    if not ours.excludes_zero:
        return "not shown"
    return "as in the paper" if paper * ours.value > 0 else "not as in the paper"


make = VariationsExperiment
