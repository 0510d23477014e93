"""Which pairs stay, and what becomes of odd text on the way."""

from functools import partial

import pytest

from vaswani.common.errors import UserError
from vaswani.data import bpe, pairs, text
from vaswani.data.pairs import Limits, cleaning_work, tokenising_work
from vaswani.data.text import Chunk
from vaswani.data.tokenisation import normaliser
from vaswani.folders.recipe import TextRecipe


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a b", "c d", None),
        ("a b c d e f", "g h i j k", "of more than 5 words"),
        ("a", "c d", "of fewer than 2 words"),
        ("a b", "c d e", None),
        ("a b", "c d e f", "more than 1.5 times longer on one side"),
        ("", "a b", pairs.EMPTY),
        ("a b", "c " + "x" * 1001, "with a word of more than 1,000 letters"),
    ],
)
def test_the_limits_are_those_of_moses(source, target, reason):
    """clean-corpus-n: words below min or above max on either side, longer above ratio × shorter."""
    assert Limits(2, 5, 1.5).reason(source, target) == reason


def chunk(*rows):
    """Return a chunk of pairs of bytes."""
    sides = [b"".join(row[side] + b"\n" for row in rows) for side in (0, 1)]
    return Chunk(1, sides, len(rows))


NAMES = ("t.en", "t.de")
CLEANED = partial(cleaning_work, TextRecipe("en", "de"), NAMES, clean_up=True)


def test_broken_utf8_costs_an_archive_a_pair_and_stops_ones_own_text():
    rows = chunk((b"a", b"b"), (b"caf\xe9", b"c"), (b"d", b"\xff\xfe"))
    outcome = CLEANED(lenient=True)(rows)
    assert outcome.sides == [b"a\n", b"b\n"] and outcome.report.dropped == {pairs.NOT_UTF8: 2}
    with pytest.raises(UserError, match=r"t\.en, line 2"):
        CLEANED()(rows)


@pytest.mark.parametrize("odd", ["\0", "\r", "\x85", "\u2028"])
def test_a_character_that_ends_a_line_for_some_programs_becomes_a_space(odd):
    outcome = CLEANED()(chunk((f"a{odd}b".encode(), b"d"), (odd.encode(), b"x")))
    assert outcome.sides == [b"a b\n", b"d\n"] and outcome.report.dropped == {pairs.EMPTY: 1}


def test_dos_line_ends_and_byte_order_marks_go():
    assert CLEANED()(chunk((b"\xef\xbb\xbfa b\r", b"c\r"))).sides == [b"a b\n", b"c\n"]


def test_blank_sides_are_dropped_in_training_and_kept_otherwise():
    rows = chunk((b"a", b"d"), (b"", b"e"), (b"b", b" \xe2\x80\x8b"))
    assert CLEANED()(rows).sides == [b"a\n", b"d\n"]
    kept = CLEANED(clean_up=False)(rows)
    assert kept.sides == [b"a\n\nb\n", b"d\ne\n\n"]


def test_every_nth_pair_is_held_out_counted_over_all_parts():
    """As fairseq's script does with ``NR % 100 == 0``, here every third, after 4 earlier pairs."""
    rows = chunk(*[(b"%d" % n, b"%d" % n) for n in range(1, 8)])
    outcome = CLEANED(valid_every=3, before=4)(rows)
    assert outcome.sides[2] == b"2\n5\n", "pairs 6 and 9 of all"
    assert outcome.sides[0] == b"1\n3\n4\n6\n7\n"
    assert (outcome.report.held_out, outcome.report.kept, outcome.report.seen) == (2, 5, 7)


def test_normalisation_is_moses():
    """What the two Perl scripts say: quotes and dashes to ASCII, 3 % joined, controls to spaces."""
    assert normaliser("de")("„Zitat“ – 3 % (so )") == '"Zitat" - 3% (so)'
    assert normaliser("en")('he said "no", twice') == 'he said "no," twice'
    assert normaliser("de")("a\u200bb") == "a b"


def test_hyphens_and_apostrophes_as_fairseqs_script_has_them():
    rows = chunk(("it’s well-known".encode(), "gut-bekannt".encode()))
    as_scripts = TextRecipe("en", "de", split_hyphens=True, straight_apostrophes=True)
    split = tokenising_work(as_scripts, "test", None, NAMES)(rows)
    assert split.sides == [b"it &apos;s well @-@ known\n", b"gut @-@ bekannt\n"]
    plain = tokenising_work(TextRecipe("en", "de"), "test", None, NAMES)(rows)
    assert plain.sides[0].decode() == "it ’ s well-known\n"


def test_size_in_types_counts_characters_too(tmp_path):
    """6 types: the characters a, b inside, c at the end of words, so three merges."""
    text.write_lines(tmp_path / "t", ["abc"] * 3 + ["aabc"] * 2 + ["ababc"] * 2)
    bpe.learn([tmp_path / "t"], tmp_path / "codes", 6, types=True)
    assert len((tmp_path / "codes").read_text().splitlines()) == 1 + 3
