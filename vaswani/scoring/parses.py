"""Scores of a run's parses (section 6.3), whose hypotheses are repaired to trees."""

from vaswani.common.files import Table, sha256_of
from vaswani.data.trees import penn_brackets, read_trees, repair
from vaswani.scoring.evalb import compare_all, summary
from vaswani.scoring.score_input import ScoreInput

LABELS = {
    "recall": "labelled recall",
    "precision": "labelled precision",
    "f1": "F1",
    "complete_match": "complete match",
}


def of_run(system: ScoreInput) -> Table:
    """The figures of a run, with its trees, and the sentences, from 1, that had to be repaired.

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
    files = zip(("hypotheses", "references"), (system.main.files[0], system.trees), strict=True)
    return {
        **summary(compare_all(gold, parses)),
        "files": {name: {"file": str(path), "sha256": sha256_of(path)} for name, path in files},
        "repaired": [number for number, (_, changed) in enumerate(repairs, 1) if changed],
        "parses": [penn_brackets(tree) for tree in parses],
        "translation": system.translation,
    }


def table(report: Table) -> list[str]:
    """The figures as lines to print."""
    lines = [f"{label:<24}{report[key]:6.2f}" for key, label in LABELS.items()]
    lines.append(f"EVALB's rules (COLLINS.prm), {report['sentences']:,} sentences of any length")
    lines.append(f"hypotheses repaired to trees: {len(report['repaired']):,}")
    return lines
