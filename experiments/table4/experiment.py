"""The parser of Table 4, small: scores of its trees by EVALB's rules."""

from pathlib import Path
from typing import Any

from experiments.fairseq_runs import FairseqExperiment
from experiments.records import Record
from experiments.tables import Table
from vaswani.common.files import read_json

FIGURES = ("recall", "precision", "f1", "complete_match")


class ParserExperiment(FairseqExperiment):
    """One model, scored as ``vaswani score`` scores trees."""

    def measure(self, run: Path) -> dict[str, Any]:
        """Return labelled recall, precision, F1 and complete match, in per cent."""
        scores = read_json(run / "eval" / "test.score.json")
        return {name: scores[name] for name in FIGURES}

    def tables(self, record: Record) -> list[Table]:
        """Return the table with a line for each seed."""
        lines = [
            [Path(run["run"]).name, *(f"{run[name]:.2f}" for name in FIGURES)]
            for run in record["rows"]["ours"]["runs"]
        ]
        return [Table(["run", "recall", "precision", "F1", "complete match, %"], lines)]


make = ParserExperiment
