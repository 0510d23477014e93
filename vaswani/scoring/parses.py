"""Scores of parses (section 6.3): of a run, whose hypotheses are repaired to trees, or of files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.data.trees import Tree, penn_brackets, read_trees, repair
from vaswani.scoring.evalb import compare_all, summary
from vaswani.scoring.score_input import ScoreInput

LABELS = {
    "recall": "labelled recall",
    "precision": "labelled precision",
    "f1": "F1",
    "complete_match": "complete match",
}


def of_run(system: ScoreInput) -> dict[str, Any]:
    """The figures of a run, with its trees, and the sentences, from 1, that had to be repaired.

    The trees have the treebank's tags, also where the run wrote others: they only tell what is
    punctuation, and by other tags EVALB would take the sentence for another one.

    Raises:
        UserError: the run does not write trees, or the treebank's trees are gone.
    """
    if not system.trees:
        raise UserError("--trees: this run writes text, not the trees of 'vaswani prepare trees'")
    gold, hypotheses = read_trees(system.trees), system.main.hypotheses
    # other numbers of lines are refused when they are compared
    pairs = list(zip(hypotheses, gold, strict=False))
    repairs = [repair(line.split(), tree.words) for line, tree in pairs]
    parses = [
        parse._replace(tags=tree.tags) for (parse, _), (_, tree) in zip(repairs, pairs, strict=True)
    ]
    return {
        **figures(parses, gold, (system.main.files[0], system.trees)),
        "repaired": [number for number, (_, changed) in enumerate(repairs, 1) if changed],
        "parses": [penn_brackets(tree) for tree in parses],
        "translation": system.translation,
    }


def of_files(parses: Path, treebank: Path) -> dict[str, Any]:
    """The figures of two files of trees in Penn brackets, line by line.

    Raises:
        UserError: one is missing or empty, or a line is not a tree.
    """
    return figures(read_trees(parses), read_trees(treebank), (parses, treebank))


def figures(test: Sequence[Tree], gold: Sequence[Tree], files: tuple[Path, Path]) -> dict[str, Any]:
    """EVALB's figures, and the files' fingerprints.

    Raises:
        UserError: the trees are of other sentences.
    """
    named = zip(("hypotheses", "references"), files, strict=True)
    return {
        **summary(compare_all(gold, test)),
        "files": {name: {"file": str(path), "sha256": sha256_of(path)} for name, path in named},
    }


def table(report: dict[str, Any]) -> list[str]:
    """The figures as lines to print."""
    lines = [f"{label:<24}{report[key]:6.2f}" for key, label in LABELS.items()]
    lines.append(f"EVALB's rules (COLLINS.prm), {report['sentences']:,} sentences of any length")
    if "repaired" in report:
        lines.append(f"hypotheses repaired to trees: {len(report['repaired']):,}")
    if report["errors"]:
        named = ", ".join(f"{number:,}" for number in report["errors"])
        lines.append(f"left out, with other words than their references: lines {named}")
    return lines
