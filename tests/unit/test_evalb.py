"""Scores of parses: every figure that EVALB prints for 80 pairs of trees (``tests/evalb``)."""

from pathlib import Path

import pytest

from vaswani.data.trees import parse_tree, read_trees
from vaswani.scoring.evalb import compare_all, percent, summary

FOLDER = Path(__file__).resolve().parents[1] / "evalb"
GOLD, PARSED = (read_trees(FOLDER / name) for name in ("gold.ptb", "parsed.ptb"))
TABLE, SUMMARY = (FOLDER / "evalb.txt").read_text(encoding="utf-8").split("=== Summary ===")


def line(number, found):
    """Return a comparison as EVALB prints it, in the first eight columns."""
    shares = [(found.matched, found.gold), (found.matched, found.test)]
    recall, precision = (f"{percent(*share):.2f}" for share in shares)
    counts = (found.matched, found.gold, found.test)
    return [*map(str, (number, found.length, found.status, recall, precision, *counts))]


@pytest.mark.paper("6.3")
def test_every_sentence_has_evalbs_figures():
    theirs = [row.split()[:8] for row in TABLE.splitlines()[3:-2]]
    ours = [line(n, found) for n, found in enumerate(compare_all(GOLD, PARSED), 1)]
    assert ours == theirs


@pytest.mark.paper("6.3")
@pytest.mark.parametrize(("part", "longest"), [("All", 1000), ("len<=40", 40)])
def test_the_sums_are_evalbs(part, longest):
    lines = SUMMARY.split(f"-- {part} --")[1].split("\n\n")[0].splitlines()
    theirs = {name.strip(): value.strip() for name, value in (one.split(" =") for one in lines[1:])}
    ours = summary([one for one in compare_all(GOLD, PARSED) if one.length <= longest])
    named = {
        "recall": "Bracketing Recall",
        "precision": "Bracketing Precision",
        "f1": "Bracketing FMeasure",
        "complete_match": "Complete match",
    }
    assert {key: f"{getattr(ours, key):.2f}" for key in named} == {
        key: theirs[name] for key, name in named.items()
    }
    assert str(ours.sentences) == theirs["Number of Valid sentence"]
    assert str(len(ours.errors)) == theirs["Number of Error sentence"]


def test_sentences_with_other_words_are_left_out():
    one, other = parse_tree("(S (NN a))"), parse_tree("(S (NN b))")
    found = compare_all([one] * 12, [one, *[other] * 10, one])
    assert summary(found).errors == [*range(2, 12)] and summary(found).recall == 100.0
