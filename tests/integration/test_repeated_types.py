"""A dictionary in which a type occurs twice (``#fairseq:overwrite``), from Vocabulary to export."""

from pathlib import Path

import pytest
from fairseq.data import Dictionary

from tests import packed
from vaswani import Translator
from vaswani_transformer import Vocabulary
from vaswani_transformer.io.sums import SUMS, sha256_of

LINES = ["the 9", "house 8", "<unk> 5 #fairseq:overwrite", "is 4", "the 1 #fairseq:overwrite"]
SENTENCE = "the house <unk> zebra is"


@pytest.fixture
def folder(tmp_path) -> Path:
    """Pack a model, both dictionaries of which have ``<unk>`` and ``the`` a second time."""
    path = tmp_path / "model"
    packed.pack(path, words=["the", "house", "other unk", "is", "other the", ".", ","])
    text = "\n".join([*LINES, ". 1", ", 1", ""])
    sums = path / SUMS
    for name in ("dict.en.txt", "dict.de.txt"):
        before = sha256_of(path / name)
        (path / name).write_text(text, encoding="utf-8")
        sums.write_text(sums.read_text().replace(before, sha256_of(path / name)))
    return path


def test_ids_are_fairseqs(folder) -> None:
    """A word in the text that reads ``<unk>`` has its own id; an unknown word has fairseq's."""
    path = folder / "dict.en.txt"
    ours, theirs = Vocabulary.load(path), Dictionary.load(str(path))
    words = SENTENCE.split()
    expected = theirs.encode_line(SENTENCE, add_if_not_exist=False).tolist()
    assert ours.encode(words) == expected
    assert expected[2] != expected[3] == theirs.unk()
    assert ours.types == theirs.symbols
    numbers = range(4, len(theirs))
    assert ours.decode(numbers) == [theirs[number] for number in numbers]


def test_a_model_folder_is_read_with_it(folder) -> None:
    (translation,) = Translator.from_pretrained(folder).translate(["the house zebra is"])
    assert translation.hypotheses and translation.unknown == ["zebra"]


@pytest.mark.parametrize("target", ["ctranslate2", "huggingface"])
def test_an_export_that_would_mix_them_up_is_refused(target, folder, tmp_path, cli) -> None:
    """Its vocabulary is a map from types to ids."""
    (tmp_path / "text").write_text("the house\n")
    ended = cli("export", folder, "--to", target, "--text", tmp_path / "text")
    assert ended.code == 1 and "dict.en.txt has the entry '<unk>' twice" in ended.err
    assert not list(tmp_path.glob("model-*"))
