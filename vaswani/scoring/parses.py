"""Scores of a run's parses (section 6.3), whose hypotheses are repaired to trees."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vaswani.data.trees import penn_brackets, read_trees, repair
from vaswani.scoring.evalb import ParseFigures, compare_all, summary
from vaswani.scoring.score_input import ScoreInput, fingerprint_of

LABELS = {
    "recall": "labelled recall",
    "precision": "labelled precision",
    "f1": "F1",
    "complete_match": "complete match",
}


@dataclass(frozen=True)
class ParseReport:
    """The figures of a run's parses.

    Attributes:
        figures: of the repaired trees
        files: the hypotheses, and the treebank's trees
        repaired: the sentences, from 1, whose hypotheses were no trees
        parses: the trees, in Penn brackets
        translation: how the run decoded
    """

    figures: ParseFigures
    files: dict[str, Path]
    repaired: list[int]
    parses: list[str]
    translation: Mapping[str, Any]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON holds it."""
        return {
            **asdict(self.figures),
            "files": {name: fingerprint_of(path) for name, path in self.files.items()},
            "repaired": self.repaired,
            "parses": self.parses,
            "translation": self.translation,
        }

    def lines(self) -> list[str]:
        """Return the figures as lines to print."""
        lines = [f"{label:<24}{getattr(self.figures, key):6.2f}" for key, label in LABELS.items()]
        sentences = f"{self.figures.sentences:,} sentences of any length"
        lines.append(f"EVALB's rules (COLLINS.prm), {sentences}")
        lines.append(f"hypotheses repaired to trees: {len(self.repaired):,}")
        return lines


def of_run(system: ScoreInput) -> ParseReport:
    """Compare a run's parses with the treebank's.

    The trees have the treebank's tags, also where the run wrote others: they only tell what is
    punctuation, and by other tags EVALB would take the sentence for another one.

    Raises:
        UserError: the treebank's trees are gone, or not one a line.
    """
    assert system.trees, "it writes trees"
    gold = read_trees(system.trees)
    hypotheses = system.main.hypotheses
    repairs = [
        repair(line.split(), tree.words) for line, tree in zip(hypotheses, gold, strict=True)
    ]
    parses = [
        parse._replace(tags=tree.tags) for (parse, _), tree in zip(repairs, gold, strict=True)
    ]
    return ParseReport(
        figures=summary(compare_all(gold, parses)),
        files={"hypotheses": system.main.files[0], "references": system.trees},
        repaired=[number for number, (_, changed) in enumerate(repairs, 1) if changed],
        parses=[penn_brackets(tree) for tree in parses],
        translation=system.translation,
    )
