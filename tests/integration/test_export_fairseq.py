"""``vaswani export --to fairseq``: its own transformer finds the same, and the proof says so."""

import errno
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import exported
from tests.stock import fresh_process
from vaswani import Translator, cli
from vaswani.export import proof, to_fairseq

SEARCH = {"beam": 3, "lenpen": 0.6, "max_len_a": 0, "max_len_b": 12}


def run(*arguments: object) -> int:
    with fresh_process():
        return cli.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "model"
    return exported.pack(folder, SEARCH)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text"
    path.write_text("\n".join(exported.sentences(10)) + "\n")
    return path


VARIANTS = {
    "the paper's": {},
    "three matrices": {"untie_embeddings": True},
    "two matrices": {"share_decoder_input_output_embed": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "tensor2tensor's positions": {"sinusoid_layout": "t2t", "decoder_layers": 1},
    "fairseq's positions and norms": {"sinusoid_layout": "fairseq", "layer_norm_eps": 1e-5},
    "one side learned": {"sinusoid_layout": "fairseq", "encoder_learned_pos": True},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_fairseqs_transformer_finds_the_same(options, text, tmp_path, capsys):
    exported.pack(tmp_path / "model", SEARCH, **options)
    assert run("export", tmp_path / "model", "--to", "fairseq", "--text", text) == 0
    out, _ = capsys.readouterr()
    assert "10 sentences of " in out and out.count("10 of 10  100.00%") == 2
    folder = tmp_path / "model-fairseq"
    table = json.loads((folder / "vaswani.json").read_text())
    assert [row["search"] for row in table["proof"]["rows"]] == ["greedy", "beam 3, lenpen 0.6"]
    assert all(row["identical"] == 10 for row in table["proof"]["rows"])
    state = torch.load(folder / "model.pt", weights_only=True)  # nothing in it is a program
    untied, two = (
        bool(options.get(f"{name}_embed{end}"))
        for name, end in (("untie", "dings"), ("share_decoder_input_output", ""))
    )
    said = state["cfg"]["model"]
    assert said["share_all_embeddings"] is not (untied or two)
    assert said["share_decoder_input_output_embed"] is not untied


def test_fairseqs_from_pretrained_takes_it(model, text, tmp_path):
    from fairseq.models.transformer import TransformerModel

    out = tmp_path / "out"
    assert run("export", model, "--to", "fairseq", "--text", text, "--out", out) == 0
    hub = TransformerModel.from_pretrained(str(out), "model.pt", data_name_or_path=str(out))
    search = {name: value for name, value in SEARCH.items() if name != "beam"}
    assert hub.translate(SAID, beam=3, **search) == tokens_of(model)
    (out / "README.md").write_text("mine")
    assert run("export", model, "--to", "fairseq", "--text", text, "--out", out) == 1


def tokens_of(model) -> list:
    """What the packed model says, as fairseq leaves it where it knows no tokeniser."""
    found = Translator.from_pretrained(model).translate(SAID)
    return [" ".join(one.hypotheses[0].tokens) for one in found]


SAID = ["the house is big .", "a dog", "the cat sees 1 , 2"]


def test_the_papers_length_penalty_becomes_an_exponent(model, text, tmp_path, capsys):
    folder = exported.packed_like(model, tmp_path / "model", length_penalty="gnmt")
    arguments = ["--to", "fairseq", "--text", text, "--reference", text]
    assert run("export", folder, *arguments) == 0
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) == 6 and "beam 3, lenpen gnmt 0.6: there 0." in out
    table = json.loads((tmp_path / "model-fairseq" / "vaswani.json").read_text())
    found = table["generation"]
    nearest = proof.nearest_exponent(0.6, table["proof"]["mean_length"])
    assert found["length_penalty"] == "fairseq" and found["beam"] == 3
    assert found["lenpen"] == pytest.approx(nearest, abs=1e-3)
    rows = table["proof"]["rows"]
    assert [len(row["bleu"]) for row in rows] == [2, 2, 2]
    assert [row["tolerance"] for row in rows] == [1e-3, 1e-3, None]
    state = torch.load(tmp_path / "model-fairseq" / "model.pt", weights_only=True)
    assert state["cfg"]["generation"]["lenpen"] == found["lenpen"]  # from_pretrained searches so


def test_a_proof_that_fails_leaves_nothing(model, text, tmp_path, capsys, monkeypatch):
    original = to_fairseq.position_table
    monkeypatch.setattr(to_fairseq, "position_table", lambda *given: original(*given).roll(1, 0))
    out = tmp_path / "out"
    assert run("export", model, "--to", "fairseq", "--text", text, "--out", out) == 1
    printed, error = capsys.readouterr()
    assert "fails its proof: the model:" in error and "nothing was written" in error
    assert "greedy" in printed  # the figures
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("name", ["torch.save", "shutil.copyfile"])
def test_a_full_disk_leaves_what_was_there(name, model, text, tmp_path, capsys, monkeypatch):
    def full(*_):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            if name == "torch.save":  # whose writer makes another error of it
                raise RuntimeError("unexpected pos 704 vs 598") from error
            raise

    monkeypatch.setattr(name, full)
    out = tmp_path / "out"
    assert run("export", model, "--to", "fairseq", "--text", text, "--out", out) == 1
    error = capsys.readouterr().err
    assert f"there is no space left for {out}" in error and "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_sentence_that_the_model_does_not_take_is_left_out(model, tmp_path, capsys):
    (tmp_path / "text").write_text("the house\n" + "the " * 80 + "\n")
    arguments = ["--to", "fairseq", "--text", tmp_path / "text", "--out", tmp_path / "out"]
    assert run("export", model, *arguments) == 0
    assert "1 sentences of" in capsys.readouterr().out


def test_an_altered_model_is_not_exported(model, text, tmp_path, capsys):
    folder = exported.packed_like(model, tmp_path / "model")
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-100] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert run("export", folder, "--to", "fairseq", "--text", text) == 1
    assert "model.safetensors was altered or damaged" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "text"]


@pytest.mark.slow
def test_the_cards_command_needs_no_plugin(model, text, tmp_path):
    """fairseq-interactive in a process and folder of its own."""
    out = tmp_path / "out"
    assert run("export", model, "--to", "fairseq", "--text", text, "--out", out) == 0
    block = (out / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    words = shlex.split(block.replace("\\\n", " "))
    assert words[0] == "fairseq-interactive"
    command = [str(Path(sys.executable).with_name(words[0])), *words[1:], "--cpu"]
    done = subprocess.run(
        command, input="\n".join(SAID), cwd=tmp_path, text=True, capture_output=True, check=True
    )
    lines = [line.split("\t")[2] for line in done.stdout.splitlines() if line.startswith("D-")]
    assert lines == tokens_of(model)
