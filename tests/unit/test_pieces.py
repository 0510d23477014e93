"""SentencePiece: fairseq's numbers for its pieces, nothing unknown, and text that comes back."""

import unicodedata

import pytest
from fairseq.data import Dictionary

from tests.pieces import learn, pairs
from tests.properties import given, some
from vaswani.common.errors import UserError
from vaswani.data import pieces
from vaswani.data.text import write_lines
from vaswani.data.tokenisation import SourceText, TargetText
from vaswani.folders.recipe import TextRecipe

RECIPE = TextRecipe("en", "zh", tokeniser="none", subword="sentencepiece")
#: what text may hold: letters that the model has not seen, wide ones, what symbols look like
ODD = [
    "one two.",
    "七八九。",
    "鬱 😀 é",
    "Ｏｎｅ ｶﾅ ①",
    "</s> <s> <pad> <unk> x</s>",
    "<0x41> two@@ three &amp;",
    "a  b\u3000c",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return learn(tmp_path_factory.mktemp("pieces"))


@pytest.fixture(scope="module")
def dictionary(model):
    path = model.with_name("dict.txt")
    pieces.write_dictionary(model, path)
    return Dictionary.load(str(path))


def test_the_models_numbers_are_those_of_fairseqs_dictionary(model, dictionary):
    loaded = pieces.load(model)
    assert len(dictionary) == loaded.get_piece_size() == 320
    assert [dictionary[n] for n in range(320)] == [loaded.id_to_piece(n) for n in range(320)]
    assert {f"<0x{byte:02X}>" for byte in range(256)} <= set(dictionary.symbols)


@pytest.fixture(scope="module")
def sides(model):
    return SourceText(RECIPE, model), TargetText(RECIPE, model)


@given(line=some.one_of(some.sampled_from(ODD), some.text(max_size=12)))
def test_text_comes_back_and_nothing_is_unknown(sides, dictionary, line):
    """As NFKC leaves it, with one space for several; no piece is one of fairseq's symbols."""
    source, target = sides
    subwords = source.subwords(source.tokens(line))
    assert not {"<s>", "</s>", "<pad>", "<unk>"} & set(subwords.split())
    assert dictionary.unk() not in dictionary.encode_line(subwords, add_if_not_exist=False).tolist()
    if line in ODD:
        normal = " ".join(unicodedata.normalize("NFKC", line).split())
        assert target.text(target.tokens(subwords)) == normal


def test_a_translation_is_one_line(model):
    """Whatever bytes a model puts together; and what it does not know is as fairseq writes it."""
    join = pieces.joiner(model)
    assert join("▁one <0x0A> <0xE4> . <0xE4> <0xB8> <0x80>") == "one �.一"
    assert join("▁one <unk> ▁two") == "one<unk> two"
    assert join("") == ""


def test_rare_letters_do_not_crowd_out_words(tmp_path):
    """Of many letters only the most frequent are pieces: half of what bytes leave."""
    many = "".join(chr(0x4E00 + n) for n in range(250))
    lines = [line for pair in pairs(1000, 1) for line in pair]
    write_lines(tmp_path / "many", [*lines, many])
    pieces.learn([tmp_path / "many"], tmp_path / "model", 400)
    known = pieces.dictionary_of(tmp_path / "model")
    assert len(known) <= 396 and {"e", "七"} <= set(known)
    assert 0 < len(set(many) & set(known)) <= 70


def test_no_piece_has_two_digits_if_they_are_to_stay_apart(tmp_path):
    write_lines(tmp_path / "years", [f"in {n % 7 + 2010} we met" for n in range(500)])
    pieces.learn([tmp_path / "years"], tmp_path / "model", 400, split_digits=True)
    assert pieces.splitter(tmp_path / "model")("in 2010").split()[-4:] == ["2", "0", "1", "0"]
    pieces.learn([tmp_path / "years"], tmp_path / "model", 400)
    assert pieces.splitter(tmp_path / "model")("in 2010").split()[-4:] != ["2", "0", "1", "0"]


def test_too_few_pieces_for_the_letters_are_refused(tmp_path):
    write_lines(tmp_path / "t", ["one two"])
    with pytest.raises(UserError, match="--bpe 250"):
        pieces.learn([tmp_path / "t"], tmp_path / "model", 250)
    assert not (tmp_path / "model").exists()


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "x.model").write_bytes(b"#version: 0.2\na b\n")
    with pytest.raises(UserError, match=r"x\.model"):
        pieces.splitter(tmp_path / "x.model")


def test_a_model_of_another_dictionary_is_refused(model, tmp_path):
    other = learn(tmp_path, 300)
    pieces.write_dictionary(model, tmp_path / "dict.zh.txt")
    pieces.check_dictionary(model, tmp_path / "dict.zh.txt")
    with pytest.raises(UserError, match=r"dict\.zh\.txt"):
        pieces.check_dictionary(other, tmp_path / "dict.zh.txt")
