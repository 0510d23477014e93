"""Text on its way to data-bin: what is read, tokenised, split into subwords, and joined again."""

import io

import pytest

from tests.files import write
from tests.own_text import HERE
from tests.properties import given, some
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data import bpe, text, text_recipe
from vaswani.data.data_bin import read_index
from vaswani.data.text import chunks


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


def test_moses_tokens_and_back():
    sentence = 'Am 3. März 1987 kostete das Buch "Faust" 3,50 €, sagte Anna.'
    tokens = text_recipe.moses_tokeniser("de")(sentence)
    assert tokens.split()[-2:] == ["Anna", "."] and "&quot;" in tokens
    assert text_recipe.detokeniser("de")(tokens) == sentence
    assert text_recipe.unescape("&quot;") == '"'


def test_own_text_from_files_to_data_bin(tmp_path, monkeypatch, capsys):
    """A test set in another alphabet is said."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid", "test"):
        write(tmp_path / f"{name}.en", *["The old house."] * 20, "")
        write(tmp_path / f"{name}.de", *["Das alte Haus."] * 21)
    write(tmp_path / "test.de", *["Старый дом"] * 21)
    assert cli.main([*HERE, "--test", "test", "--bpe", "10"]) == 0
    message = capsys.readouterr().err
    assert "left out: 1 with an empty side" in message
    assert "189 of the 189 subwords of test.de are unknown" in message, "letter by letter"
    assert "unknown in valid" not in message
    folder = tmp_path / "data" / "own" / "data-bin"
    for name, count in (("train.en-de.en", 20), ("test.en-de.de", 21)):
        assert len(read_index(str(folder / name)).sizes) == count
