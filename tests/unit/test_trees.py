"""Trees: what is read, what is refused, the sequence they become, and the way back."""

import pytest

from tests.files import write
from tests.properties import given, some
from vaswani.common.errors import UserError
from vaswani.data.trees import linearise, parse_tree, penn_brackets, read_trees, repair

#: the example of Vinyals et al. 2015, figure 2
JOHN = "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"
WORDS = ["John", "has", "a", "dog", "."]


@pytest.mark.paper("6.3")
def test_the_example_of_vinyals_et_al():
    tree = parse_tree(JOHN)
    assert tree.words == WORDS and tree.tags == ["NNP", "VBZ", "DT", "NN", "."]
    assert tree.constituents == [("S", 0, 5), ("NP", 0, 1), ("VP", 1, 4), ("NP", 2, 4)]
    assert " ".join(linearise(tree)) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"
    with_tags = "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"
    assert " ".join(linearise(tree, tags=True)) == with_tags
    assert penn_brackets(tree) == JOHN


def test_roots_functions_and_traces_are_normalised():
    """The Penn Treebank's form: a root without label, NP-SBJ-1, NP=2, empty elements."""
    inner = JOHN[5:-1]
    for root in ("", "TOP ", "ROOT ", "S1 "):
        assert parse_tree(f"({root}{inner})") == parse_tree(inner) == parse_tree(JOHN)
    written = (
        "( (S (NP-SBJ-1 (NNP John)) (VP=2 (VBZ has) (NP (DT a) (NN dog))"
        " (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)) )"
    )
    assert parse_tree(written) == parse_tree(JOHN)
    assert parse_tree("(X (-LRB- -LRB-) (NN-X a=b))").tags == ["-LRB-", "NN-X"]


@pytest.mark.parametrize(
    "line",
    ["", "(S (NN a b))", "(S (NN a)", "(S (NN a)))", "(S (NN a)) (S (NN b))"],
)
def test_malformed_trees_are_refused_with_their_line(tmp_path, line):
    file = write(tmp_path / "trees.ptb", JOHN, line, JOHN)
    with pytest.raises(UserError, match=r"trees\.ptb, line 2"):
        read_trees(file)


@pytest.mark.parametrize(
    ("hypothesis", "repaired"),
    [
        # closed too early, too late, or not at all
        (
            "(S (NP XX )NP (VP XX (NP XX XX )VP XX )S",
            "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S",
        ),
        ("(S (NP XX )NP )PP )NP XX XX XX XX )S", "(S (NP XX )NP XX XX XX XX )S"),
        # too few words, too many, none
        ("(S (NP XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP XX )VP XX XX XX )S"),
        ("(S XX XX XX XX XX (NP XX )NP XX )S", "(S XX XX XX XX XX )S"),
        ("", "XX XX XX XX XX"),
        # open without end, as of a model that has learned nothing: deeper than Python could recurse
        ("(NP " * 5000, ("(NP " * 5000 + "XX XX XX XX XX" + " )NP" * 5000)),
    ],
)
def test_a_hypothesis_is_repaired(hypothesis, repaired):
    tree, changed = repair(hypothesis.split(), WORDS)
    assert changed and tree.words == WORDS
    assert linearise(tree) == repaired.split()
    assert repair(repaired.split(), WORDS) == (tree, False)


@given(
    some.lists(some.sampled_from(["(S", "(NP", ")S", ")NP", "XX", "NN"]), max_size=12),
    some.lists(some.text("abc", min_size=1, max_size=3), min_size=1, max_size=5),
)
def test_any_sequence_becomes_a_tree_over_the_words(tokens, words):
    """Its constituents lie within one another, and what is a tree stays as it is."""
    tree, changed = repair(tokens, words)
    assert tree.words == words and len(tree.tags) == len(words)
    assert all(0 <= one.start < one.end <= len(words) for one in tree.constituents)
    assert parse_tree(penn_brackets(tree)) == tree
    assert repair(linearise(tree, tags=True), words) == (tree, False)
    assert changed == (linearise(tree, tags=True) != tokens)
