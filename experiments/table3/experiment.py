"""Systems' figures, and each row against the base, beside the paper's difference."""

import math

import yaml

from experiments.fairseq_runs import rate_text
from experiments.harness import HERE
from experiments.intervals import SEEDS_OF_AN_INTERVAL, Difference
from experiments.records import Record
from experiments.system_tables import SystemsExperiment, minus_first, rule_of
from experiments.tables import Table

PAPER = yaml.safe_load((HERE.parent / "configs" / "table3.yaml").read_text(encoding="utf-8"))[
    "rows"
]
"""The paper's rows, by name."""
BASE = "base"
"""The row that others are compared with."""


class VariationsExperiment(SystemsExperiment):
    """Rows that stand for rows of the paper's Table 3, the base first."""

    def tables(self, record: Record) -> list[Table]:
        """Return the systems' tables, with the contrasts as soon as the base has two seeds."""
        tables = super().tables(record)
        contrasts = contrast_table(record)
        return [*tables[:1], *([contrasts] if contrasts else []), *tables[1:]]


def contrast_table(record: Record) -> Table | None:
    """Return each row minus the base, in the paper and here; None until the base has two seeds."""
    rows = record["rows"]
    if len(rows.get(BASE, {"runs": []})["runs"]) < 2:
        return None
    columns = ["row", "the paper's row", "rate", "seeds"]
    columns += ["BLEU: the paper's difference", "ours", ""]
    columns += ["nll in bits: the paper's difference", "ours", ""]
    bleu = minus_first(record, "bleu", BASE)
    bits = minus_first(record, "bits", BASE)
    lines = []
    for name, row in rows.items():
        if name not in bleu:
            continue
        paper = PAPER[row["paper"]]
        paper_base = PAPER[BASE]
        in_bleu = paper["bleu"] - paper_base["bleu"]
        in_bits = log2_ratio(paper["ppl"], paper_base["ppl"])
        cells = [name, row["paper"], rate_text(row), str(len(row["runs"]))]
        cells += [f"{in_bleu:+.2f}", bleu[name].text(), verdict(in_bleu, bleu[name])]
        cells += [f"{in_bits:+.2f}", bits[name].text("+.3f"), verdict(in_bits, bits[name])]
        lines.append(cells)
    return Table(columns, lines, rule_of(record, BASE))


def log2_ratio(perplexity: float, base: float) -> float:
    """Return the difference of two perplexities in bits per token."""
    return math.log2(perplexity / base)


def verdict(paper: float, ours: Difference) -> str:
    """Return whether our difference agrees with the paper's, in words."""
    if ours.seeds < SEEDS_OF_AN_INTERVAL:
        return "too few seeds"
    if not ours.shown:
        return "not significant"
    return "as in the paper" if paper * ours.value > 0 else "not as in the paper"


make = VariationsExperiment
