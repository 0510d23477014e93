"""A model folder: read only if whole, unaltered and without a program; written, or not there."""

import json
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import exported, packed
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.folders.exported_model import EXPORTED, read_model
from vaswani.folders.model_folder import ModelFolder, sibling
from vaswani.packing.networks import packed_options
from vaswani.training.run_record import HOW_IT_COMPUTES
from vaswani_transformer import Transformer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """Copy the folder, so that it may be damaged."""
    return shutil.copytree(made, tmp_path / "model")


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def change(section, **values):
    """Change config.json, hash included."""
    return lambda folder: exported.change(folder, section, **values)


def flip(folder):
    """Change one bit of one weight."""
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-100] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def use_windows_line_ends(folder):
    """Write line ends as git does where core.autocrlf is true."""
    dictionary = folder / "dict.en.txt"
    dictionary.write_bytes(dictionary.read_bytes().replace(b"\n", b"\r\n"))


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 15500000\n"

DAMAGES = {
    "line ends of Windows": (use_windows_line_ends, "dict.en.txt has Windows line ends"),
    "a Git LFS pointer": (write("model.safetensors", LFS_POINTER), "safetensors is a Git LFS"),
    "no hashes": (remove("SHA256SUMS"), "SHA256SUMS"),
    "a bit": (flip, "model.safetensors was altered"),
    "a word": (write("dict.en.txt", b"the 1\n"), "dict.en.txt was altered"),
    "codes are missing": (change("text", bpe="subword_nmt"), "bpecodes"),
    "a newer format": (change("", format_version=2), "version 2"),
    "another's config": (write("config.json", b'{"model_type": "bert"}'), "config.json"),
    "another size": (change("architecture", encoder_layers=1), "encoder.layers.1"),
    "an unknown size": (change("architecture", experts=2), "'experts'"),
    "a search option": (change("generation", luck=1), "'luck'"),
    "another splitter": (change("text", bpe="morphemes"), "text: bpe must be"),
    "half a variant": (change("", variant={"arch": "mine"}), "variant has no 'options'"),
}


@pytest.mark.parametrize("damage, named", DAMAGES.values(), ids=DAMAGES)
def test_a_model_that_is_damaged_or_anothers_is_refused(damage, named, folder):
    damage(folder)
    with pytest.raises((ValueError, OSError), match=named):
        Translator.from_pretrained(folder)


def test_a_checkpoint_or_run_is_no_model_folder_but_its_own_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("last.pt").write_bytes(b"x")
    Path("runs/fresh").mkdir(parents=True)
    Path("runs/fresh/config.yaml").touch()
    for name, remedy in {
        "last.pt": "vaswani pack last.pt",
        "gone": "gone",
        "fresh": "runs/fresh/model",
    }.items():
        with pytest.raises(UserError, match=remedy):
            ModelFolder.read(Path(name))


def test_what_is_beside_a_folder_is_named_after_it_wherever_one_is(tmp_path, monkeypatch):
    (tmp_path / "model" / "more").mkdir(parents=True)
    assert sibling(Path("runs/a/model"), ".pt") == Path("runs/a/model.pt")
    for here, name in (("model", "."), ("model/more", "..")):
        monkeypatch.chdir(tmp_path / here)
        assert sibling(Path(name), "-fairseq") == tmp_path / "model-fairseq"


@pytest.mark.parametrize(
    ("options", "stored_once"),
    [({}, 2), ({"share_decoder_input_output_embed": True}, 1), ({"untie_embeddings": True}, 0)],
    ids=["one matrix", "two", "three"],
)
def test_parameters_come_back(options, stored_once, tmp_path):
    model = packed.pack(tmp_path / "model", **options)
    state = ModelFolder.read(tmp_path / "model").parameters()
    torch.testing.assert_close(state, model.state_dict(), rtol=0, atol=0)
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert len(stored) == len(state) - stored_once
    again = Transformer.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_only_an_unchanged_model_is_replaced(folder, tmp_path):
    before = sha256_of(folder / "model.safetensors")
    packed.pack(folder, seed=1)
    assert sha256_of(folder / "model.safetensors") != before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    for name in ("README.md", "mine.txt"):
        (folder / name).write_text("mine")
        with pytest.raises(UserError, match=name):
            packed.pack(folder)
        (folder / "README.md").write_text("# A model\n")
    assert (folder / "mine.txt").read_text() == "mine"


def test_sha256sum_takes_the_hashes(made):
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made, check=True)


def test_damaged_codes_are_named(folder):
    (folder / "bpecodes").write_bytes(b"t h e\n")
    exported.renew(folder, "bpecodes")
    exported.change(folder, "text", bpe="subword_nmt")
    with pytest.raises(UserError, match="bpecodes"):
        Translator.from_pretrained(folder)


def test_a_folder_keeps_every_option_that_says_what_the_model_is():
    left_out = {*HOW_IT_COMPUTES, "share_all_embeddings", "_name"}
    assert set(packed_options()) == {f.name for f in fields(VaswaniTransformerConfig)} - left_out


VALUES = [None, True, -1, 10**30, float("nan"), "text", [1], {"a": 1}]


@pytest.mark.parametrize("section", ["", "text", "generation", "origin"])
def test_a_value_of_another_type_is_refused_or_harmless(section, folder):
    """Hashes included; what ``translate`` reads ended in tracebacks."""
    original = (folder / "config.json").read_text(encoding="utf-8")
    table = json.loads(original)
    keys = {"origin": ["updates", "label_smoothing"]}.get(section) or list(
        table[section] if section else table
    )
    for key in keys:
        for value in VALUES:
            (folder / "config.json").write_text(original, encoding="utf-8")
            exported.change(folder, section, **{key: value})
            try:
                ModelFolder.read(folder).search_options.check()
            except (OSError, UserError) as error:
                assert "\n" not in str(error), (key, value)


@pytest.mark.parametrize("section", ["text", "generation", "limits"])
def test_a_wrong_value_in_an_export_is_refused(section, tmp_path):
    """In vaswani.json; CTranslate2 is not needed to see it."""
    table = {
        "format": EXPORTED.format,
        "format_version": EXPORTED.version,
        "target": "ctranslate2",
        "text": {"source_lang": "en", "target_lang": "de", "bpe": None},
        "generation": {"beam": 2},
        "limits": {"source": 64, "target": 64},
    }
    for wrong in (None, [], {"source_lang": 5, "beam": "2", "source": "64"}):
        (tmp_path / "vaswani.json").write_text(json.dumps({**table, section: wrong}))
        (tmp_path / "SHA256SUMS").write_text("")
        for name in ("model.bin", "config.json"):
            (tmp_path / name).write_text("{}")
            exported.renew(tmp_path, name)
        exported.renew(tmp_path, "vaswani.json")
        with pytest.raises(UserError, match=section):
            read_model(tmp_path).search_options.check()


def test_cut_weights_are_refused(folder):
    """At any place: under the right hash, too."""
    data = (folder / "model.safetensors").read_bytes()
    for length in (0, 7, 100, len(data) // 2, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:length])
        exported.renew(folder, "model.safetensors")
        with pytest.raises(UserError, match=r"model\.safetensors"):
            Translator.from_pretrained(folder)
        with pytest.raises(UserError, match=r"model\.safetensors"):
            ModelFolder.read(folder).parameters()
