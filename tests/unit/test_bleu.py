"""The measures: n-grams counted by hand, the rule for compounds, what each variant does."""

import math

import pytest

from tests.properties import given, some
from vaswani.data.tokenisation import moses_tokeniser
from vaswani.scoring import bleu


def expected(precisions, length, reference):
    """Compute BLEU's formula (Papineni et al., 2002)."""
    penalty = math.exp(1 - reference / length) if length < reference else 1.0
    return 100 * math.prod(precisions) ** 0.25 * penalty


@pytest.mark.paper("6.1")
@pytest.mark.parametrize(
    ("hypotheses", "references", "precisions", "lengths"),
    [
        (["a b c d f g"], ["a b c d e f g"], (6 / 6, 4 / 5, 2 / 4, 1 / 3), (6, 7)),
        # counts are clipped at the reference's: "a" twice, "a a" once
        (["a a a a b c d"], ["a a b c d"], (5 / 7, 4 / 6, 3 / 5, 2 / 4), (7, 5)),
        # over the corpus, not by sentence: 4+3, 3+2, 2+1, 1+0 of 4+4, 3+3, 2+2, 1+1
        (["a b c d", "x y z q"], ["a b c d", "x y z w"], (7 / 8, 5 / 6, 3 / 4, 1 / 2), (8, 8)),
        # an empty line has no n-grams, but its reference has a length
        (["a b c d", ""], ["a b c d", "x y"], (1, 1, 1, 1), (4, 6)),
        # not smoothed: no 4-gram, no score
        (["a b c x"], ["a b c d"], (3 / 4, 2 / 3, 1 / 2, 0), (4, 4)),
        # case counts
        (["A b c d e"], ["a b c d e"], (4 / 5, 3 / 4, 2 / 3, 1 / 2), (5, 5)),
    ],
)
def test_n_grams_counted_by_hand(hypotheses, references, precisions, lengths):
    found = bleu.multi_bleu("", hypotheses, references)
    assert found.score == pytest.approx(expected(precisions, *lengths), abs=0.005)
    shown = "/".join(f"{100 * precision:.1f}" for precision in precisions)
    assert found.text.split()[3] == shown
    assert f"hyp_len = {lengths[0]} ref_len = {lengths[1]}" in found.text


def test_only_ascii_spaces_part_tokens():
    """As Perl on bytes: multi-bleu.perl counts 5 tokens here, Python's split 6."""
    line = "a\u00a0b c d\u2009e f g"
    assert "hyp_len = 5 ref_len = 5" in bleu.multi_bleu("", [line], [line]).text


@pytest.mark.parametrize(
    ("line", "split"),
    [  # as Perl does it, on bytes: a match takes one byte of the letter after its hyphen
        ("x-y-z", "x ##AT##-##AT## y-z"),
        ("ä-ö-ü", "ä ##AT##-##AT## ö ##AT##-##AT## ü"),
    ],
)
def test_compounds_are_split_by_bytes(line, split):
    assert bleu.split_compounds(line) == split


#: which of the four variants see no difference: 2017, with quotes, 2018, with quotes
@pytest.mark.parametrize(
    ("hypothesis", "reference", "same"),
    [
        ('Er sagt "ja" zu ihr', "Er sagt „ja“ zu ihr", [False, True, False, True]),
        ("Er sagt “ja” zu ihr", 'Er sagt "ja" zu ihr', [False, False, True, True]),
        # one side is changed and the other is not
        ("Er sagt „ja“ zu ihr", "Er sagt „ja“ zu ihr", [True, False, False, False]),
    ],
)
def test_each_variant_changes_its_quotes(hypothesis, reference, same):
    rows = bleu.compound_split_rows([hypothesis], [reference], "de")
    assert [row.score == 100.0 for row in rows.values()] == same


WORDS = ["Haus", "der", "Straße", "3,5", "ist", '"so"', "d'or", "ä", "(nein)", "50%", "&"]
TEXT = some.lists(some.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
PAIRS = some.lists(some.tuples(TEXT, TEXT), min_size=1, max_size=8)


@given(PAIRS)
def test_without_hyphens_compound_split_is_tokenised(pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    tokens = ([*map(moses_tokeniser("de"), side)] for side in (hypotheses, references))
    plain = bleu.multi_bleu("", *tokens)
    for row in bleu.compound_split_rows(hypotheses, references, "de").values():
        assert row.text == plain.text
