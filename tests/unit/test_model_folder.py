"""A model folder: read only if whole, unaltered and without a program; written, or not there."""

import errno
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import packed
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.model_folder import folder as model_folder
from vaswani.model_folder import packed_model
from vaswani.model_folder.folder import beside, read_folder, write_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy to damage."""
    import shutil

    return shutil.copytree(made, tmp_path / "model")


def again(folder, name):
    """Put a file's new hash into the list of hashes, as somebody might."""
    sums = model_folder.read_sums(folder / "SHA256SUMS")
    sums[name] = sha256_of(folder / name)
    (folder / "SHA256SUMS").write_text("".join(f"{h}  {n}\n" for n, h in sums.items()))


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def change(section, **values):
    """Change config.json, hash included."""

    def changed(folder):
        config = json.loads((folder / "config.json").read_text())
        (config[section] if section else config).update(values)
        for key in [key for key, value in values.items() if value is None]:
            del (config[section] if section else config)[key]
        (folder / "config.json").write_text(json.dumps(config))
        again(folder, "config.json")

    return changed


def flip(folder):
    """One bit of one weight."""
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-100] ^= 1
    (folder / "model.safetensors").write_bytes(data)


DAMAGES = {
    "no weights": (remove("model.safetensors"), "No such file .*model.safetensors"),
    "no dictionary": (remove("dict.de.txt"), "No such file .*dict.de.txt"),
    "no hashes": (remove("SHA256SUMS"), "No such file .*SHA256SUMS"),
    "no config": (remove("config.json"), "config.json is missing, damaged, or was not"),
    "a bit": (flip, "model.safetensors was altered or damaged: its hash"),
    "a word": (write("dict.en.txt", b"the 1\n"), "dict.en.txt was altered or damaged"),
    "codes are missing": (change("text", bpe="subword_nmt"), "No such file .*bpecodes"),
    "hashes": (write("SHA256SUMS", b"x"), "config.json was altered or damaged: its hash"),
    "a newer format": (change(None, format_version=2), "version 2.*reads version 1: get a newer"),
    "an older format": (change(None, format_version=0), "version 0.*: pack the model again"),
    "another's config": (write("config.json", b'{"model_type": "bert"}'), "not written by 'vas"),
    "no JSON": (write("config.json", b"{"), "damaged, or was not written by"),
    "a size": (change("architecture", encoder_layers=None), "another version.*encoder_layers"),
    "an unknown size": (change("architecture", experts=2), "another version.*'experts'"),
    "another size": (
        change("architecture", encoder_layers=1),
        "of another architecture .*encoder.layers.1",
    ),
    "a text option": (change("text", alphabet="runes"), "text is of another version.*'alphabet'"),
    "a language": (change("text", source_lang=None), "text is of another version.*'source_lang'"),
    "a search option": (change("generation", luck=1), "generation is of another version.*'luck'"),
    "one of before": (change("generation", no_repeat_ngram_size=2), "_size is not supported"),
}


@pytest.mark.parametrize("damage, message", DAMAGES.values(), ids=DAMAGES)
def test_what_is_not_whole_is_refused(damage, message, folder):
    damage(folder)
    with pytest.raises((ValueError, OSError), match=message):
        Translator.from_pretrained(folder)


def test_what_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last.pt").write_bytes(b"x")
    for run in ("fresh", "packed"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "config.yaml").touch()
    packed.pack(tmp_path / "runs" / "packed" / "model")
    for name, message in {
        "last.pt": "last.pt is a checkpoint, not a model folder: 'vaswani pack last.pt --data DIR",
        "gone": "there is no model folder gone",
        "fresh": "fresh is a run; its model folder is runs/fresh/model, which 'vaswani pack",
        "runs/packed": "its model folder is runs/packed/model, which",
    }.items():
        with pytest.raises(UserError, match=message):
            read_folder(packed.Path(name))


def test_what_is_beside_a_folder(tmp_path, monkeypatch):
    (tmp_path / "model" / "more").mkdir(parents=True)
    assert beside(Path("runs/a/model"), ".pt") == Path("runs/a/model.pt")
    for here, name in (("model", "."), ("model/more", "..")):
        monkeypatch.chdir(tmp_path / here)
        assert beside(Path(name), "-fairseq") == tmp_path / "model-fairseq"


def test_the_card_may_be_edited(folder):
    (folder / "README.md").write_text("# My model\n")
    assert read_folder(folder).langs == ("en", "de")


@pytest.mark.parametrize(
    ("options", "stored_once"),
    [({}, 2), ({"share_decoder_input_output_embed": True}, 1), ({"untie_embeddings": True}, 0)],
    ids=["one matrix", "two", "three"],
)
def test_parameters_come_back(options, stored_once, tmp_path):
    model = packed.pack(tmp_path / "model", **options)
    state = read_folder(tmp_path / "model").parameters()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[n], value) for n, value in model.state_dict().items())
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert len(stored) == len(state) - stored_once
    _, again = packed_model.build(read_folder(tmp_path / "model"), "fp32", "cpu")
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_what_was_packed_is_replaced_and_nothing_else_is(folder, tmp_path):
    before = sha256_of(folder / "model.safetensors")
    packed.pack(folder, seed=1)
    assert sha256_of(folder / "model.safetensors") != before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (folder / "README.md").write_text("mine")
    for name, message in {
        "README.md": "README.md was changed",
        "mine.txt": "mine.txt was added",
    }.items():
        (folder / name).write_text("mine")
        with pytest.raises(UserError, match=message):
            packed.pack(folder)
        (folder / "README.md").write_text("# A model\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(UserError, match="other is not as 'vaswani pack' leaves a folder"):
        packed.pack(other)
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_what_was_there(code, folder, tmp_path):
    before = sha256_of(folder / "SHA256SUMS")

    def fill(part):
        (part / "config.json").write_text("half")
        raise OSError(code, "full")

    for out in (folder, tmp_path / "new"):
        with pytest.raises(UserError, match="there is no space left"):
            write_folder(out, fill)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sha256_of(folder / "SHA256SUMS") == before


def test_sha256sum_takes_the_hashes(made):
    import subprocess

    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made, check=True)
