"""Scores of trees, and parsers that need no network."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from experiments.parsing import pcfg
from experiments.parsing.text import Trees
from vaswani.data.trees import Constituent, Tree, linearise, repair
from vaswani.scoring.evalb import compare_all, summary

LENGTHS = (20, 40)
"""F1 of the sentences with at most so many words."""
GRAMMAR = "PCFG on gold tags"


def as_trees(written: Sequence[Sequence[str]], gold: Sequence[Tree]) -> tuple[list[Tree], int]:
    """Return the written trees with the gold tags, and how many had to be repaired."""
    parses = []
    repaired = 0
    for tokens, tree in zip(written, gold, strict=True):
        parse, changed = repair(tokens, tree.words)
        parses.append(parse._replace(tags=tree.tags))
        repaired += changed
    return parses, repaired


def scores(gold: Sequence[Tree], parses: Sequence[Tree]) -> dict[str, Any]:
    """Return EVALB's figures, and F1 of the sentences of each maximum length, in words."""
    compared = compare_all(gold, parses)
    figures = asdict(summary(compared))
    for most in LENGTHS:
        short = [sentence for sentence in compared if sentence.length <= most]
        figures[f"f1 to {most}"] = summary(short).f1
    return figures


def right_branching(trees: Trees) -> list[Tree]:
    """Return right-branching trees: S over the sentence, and inside it NP from each word on."""
    parses = []
    for tree in trees["test"]:
        words = len(tree.words)
        rest = [Constituent("NP", start, words) for start in range(1, words)]
        parses.append(tree._replace(constituents=[Constituent("S", 0, words), *rest]))
    return parses


def same_length(trees: Trees) -> list[Tree]:
    """Return, for each sentence, the tree of a training sentence of the nearest length."""
    train = random.Random(1).sample(trees["train"], len(trees["train"]))
    written = []
    for tree in trees["test"]:
        near = min(train, key=lambda candidate: abs(len(candidate.words) - len(tree.words)))
        written.append(linearise(near))
    return as_trees(written, trees["test"])[0]


def by_grammar(trees: Trees) -> list[Tree]:
    """Return the PCFG's trees; a sentence that its rules do not allow has no constituents."""
    grammar = pcfg.learn(trees["train"])
    return [pcfg.parse(grammar, tree) or tree._replace(constituents=[]) for tree in trees["test"]]


BASELINES: dict[str, Callable[[Trees], list[Tree]]] = {
    "right-branching": right_branching,
    "a training tree of that length": same_length,
    GRAMMAR: by_grammar,
}
