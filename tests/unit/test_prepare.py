"""Text on its way to data-bin: what is read, tokenised, split into subwords, and joined again."""

import io
import re

import pytest

from tests.files import write
from tests.own_text import HERE, here
from tests.properties import given, some
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data import bpe, round_trip, text, tokenisation
from vaswani.data.read_data_bin import read_index
from vaswani.data.round_trip import differences
from vaswani.data.text import chunks
from vaswani.folders.prepared_text import PreparedText


def test_unequal_counts_name_both_files(tmp_path):
    sides = write(tmp_path / "t.en", "a", "b"), write(tmp_path / "t.de", "c")
    with pytest.raises(UserError, match=r"t\.en has 2 lines and .*t\.de has 1"):
        list(chunks(sides))


WORDS = some.text("abcd", min_size=2, max_size=6)


@given(some.lists(WORDS, min_size=1, max_size=60), some.integers(1, 80))
def test_codes_from_counted_words_are_those_of_the_running_text(tmp_path_factory, words, merges):
    """Against subword-nmt on the text itself; many words are equally frequent."""
    from subword_nmt.learn_bpe import learn_bpe

    folder = tmp_path_factory.mktemp("bpe")
    text.write_lines(folder / "text", [" ".join(words)] * 2)
    expected = io.StringIO()
    learn_bpe(io.StringIO((" ".join(words) + "\n") * 2), expected, merges)
    bpe.learn([folder / "text"], folder / "codes", merges)
    assert (folder / "codes").read_text(encoding="utf-8") == expected.getvalue()


@pytest.fixture(scope="module")
def splitter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    text.write_lines(folder / "text", ["low lower lowest newer wider new </s>"] * 5)
    bpe.learn([folder / "text"], folder / "codes", 12)
    return bpe.splitter(folder / "codes")


@given(words=some.lists(some.text("lowernwidst@äß</s>", min_size=1, max_size=8), max_size=8))
def test_bpe_is_undone_exactly(splitter, words):
    """Of words that do not end in its mark."""
    line = " ".join(word for word in words if not word.endswith("@@"))
    assert bpe.undo(splitter(line)) == line
    assert bpe.undo(bpe.escaped_symbols(splitter(line))) == line


def test_no_merge_has_a_digit_if_they_are_to_stay_apart(tmp_path):
    """And the letters beside them are merged as in other words."""
    text.write_lines(tmp_path / "text", ["in 2010 and 2010 the 20th and the 3rd U2 song"] * 5)
    bpe.learn([tmp_path / "text"], tmp_path / "codes", 50, split_digits=True)
    split = bpe.splitter(tmp_path / "codes")
    assert split("in 2010 the 20th") == "in 2@@ 0@@ 1@@ 0 the 2@@ 0@@ th"
    assert bpe.undo(split("in 2010 the 20th U2")) == "in 2010 the 20th U2"
    bpe.learn([tmp_path / "text"], tmp_path / "codes", 50)
    assert bpe.splitter(tmp_path / "codes")("2010") == "2010"


def test_moses_tokens_and_back():
    sentence = 'Am 3. März 1987 kostete das Buch "Faust" 3,50 €, sagte Anna.'
    tokens = tokenisation.moses_tokeniser("de")(sentence)
    assert tokens.split()[-2:] == ["Anna", "."] and "&quot;" in tokens
    assert tokenisation.detokeniser("de")(tokens) == sentence
    assert tokenisation.unescape("&quot;") == '"'


#: what prepare says of the validation text
MEASURED = (
    r"restoring the text of valid from its tokens: ([0-9.]+) % of the lines come back unchanged; "
    r"BLEU ([0-9.]+), the most that a perfect system could get"
)


def test_the_round_trip_of_the_validation_text_is_measured(tmp_path, monkeypatch, capsys):
    """What it loses is said when it is prepared, and kept; "a–b" may be two words or one."""
    monkeypatch.chdir(tmp_path)
    lost = ["Die Linie Bonn–Köln.", "Hin und her, 3€!"]
    whole = ["Wie geht’s, um 7:45 Uhr?"] * 8
    for name in ("train", "valid"):
        write(tmp_path / f"{name}.en", *["How is it going, at 7:45?"] * 10)
        write(tmp_path / f"{name}.de", *lost, *whole)
    assert cli.main(HERE) == 0
    message = capsys.readouterr().err
    share, score = map(float, re.search(MEASURED, message).groups())
    assert share == 80 and 80 < score < 98 and "--subword sentencepiece" in message
    assert "1 × “Bonn–Köln.” becomes “Bonn – Köln.”" in message and "7: 45" not in message
    recipe = PreparedText(tmp_path / "data" / "own").recipe()
    assert (recipe.restored_lines, recipe.restored_bleu) == (share, score)
    assert cli.main(HERE) == 0 and "restoring" not in capsys.readouterr().err
    assert PreparedText(tmp_path / "data" / "own").recipe() == recipe
    assert cli.main(here("--subword", "sentencepiece", "--bpe", "320")) == 0
    assert re.search(MEASURED, capsys.readouterr().err).groups() == ("100.00", "100.00")


def test_lines_that_change_are_counted_where_scores_do_not_see_spaces(tmp_path, monkeypatch):
    """Thai has hardly any spaces, and its BLEU, of characters, was 100 above a damaged line."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid"):
        write(tmp_path / f"{name}.en", *["One day"] * 10)
        write(tmp_path / f"{name}.th", "วันหนึ่ง“ฉัน”ไปตลาดกับเพื่อน", *["สวัสดีครับวันนี้อากาศดีมาก"] * 9)
    assert cli.main(here("--target-lang", "th")) == 0
    recipe = PreparedText(tmp_path / "data" / "own").recipe()
    assert (recipe.restored_lines, recipe.restored_bleu) == (90, 100)


def test_a_share_of_lines_is_not_rounded_up():
    written = ["a"] * 3000
    assert round_trip.unchanged_share(written, ["a"] * 2999 + ["b"]) == 99.96
    assert round_trip.unchanged_share(["a  b"], ["a b"]) == 100
    assert round_trip.is_low(98.99, 100) and not round_trip.is_low(99, 90)
    assert round_trip.is_low(None, 97.9) and not round_trip.is_low(None, 98)


def test_differences_are_counted_by_kind():
    """Words and numbers do not count; a line that is the same is not looked at."""
    written = ["Um 7:45 und 8:10.", "Ja; nein.", "l’eau l’air"]
    restored = ["Um 7: 45 und 8: 10.", "Ja; nein.", "l ’ eau l’air"]
    (times, twice), (apostrophe, once) = differences(written, restored)
    assert (times, twice) == (("7:45", "7: 45"), 2)
    assert (apostrophe, once) == (("l’eau", "l ’ eau"), 1)


def test_own_text_from_files_to_data_bin(tmp_path, monkeypatch, capsys):
    """A test set in another alphabet is said."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid", "test"):
        write(tmp_path / f"{name}.en", *["The old house."] * 20, "")
        write(tmp_path / f"{name}.de", *["Das alte Haus."] * 21)
    write(tmp_path / "test.de", *["Старый дом"] * 21)
    assert cli.main(here("--test", "test", "--bpe", "10")) == 0
    message = capsys.readouterr().err
    assert "left out: 1 with an empty side" in message
    assert "189 of the 189 subwords of test.de are unknown" in message, "letter by letter"
    assert "unknown in valid" not in message
    folder = tmp_path / "data" / "own" / "data-bin"
    for name, count in (("train.en-de.en", 20), ("test.en-de.de", 21)):
        assert len(read_index(str(folder / name)).sizes) == count
