"""Binarised text is what fairseq-preprocess writes."""

import pytest

from tests.conftest import preprocess
from tests.own_text import contents
from vaswani.data import binarise, text
from vaswani.folders.recipe import Recipe

SETS = {"train": "train", "valid": "valid", "test": "test"}


@pytest.mark.parametrize(
    ("recipe", "flags"),
    [
        ({}, ["--joined-dictionary"]),
        ({"dictionary": 12}, ["--joined-dictionary", "--nwordssrc", "12"]),
        ({"trees": True}, []),
    ],
)
def test_files_are_those_of_fairseq_preprocess(recipe, flags, tiny_text, tmp_path, monkeypatch):
    """In two processes, with one dictionary or two, and words that it lacks."""
    monkeypatch.setattr(text, "CHUNK_LINES", 30)
    theirs = preprocess(tiny_text, tmp_path / "theirs", *flags)
    (theirs / "preprocess.log").unlink()
    recipe = Recipe("en", "de", **SETS, **recipe)
    counts = binarise.binarise(tiny_text, tmp_path / "ours", recipe, 2, None)
    assert contents(tmp_path / "ours") == contents(theirs)
    assert (counts["valid.de"][0] > 0) == bool(recipe.dictionary)


def test_a_given_dictionary_is_used(tiny_text, tmp_path):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("1 1\n2 1\n")
    theirs = ["--srcdict", str(dictionary), "--joined-dictionary"]
    preprocess(tiny_text, tmp_path / "theirs", *theirs)
    (tmp_path / "theirs" / "preprocess.log").unlink()
    binarise.binarise(tiny_text, tmp_path / "ours", Recipe("en", "de", **SETS), 1, dictionary)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
