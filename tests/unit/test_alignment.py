"""Words of subwords, which looks at which, and copies in place of the unknown."""

import pytest

from vaswani.decoding.translator import Word, aligned_words, replace_unknown, words_of

HAUS = [Word("Haus", 0, 1), Word("am", 2, 2), Word("See", 3, 5)]


@pytest.mark.parametrize(
    "subwords, words",
    [
        ("Ha@@ us am S@@ e@@ e", HAUS),
        ("am", [Word("am", 0, 0)]),
        ("S@@ e@@", [Word("See"[:2], 0, 1)]),  # it goes on, but the sentence ends
        ("", []),
    ],
)
def test_words_of_subwords(subwords, words):
    assert words_of(subwords.split()) == words


@pytest.mark.parametrize(
    "looked_at, pairs",
    [
        ([0, 2, 3], [(0, 0), (1, 1), (2, 2)]),
        ([5, 1, 0], [(2, 0), (0, 1), (0, 2)]),
    ],
)
def test_a_word_looks_at_words(looked_at, pairs):
    assert aligned_words(HAUS, words_of(["a", "b", "c"]), looked_at) == pairs


def test_a_pair_of_words_is_one_however_many_pieces_it_has():
    assert aligned_words(HAUS, words_of(["a@@", "b@@", "c"]), [0, 1, 4]) == [(0, 0), (2, 0)]


@pytest.mark.parametrize(
    "subwords, looked_at, kept",
    [
        ("a <unk> b", [0, 2, 3], "a am b"),
        ("<unk> <unk> b", [0, 1, 3], "Haus b"),  # two subwords of one word are one copy
        ("<unk> b <unk>", [0, 3, 1], "Haus b Haus"),
        ("<unk> <unk>", [2, 3], "am See"),
        ("a@@ b", [2, 3], "a@@ b"),
    ],
)
def test_copies_in_place_of_the_unknown(subwords, looked_at, kept):
    found, looks = replace_unknown(subwords.split(), looked_at, HAUS, "<unk>")
    assert found == kept.split() and len(looks) == len(found)
