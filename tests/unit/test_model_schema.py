"""What a model folder's config.json holds, and what is read of a folder."""

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests import exported, packed
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.experiment.run_record import HOW_IT_COMPUTES
from vaswani.model_folder.packed_model import kept_options


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    return folder


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.mark.parametrize("codes", [b"", b"t h e\n", b"\xff\xfe"])
def test_damaged_codes_are_named(codes: bytes, model: Path, capsys: Any) -> None:
    (model / "bpecodes").write_bytes(codes)
    exported.renew(model, "bpecodes")
    exported.change(model, "text", bpe="subword_nmt")
    with pytest.raises(UserError, match="bpecodes"):
        Translator.from_pretrained(model)
    assert capsys.readouterr().err == ""


def test_a_folder_keeps_every_option_that_says_what_the_model_is() -> None:
    left_out = {*HOW_IT_COMPUTES, "share_all_embeddings", "_name"}
    assert set(kept_options()) == {f.name for f in fields(VaswaniTransformerConfig)} - left_out
