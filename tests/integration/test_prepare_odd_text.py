"""Text that would silently become something else in ``vaswani prepare``: refused, or said."""

import gzip
import lzma
import os

import pytest

from tests.own_text import HERE, here, sentence_of
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data import bpe, text


@pytest.mark.parametrize(("name", "pack"), [("t.gz", gzip.compress), ("t.xz", lzma.compress)])
def test_a_damaged_file_is_named(tmp_path, name, pack):
    packed = pack(os.urandom(50_000))
    for content in (packed[:-9], packed[:25_000] + b"x" + packed[25_001:], b"text\n" * 100):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            text.count_lines(tmp_path / name)


def test_words_that_are_split_already_are_refused(own, light, capsys):
    word = "the@@"
    lines = (own / "train.en").read_text("utf-8").splitlines()
    lines[6] = f"on {word} 311th day"
    (own / "train.en").write_text("\n".join(lines) + "\n")
    assert cli.main(here("--tokenised")) == 1
    assert f"train.en, line 7: '{word}'" in capsys.readouterr().err
    assert cli.main(HERE) == 0
    assert word not in (own / "data/own/tok/train.en").read_text("utf-8").split(), "Moses parts it"


@pytest.mark.parametrize("word", ["</s>", "<unk>"])
def test_fairseqs_own_symbols_are_spelt_out(own, light, word):
    """As a word of its own, and as the end of one; so often that BPE would leave it whole."""
    for path in [*own.glob("train.*"), *own.glob("valid.*")]:
        path.write_text(f"a {word} b x{word} {word}\n" * 10)
    assert cli.main(here("--tokenised")) == 0
    subwords = (own / "data/own/bpe/train.en").read_text("utf-8")
    assert word not in subwords.split()
    assert all(bpe.undo(line) == f"a {word} b x{word} {word}" for line in subwords.splitlines())


def test_text_of_single_letters_is_refused(own, capsys):
    for path in [*own.glob("train.*"), *own.glob("valid.*")]:
        path.write_text("a b c\n" * 10)
    assert cli.main(HERE) == 1
    assert "tok/train.en" in capsys.readouterr().err


def test_a_set_whose_pairs_all_have_a_blank_side_is_refused(own, capsys):
    """Blank lines of a test set stay, but there has to be something to score."""
    for lang, lines in (("en", "one\n\n"), ("de", "\nzwei\n")):
        (own / f"test.{lang}").write_text(lines)
    assert cli.main(here("--test", "test")) == 1
    assert "the test set has no pair of sentences" in capsys.readouterr().err


def test_tokens_are_not_split_by_sentencepiece(own, capsys):
    assert cli.main(here("--subword", "sentencepiece", "--tokenised")) == 1
    assert "leave out --tokenised" in sentence_of(capsys) and not (own / "data").exists()


@pytest.mark.parametrize("lang", ["zh-CN", ""])
def test_a_language_that_fairseq_cannot_read_from_a_name_is_refused(own, capsys, lang):
    assert cli.main(here("--target-lang", lang)) == 1
    assert f"target_lang is '{lang}'" in sentence_of(capsys) and not (own / "data").exists()


def test_one_language_twice_is_refused(own, capsys):
    """Else both sides would be written to one file; also beside other text's codes."""
    assert cli.main(here("--target-lang", "en")) == 1
    message = sentence_of(capsys)
    assert "both 'en'" in message and "--target-lang en_simple" in message
    assert not (own / "data").exists()
    assert cli.main(HERE) == 0
    more = ["prepare", "--like", "data/own", "--test", "valid", "--out", "data/more"]
    capsys.readouterr()
    assert cli.main([*more, "--source-lang", "de"]) == 1
    assert "both 'de'" in sentence_of(capsys) and not (own / "data" / "more").exists()
