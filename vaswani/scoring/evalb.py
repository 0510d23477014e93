"""Labelled brackets of parses against the treebank's (section 6.3, Table 4), by EVALB's rules.

A constituent is right if the other tree has one with the same label over the same words. The rules
are those of COLLINS.prm, the parameters that results on the Wall Street Journal are quoted with:

- punctuation is deleted from both trees, by its tags; neither the root nor the tags count;
- a constituent without words after that does not count; ADVP and PRT are the same label;
- a sentence whose trees then have different words is an error, and one without words is skipped:
  they are left out of every figure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vaswani.data.trees import ROOT, TRACE, Constituent, Tree

DELETED = {ROOT, TRACE, ",", ":", "``", "''", "."}
SAME_AS = {"PRT": "ADVP"}
VALID, ERROR, SKIPPED = range(3)


class Comparison(NamedTuple):
    """One sentence, as EVALB's table shows it; nothing is counted of one that is left out."""

    #: words of the gold tree, with punctuation
    length: int
    #: ``VALID``; ``ERROR``: the trees have different words; ``SKIPPED``: there are none
    status: int = VALID
    #: constituents that agree, and those of each tree
    matched: int = 0
    gold: int = 0
    test: int = 0


def compare_trees(gold: Tree, test: Tree) -> Comparison:
    """Compare a parse with the treebank's tree of the same sentence."""
    gold_kept, test_kept = without_punctuation(gold), without_punctuation(test)
    if not test_kept.words:
        return Comparison(len(gold.words), SKIPPED)
    if gold_kept.words != test_kept.words:
        return Comparison(len(gold.words), ERROR)
    counts, test_counts = Counter(gold_kept.constituents), Counter(test_kept.constituents)
    return Comparison(
        length=len(gold.words),
        matched=sum((counts & test_counts).values()),
        gold=len(gold_kept.constituents),
        test=len(test_kept.constituents),
    )


def without_punctuation(tree: Tree) -> Tree:
    """Return the tree as EVALB counts it: without punctuation, PRT as ADVP."""
    places = [place for place, tag in enumerate(tree.tags) if tag not in DELETED]
    before = [0]  # how many words are kept before each word
    for tag in tree.tags:
        before.append(before[-1] + (tag not in DELETED))
    moved = [
        Constituent(SAME_AS.get(label, label), before[start], before[end])
        for label, start, end in tree.constituents
        if label not in DELETED and before[end] > before[start]
    ]
    return Tree([tree.words[n] for n in places], [tree.tags[n] for n in places], moved)


def compare_all(gold: Sequence[Tree], test: Sequence[Tree]) -> list[Comparison]:
    """Compare trees one by one."""
    return [compare_trees(*pair) for pair in zip(gold, test, strict=True)]


def errors(comparisons: Sequence[Comparison]) -> list[int]:
    """Return the lines, from 1, of the sentences that are left out."""
    return [n for n, comparison in enumerate(comparisons, 1) if comparison.status == ERROR]


@dataclass(frozen=True)
class ParseFigures:
    """The figures of Table 4, in percent, over all sentences that are not errors.

    Recall and precision are of all constituents together, not means of sentences; F1 is their
    harmonic mean; ``complete_match`` is the share of sentences in which all constituents agree.

    Attributes:
        sentences: how many there are
        errors: the lines, from 1, of the sentences that are left out
    """

    recall: float
    precision: float
    f1: float
    complete_match: float
    sentences: int
    errors: list[int]


def summary(comparisons: Sequence[Comparison]) -> ParseFigures:
    """Sum up the comparisons of all sentences."""
    valid = [comparison for comparison in comparisons if comparison.status == VALID]
    matched, gold, test = (
        sum(getattr(comparison, key) for comparison in valid) for key in ("matched", "gold", "test")
    )
    whole = sum(comparison.matched == comparison.gold == comparison.test for comparison in valid)
    return ParseFigures(
        recall=percent(matched, gold),
        precision=percent(matched, test),
        f1=percent(2 * matched, gold + test),
        complete_match=percent(whole, len(valid)),
        sentences=len(valid),
        errors=errors(comparisons),
    )


def percent(part: int, whole: int) -> float:
    """Return a share in percent; 0 if the whole is 0."""
    return 100 * part / whole if whole else 0.0
