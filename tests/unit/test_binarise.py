"""What fairseq-preprocess leaves is checked: it may fail, or lose lines."""

import pytest

from tests.files import write
from vaswani.common.errors import UserError
from vaswani.data import binarise
from vaswani.data.recipe import Recipe

RECIPE = Recipe("en", "de", train="train")


@pytest.fixture
def preprocess(tmp_path, monkeypatch):
    """Lets a shell command stand for fairseq-preprocess."""

    def replace(command: str) -> None:
        program = write(tmp_path / "program", "#!/bin/sh", command)
        program.chmod(0o755)
        monkeypatch.setattr(binarise.sys, "executable", str(program))

    return replace


def test_a_failure_of_fairseq_preprocess_is_said_in_its_words(preprocess, tiny_text, tmp_path):
    preprocess("echo 'ValueError: no such codec' >&2; exit 1")
    with pytest.raises(UserError, match="ValueError: no such codec"):
        binarise.binarise(tiny_text, tmp_path / "data-bin", RECIPE, 1, None)


def test_lines_that_fairseq_preprocess_lost_are_noticed(tiny_text, tiny_data_bin, tmp_path):
    """200 pairs were binarised, but the text has 201."""
    for lang in ("en", "de"):
        lines = (tiny_text / f"train.{lang}").read_text().splitlines()
        write(tmp_path / "bpe" / f"train.{lang}", *lines, "1 2 3")
    with pytest.raises(UserError, match="train.en has 201 lines"):
        binarise.count_unknown(tmp_path / "bpe", tiny_data_bin, RECIPE)
