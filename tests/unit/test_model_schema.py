"""What a model folder's config.json holds, and what is read of a folder."""

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests import exported, packed
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.experiment.run_record import HOW_IT_COMPUTES
from vaswani.model_folder.packed_model import kept_options
from vaswani.model_folder.schema import Architecture


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


def test_the_schema_is_the_models_configuration() -> None:
    """Every option of the model that says what it is, with its type."""
    left_out = {*HOW_IT_COMPUTES, "share_all_embeddings", "_name"}
    options = {f.name for f in fields(VaswaniTransformerConfig)} - left_out
    assert set(kept_options()) == options
    ours, theirs = get_type_hints(Architecture), get_type_hints(VaswaniTransformerConfig)
    for name in options - {"sinusoid_layout"}:
        assert ours[name] == theirs[name], name
    layouts = {choice.value for choice in theirs["sinusoid_layout"]}
    assert set(ours["sinusoid_layout"].__args__) == layouts
