"""experiments/parsing: the grammar finds the likeliest tree, the search writes one."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.parsing import pcfg
from experiments.parsing import text as parsing_text
from experiments.parsing.search import Brackets, PartialTree, greedy
from vaswani.data.trees import Tree, linearise, parse_tree, read_trees, repair
from vaswani_transformer import Vocabulary
from vaswani_transformer.encoder import Memory

GOLD = read_trees(Path(__file__).resolve().parents[1] / "evalb" / "gold.ptb")


def log_p(tree: Tree, trees: list[Tree], remembered: int) -> float:
    """Return a tree's log-probability, by counting the rules of the training trees."""
    rules = Counter(r for one in trees for r in pcfg.rules_of(pcfg.nest(one), remembered))
    parents: Counter = Counter()
    for rule, count in rules.items():
        parents[rule[0]] += count
    used = pcfg.rules_of(pcfg.nest(tree), remembered)
    return sum(math.log(rules[rule] / parents[rule[0]]) for rule in used)


def test_the_grammar_chooses_by_relative_frequency() -> None:
    """A PP inside the object in n trees of n + m, beside it in m.

    NP → NP PP has n of NP's 3n + 2m. So inside has n/(n + m) · n/(3n + 2m), and beside m/(n + m).
    """
    inside = parse_tree("(TOP (S (VP (V saw) (NP (NP (N men)) (PP (P in) (NP (N parks)))))))")
    beside = parse_tree("(TOP (S (VP (V saw) (NP (N men)) (PP (P in) (NP (N parks))))))")
    for n, m, likelier in ((9, 1, inside), (3, 1, beside)):
        assert pcfg.parse(pcfg.learn([inside] * n + [beside] * m), inside) == likelier


@pytest.mark.parametrize("remembered", [0, 1, 9])
def test_the_likeliest_tree_has_the_probability_of_its_rules(remembered: int) -> None:
    """And is at least as likely as the treebank's."""
    grammar = pcfg.learn(GOLD, remembered)
    for gold in (tree for tree in GOLD if len(tree.words) <= 15):
        found = pcfg.parse(grammar, gold)
        assert found and found.tags == gold.tags
        best = pcfg.Chart(grammar, gold.tags).best[0, -1, grammar.symbols.index("TOP")]
        assert log_p(found, GOLD, remembered) == pytest.approx(best, rel=1e-4)
        assert best >= log_p(gold, GOLD, remembered) - 1e-3


class Thoughtless:
    """A decoder that says anything."""

    layers: tuple[Any, ...] = ()

    def __init__(self, types: int) -> None:
        self.types = types
        self.dice = torch.Generator().manual_seed(1)

    def step(self, tokens: torch.Tensor, memory: Memory, cache: object) -> torch.Tensor:
        return torch.randn(len(tokens), self.types, generator=self.dice)


@pytest.mark.parametrize("tags", [False, True])
def test_constrained_search_writes_one_tree_with_a_leaf_for_each_word(tags: bool) -> None:
    types = Vocabulary(
        [*sorted({t for tree in GOLD for t in linearise(tree, tags)}), "madeupword0"]
    )
    brackets = Brackets(types)
    lengths = [len(tree.words) for tree in GOLD]
    partial = [PartialTree(brackets, length) for length in lengths]
    memory = Memory(torch.zeros(len(GOLD), 1, 1))
    written = greedy(Thoughtless(len(types)), memory, 0, partial)
    for tree, ids in zip(GOLD, written, strict=True):
        tokens = types.decode(ids)
        again, changed = repair(tokens, tree.words)
        assert not changed and len(again.tags) == len(tree.words)
        assert again.constituents[0][1:] == (0, len(tree.words))
    assert all(len(ids) <= 5 for ids in greedy(Thoughtless(len(types)), memory, 5))


def test_constrained_search_can_write_the_treebanks_trees() -> None:
    types = Vocabulary(sorted({token for tree in GOLD for token in linearise(tree)}))
    whole = [tree for tree in GOLD if [type(one) for one in pcfg.nest(tree)[1]] == [tuple]]
    for tree in whole:
        partial = PartialTree(Brackets(types), len(tree.words))
        for token in types.encode(linearise(tree)):
            assert token in partial.allowed()
            partial.add(token)


def test_another_sentence_is_another_one() -> None:
    lengths = [len(tree.words) for tree in GOLD]
    found = parsing_text.nearest_in_length(lengths)
    assert all(here != other for here, other in enumerate(found))
    apart = [abs(lengths[here] - lengths[other]) for here, other in enumerate(found)]
    assert sorted(apart)[len(apart) // 2] <= 1


def test_rare_words_are_classes_and_every_class_is_known() -> None:
    trees = {"train": GOLD[:60], "valid": GOLD[60:70], "test": GOLD[70:]}
    assert parsing_text.suffix_class("Un-2nd") == "<A0-~nd>"
    found = parsing_text.sources(trees, "words")
    known = {word for sentence in found["train"] for word in sentence}
    for split in ("valid", "test"):
        words = {word for sentence in found[split] for word in sentence}
        assert all(word in known or word.endswith("~>") for word in words)
    assert len(known) < len({word for tree in trees["train"] for word in tree.words})
