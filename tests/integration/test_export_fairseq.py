"""``vaswani export --to fairseq``: its own transformer finds the same, and the proof says so."""

import errno
import io
import json
from pathlib import Path

import pytest
import torch
from tqdm import tqdm

from tests import exported, packed, stock
from transformer_plugin.compat import saving
from vaswani import Translator
from vaswani.export import proof, to_fairseq

SEARCH = {"beam": 3, "lenpen": 0.6, "max_len_a": 0, "max_len_b": 12}
SAID = ["the house is big .", "a dog", "the cat sees 1 , 2"]


def export(model: Path, *arguments: object) -> int:
    return stock.vaswani("export", model, "--to", "fairseq", *arguments)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return exported.pack(tmp_path_factory.mktemp("packed") / "model", SEARCH)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text"
    path.write_text("\n".join(exported.sentences(10)) + "\n")
    return path


def tokens_of(model) -> list:
    """Return the packed model's tokens, which fairseq leaves as they are without a tokeniser."""
    found = Translator.from_pretrained(model).translate(SAID)
    return [" ".join(one.hypotheses[0].tokens) for one in found]


VARIANTS = {
    "two matrices, learned positions": {
        "share_decoder_input_output_embed": True,
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
    },
    "tensor2tensor's positions, norms first": {
        "sinusoid_layout": "t2t",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
    },
    "one side learned, norms first in the encoder, GELU": {
        "sinusoid_layout": "fairseq",
        "encoder_learned_pos": True,
        "encoder_normalize_before": True,
        "activation_fn": "gelu",
    },
}
"""Each option once: each model is trained until it knows its sentences."""


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_fairseqs_transformer_finds_the_same(options, text, tmp_path):
    exported.pack(tmp_path / "model", SEARCH, **options)
    assert export(tmp_path / "model", "--text", text) == 0
    folder = tmp_path / "model-fairseq"
    rows = json.loads((folder / "vaswani.json").read_text())["proof"]["rows"]
    assert [row["search"] for row in rows] == ["greedy", "beam 3, lenpen 0.6"]
    assert all(row["identical"] == 10 for row in rows)
    torch.load(folder / "model.pt", weights_only=True)  # nothing in it is a program


def test_each_pass_over_the_text_has_a_bar_that_reaches_its_end(model, text, tmp_path, monkeypatch):
    """Without it a proof of 500 sentences was silent for minutes."""
    bars = []

    def bar(title, total, unit):
        bars.append(tqdm(desc=title, total=total, unit=unit, file=io.StringIO()))
        return bars[-1]

    monkeypatch.setattr(proof, "stage_bar", bar)
    assert export(model, "--text", text, "--out", tmp_path / "out") == 0
    assert {shown.desc for shown in bars} == {
        "packed model, beam 3, lenpen 0.6",
        "packed model, greedy",
        "log-probabilities",
        "export, beam 3, lenpen 0.6",
        "export, greedy",
    }
    assert all(shown.n == shown.total == 10 for shown in bars)


def test_an_activation_with_which_fairseq_fails_is_refused(text, tmp_path, capsys):
    packed.pack(tmp_path / "model", activation_fn="swish")
    assert export(tmp_path / "model", "--text", text) == 1
    assert "swish" in capsys.readouterr().err
    assert not (tmp_path / "model-fairseq").exists()


def test_fairseqs_from_pretrained_takes_it(model, text, tmp_path):
    from fairseq.models.transformer import TransformerModel

    out = tmp_path / "out"
    assert export(model, "--text", text, "--out", out) == 0
    hub = TransformerModel.from_pretrained(str(out), "model.pt", data_name_or_path=str(out))
    search = {name: value for name, value in SEARCH.items() if name != "beam"}
    assert hub.translate(SAID, beam=3, **search) == tokens_of(model)


def test_the_papers_length_penalty_becomes_the_nearest_exponent(model, text, tmp_path):
    folder = exported.packed_like(model, tmp_path / "model", length_penalty="gnmt")
    assert export(folder, "--text", text, "--reference", text) == 0
    table = json.loads((tmp_path / "model-fairseq" / "vaswani.json").read_text())
    nearest = proof.nearest_exponent(0.6, table["proof"]["mean_length"])
    assert table["generation"]["length_penalty"] == "fairseq"
    assert table["generation"]["lenpen"] == pytest.approx(nearest, abs=1e-3)
    assert [row["least_identical"] for row in table["proof"]["rows"]] == [0.9, 0.9, None]
    state = torch.load(tmp_path / "model-fairseq" / "model.pt", weights_only=True)
    assert state["cfg"]["generation"]["lenpen"] == table["generation"]["lenpen"]


def test_a_proof_that_fails_leaves_nothing(model, text, tmp_path, monkeypatch):
    original = to_fairseq.position_table
    monkeypatch.setattr(to_fairseq, "position_table", lambda *given: original(*given).roll(1, 0))
    assert export(model, "--text", text, "--out", tmp_path / "out") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_full_disk_leaves_nothing(model, text, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    monkeypatch.setattr(saving, "PAUSE", 0)
    out = tmp_path / "out"
    assert export(model, "--text", text, "--out", out) == 1
    assert str(out) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
