"""Which pairs stay, and what becomes of odd text on the way."""

from collections import Counter
from functools import partial

import pytest

from vaswani.common.errors import UserError
from vaswani.data import bpe, clean, text
from vaswani.data.clean import Limits, Report
from vaswani.data.parallel import Chunk
from vaswani.data.sentences import Sentences, normaliser
from vaswani.data.tokenise import Tokens


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a b", "c d", None),
        ("a b c d e", "f g h i j", None),
        ("a b c d e f", "g h i j k", "of more than 5 words"),
        ("a", "c d", "of fewer than 2 words"),
        ("a b", "c d e", None),
        ("a b", "c d e f", "more than 1.5 times longer on one side"),
        ("a b c d", "e f", "more than 1.5 times longer on one side"),
        ("", "a b", clean.EMPTY),
        ("a " + "x" * 1000, "b c", None),
        ("a b", "c " + "x" * 1001, "with a word of more than 1,000 letters"),
    ],
)
def test_the_limits_are_those_of_moses(source, target, reason):
    """clean-corpus-n: words below min or above max on either side, longer above ratio × shorter."""
    assert Limits(2, 5, 1.5).reason(source, target) == reason


def test_without_limits_only_what_has_no_end_goes():
    assert Limits().reason("a", "b " * 9999) is None
    assert Limits().reason("a", "x" * 1001) is not None


def test_counts_add_up_and_examples_are_kept():
    whole = Report(seen=3, kept=3)
    chunk = Report(seen=5, kept=2)
    for line in (1, 2):
        chunk.drop("too long", f"t, line {line}", "x" * 999, "y")
    chunk.drop("odd", "t, line 3", "z", "z")
    whole.add(chunk)
    assert whole.summary() == "5 pairs of 8; left out: 2 too long, 1 odd"
    assert whole.seen == whole.kept + sum(whole.dropped.values())
    assert whole.examples["too long"][0] == ("t, line 1", "x" * clean.EXAMPLE_LENGTH, "y")
    for _ in range(clean.EXAMPLES):
        whole.add(chunk)
    assert len(whole.examples["too long"]) == clean.EXAMPLES


def chunk(*rows):
    """A chunk of pairs of bytes."""
    sides = [b"".join(row[side] + b"\n" for row in rows) for side in (0, 1)]
    return Chunk(1, sides, len(rows))


def test_broken_utf8_costs_an_archive_a_pair_and_stops_ones_own_text():
    rows = chunk((b"a", b"b"), (b"caf\xe9", b"c"), (b"d", b"\xff\xfe"))
    make = partial(Sentences, ("t.en", "t.de"), ("en", "de"), clean_up=True)
    outcome = make(lenient=True)(rows)
    assert outcome.sides == [b"a\n", b"b\n"] and outcome.report.dropped == {clean.NOT_UTF8: 2}
    with pytest.raises(UserError, match=r"t\.en, line 2: byte 4 is not UTF-8"):
        make()(rows)


def test_nul_tabs_and_separators_are_spaces_on_their_own_line():
    rows = chunk((b"a\x00b\tc", "d\u2028e\x85f\u2029g".encode()), (b"\x00", b"x"))
    outcome = Sentences(("s", "t"), ("en", "de"), clean_up=True)(rows)
    assert outcome.sides == [b"a b c\n", b"d e f g\n"]
    assert outcome.report.dropped == {clean.EMPTY: 1}


def test_every_nth_pair_is_held_out_counted_over_all_parts():
    """As fairseq's script does with ``NR % 100 == 0``, here every third, after 4 earlier pairs."""
    rows = chunk(*[(b"%d" % n, b"%d" % n) for n in range(1, 8)])
    make = partial(Sentences, ("s", "t"), ("en", "de"), clean_up=True, valid_every=3)
    outcome = make(before=4)(rows)
    assert outcome.held_out[0] == b"2\n5\n", "pairs 6 and 9 of all"
    assert outcome.sides[0] == b"1\n3\n4\n6\n7\n"
    assert (outcome.report.held_out, outcome.report.kept, outcome.report.seen) == (2, 5, 7)


def test_normalisation_is_moses():
    """What the two Perl scripts say: quotes and dashes to ASCII, 3 % joined, controls to spaces."""
    assert normaliser("de")("„Zitat“ – 3 % (so )") == '"Zitat" - 3% (so)'
    assert normaliser("en")('he said "no", twice') == 'he said "no," twice'
    assert normaliser("de")("a\u200bb") == "a b"


def test_hyphens_and_apostrophes_as_fairseqs_script_has_them():
    rows = chunk(("it’s well-known".encode(), "gut-bekannt".encode()))
    split = Tokens("test", ("en", "de"), True, True, None)(rows)
    assert split.sides == [b"it &apos;s well @-@ known\n", b"gut @-@ bekannt\n"]
    plain = Tokens("test", ("en", "de"), False, False, None)(rows)
    assert plain.sides[0].decode() == "it ’ s well-known\n"


def test_a_line_of_100000_characters_is_answered_and_not_waited_for(tmp_path):
    """One word without an end, and many words: tokenised, split, and joined to the same again."""
    words = [b"low lower lowest newer wider new"] * 5
    text.write_lines(tmp_path / "t", [line.decode() for line in words])
    bpe.learn([tmp_path / "t"], tmp_path / "codes", 6)
    long = chunk((b"lower" * 20_000, b"low new " * 12_500))
    tokens = Tokens("test", ("en", "de"), True, False, None)(long)
    subwords = bpe.Subwords("test", tmp_path / "codes", None)(Chunk(1, tokens.sides, 1))
    for side, message in zip(subwords.sides, tokens.sides, strict=True):
        assert bpe.undo(side.decode()) == message.decode().strip()
    train = Tokens("train", ("en", "de"), True, False, Limits())(long)
    assert train.report.kept == 0 and train.report.seen == 1


def test_a_file_that_is_one_line_without_end_is_refused(tmp_path):
    path = tmp_path / "t.en"
    path.write_bytes(b"x" * (text.LONGEST_LINE + 2))
    with pytest.raises(UserError, match="line 1, is longer than 1,048,576 bytes"):
        list(text.read_lines(path))


def test_rare_words_are_let_go_before_memory_is():
    words = Counter({"a": 3, "b": 1, "c": 2, "d": 3})
    assert list(bpe.most_frequent(words, 3)) == ["a", "c", "d"], "in their order"
    assert bpe.most_frequent(words, 4) is words


def test_size_in_types_counts_characters_too(tmp_path):
    """6 types: the characters a, b inside, c at the end of words, so three merges."""
    text.write_lines(tmp_path / "t", ["abc"] * 3 + ["aabc"] * 2 + ["ababc"] * 2)
    bpe.learn([tmp_path / "t"], tmp_path / "codes", 6, types=True)
    assert len((tmp_path / "codes").read_text().splitlines()) == 1 + 3
