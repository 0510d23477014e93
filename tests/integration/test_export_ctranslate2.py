"""``vaswani export --to ctranslate2`` and ``vaswani translate`` of what it makes."""

import contextlib
import errno
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import exported, packed
from tests.rounding import rounding_of_small_model
from tests.stock import fresh_process
from vaswani import Translator, cli
from vaswani.export import proof as export_proof
from vaswani.export.comparison import SIGNIFICANT
from vaswani.export.to_ctranslate2 import write_model
from vaswani.model_folder.folder import read_folder

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the package ctranslate2 is missing: exports to it are NOT tested"
)

#: min_len is 0 since CTranslate2 leaves the end out before the first softmax, fairseq after it
SEARCH = {"beam": 3, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 10, "min_len": 0}


def run(*arguments: object) -> int:
    with fresh_process():
        return cli.main([str(argument) for argument in arguments])


def printed(*arguments: object) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run("translate", *arguments) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A packed model that copies its sentences."""
    return exported.pack(tmp_path_factory.mktemp("packed") / "model", SEARCH)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("\n".join(exported.sentences()) + "\n")
    return path


@pytest.fixture(scope="module")
def moved(model, text) -> Path:
    """The same model, exported."""
    assert run("export", model, "--to", "ctranslate2", "--text", text) == 0
    return model.with_name("model-ctranslate2")


# ---- the model ----------------------------------------------------------------------------------

VARIANTS = {
    "the paper's": {},
    "three matrices": {"untie_embeddings": True},
    "two matrices": {"share_decoder_input_output_embed": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "tensor2tensor's positions": {"sinusoid_layout": "t2t"},
    "fairseq's positions and norms": {"sinusoid_layout": "fairseq", "layer_norm_eps": 1e-5},
    "other depths": {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 2},
    "wider heads": {"head_key_dim": 8, "head_value_dim": 8},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_every_word_has_our_probability(options, tmp_path):
    """With the translation given, so that no search is in between."""
    model = packed.pack(tmp_path / "model", **options).eval()
    (tmp_path / "out").mkdir()
    write_model(read_folder(tmp_path / "model"), model.state_dict(), tmp_path / "out", None)
    theirs = ctranslate2.Translator(str(tmp_path / "out"))
    sources = ["the house is", "a dog sees the cat ."]
    targets = ["the cat 1 2", "dog"]
    scored = theirs.score_batch([s.split() for s in sources], [t.split() for t in targets])
    words = model.encoder.dictionary
    for source, target, found in zip(sources, targets, scored, strict=True):
        read, hypothesis = (
            words.encode_line(line, add_if_not_exist=False) for line in (source, target)
        )
        previous = torch.cat([hypothesis[-1:], hypothesis[:-1]]).long()
        logits, _ = model(read.long()[None], None, previous[None])
        expected = logits[0].log_softmax(-1).gather(1, hypothesis.long()[:, None])[:, 0]
        torch.testing.assert_close(
            torch.tensor(found.log_probs),
            expected,
            rtol=0,
            atol=rounding_of_small_model(torch.float32),
        )


@pytest.mark.parametrize("kind, size", [("int8", 0.5), ("float16", 0.7), ("bfloat16", 0.7)])
def test_what_is_stored(kind, size, model, moved, text, tmp_path, monkeypatch):
    if kind == "int8":  # with AVX2 alone it is less exact, and may be refused
        monkeypatch.setitem(export_proof.TOLERANCES, kind, 10.0)
    arguments = ["--to", "ctranslate2", "--quantization", kind, "--out", tmp_path / "out"]
    assert run("export", model, *arguments, "--text", text) == 0
    table = json.loads((tmp_path / "out" / "vaswani.json").read_text())
    assert table["quantization"] == kind
    limit = export_proof.TOLERANCES[kind]
    assert table["proof"]["model"]["tolerance"] == limit
    float32 = json.loads((moved / "vaswani.json").read_text())["proof"]["model"]
    assert table["proof"]["model"]["root_mean_square"] > 2 * float32["root_mean_square"]
    assert [row["tolerance"] for row in table["proof"]["rows"]] == [limit] * 2
    stored, whole = ((folder / "model.bin").stat().st_size for folder in (tmp_path / "out", moved))
    assert stored < size * whole


# ---- translate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--beam", 1],
        ["--lenpen", 1.5],
        ["--print-alignment"],
        ["--replace-unk"],
        ["--workers", 3, "--max-tokens", 40],
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_the_same_as_the_packed_model(options, model, moved, text, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text(text.read_text() + "\n   \n" + "the " * 80 + "\nthe elephant\n")
    workers = [] if "--workers" in options else ["--workers", 1]
    found, expected = (printed(m, lines, *options, *workers) for m in (moved, model))
    assert found == expected and found.count("\n") >= 28


def test_columns_and_bounds(moved, text):
    rows = printed(moved, text, "--nbest", 3, "--scores").splitlines()
    scores = [float(row.split("\t")[1]) for row in rows]
    assert len(rows) == 3 * 24
    for first in range(0, len(rows), 3):
        assert scores[first : first + 3] == sorted(scores[first : first + 3], reverse=True)
        assert len({row.split("\t")[0] for row in rows[first : first + 3]}) == 3
    bound = ["--max-len-a", 0, "--max-len-b", 3, "--print-alignment"]
    tokens = [row.split("\t")[2].split() for row in printed(moved, text, *bound).splitlines()]
    assert max(map(len, tokens)) == 3


def test_scores(model, moved, text):
    found, expected = (
        [float(line.split("\t")[1]) for line in printed(m, text, "--scores").splitlines()]
        for m in (moved, model)
    )
    assert found == pytest.approx(expected, abs=5e-3)


def test_a_file(moved, text, tmp_path):
    whole = printed(moved, text, "--buffer-size", 5)
    out = tmp_path / "out"
    for _ in range(2):
        assert run("translate", moved, text, "--buffer-size", 5, "--output", out) == 0
        assert out.read_text() == whole


def test_in_python_and_from_threads(model, moved):
    translator = Translator.from_pretrained(moved)
    sentences = exported.sentences()
    expected = [one.text for one in Translator.from_pretrained(model).translate(sentences)]
    assert [one.text for one in translator.translate(sentences)] == expected
    found = {}

    def work(number):
        found[number] = translator.translate([sentences[number]])[0].text

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(sentences))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(sentences))] == expected
    assert translator.translate([]) == [] and translator.translate([""])[0].text == ""
    with pytest.raises(TypeError, match="takes a list"):
        translator.translate("the house")


def test_neither_torch_nor_fairseq_is_needed(moved):
    code = (
        "import sys; sys.modules.update(torch=None, fairseq=None); from vaswani import Translator;"
        f"print(Translator.from_pretrained({str(moved)!r}).translate(['the house'])[0].text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == Translator.from_pretrained(moved).translate(["the house"])[0].text


@pytest.mark.parametrize(
    "options, message",
    [
        (["--length-penalty", "gnmt"], "--length-penalty gnmt is unavailable"),
        (["--sampling"], "--sampling is unavailable"),
        (["--sampling-topk", 5], "--sampling is unavailable"),
        (["--temperature", 2], "--temperature is unavailable"),
        (["--unkpen", 2], "--unkpen is unavailable"),
        (["--precision", "bf16"], "chosen by 'vaswani export --quantization'"),
    ],
)
def test_what_it_lacks(options, message, moved, text, tmp_path, capsys):
    assert run("translate", moved, text, *options, "--output", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_beam_above_the_vocabulary_is_reduced(moved, caplog):
    translator = Translator.from_pretrained(moved)
    (wide,) = translator.translate(["the house"], beam=99, nbest=99)
    assert "--beam 99 is reduced to 17" in caplog.text
    (most,) = translator.translate(["the house"], beam=17, nbest=17)
    assert [one.text for one in wide.hypotheses] == [one.text for one in most.hypotheses]


# ---- what goes wrong ----------------------------------------------------------------------------


def test_a_proof_that_fails_leaves_nothing(model, text, tmp_path, capsys, monkeypatch):
    from vaswani.export import to_ctranslate2

    original = to_ctranslate2.position_table
    monkeypatch.setattr(
        to_ctranslate2, "position_table", lambda *given: original(*given).roll(1, 0)
    )
    arguments = ["--to", "ctranslate2", "--text", text, "--out", tmp_path / "out"]
    assert run("export", model, *arguments) == 1
    assert "fails its proof: the model:" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---- the proof ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def young(model, tmp_path_factory) -> Path:
    """A model that has learned little: it repeats words until it is cut in many sentences."""
    folder = tmp_path_factory.mktemp("young") / "model"
    return exported.pack(folder, {**SEARCH, "max_len_b": 30}, updates=45)


@pytest.fixture(scope="module")
def more_text(tmp_path_factory) -> Path:
    """Most of these sentences are new to the models."""
    path = tmp_path_factory.mktemp("more") / "text"
    path.write_text("\n".join(exported.sentences(200)) + "\n")
    return path


def proof(model, text, tmp_path, kind=None, lines=0) -> Any:
    """What ``vaswani export`` returned, and the proof that it wrote, if any."""
    arguments = ["--to", "ctranslate2", "--out", tmp_path / "out", "--text", text]
    arguments += ["--reference", text, "--lines", lines]
    arguments += ["--quantization", kind] if kind else []
    code = run("export", model, *arguments)
    table = tmp_path / "out" / "vaswani.json"
    return code, json.loads(table.read_text())["proof"] if table.exists() else None


@pytest.mark.parametrize("kind", [None, "float16"])
def test_a_young_model_is_exported(kind, young, more_text, tmp_path):
    """Whatever its search turns a last digit into: its translations score as high."""
    code, found = proof(young, more_text, tmp_path, kind)
    assert code == 0
    limit = export_proof.TOLERANCES[kind or "float32"]
    assert 0 < found["model"]["root_mean_square"] < limit
    assert all(row["identical"] > 100 for row in found["rows"])


def changed_parameters(change) -> Any:
    """The exported parameters, changed in place."""

    def write(folder, parameters, *more):
        state = {name: value.clone() for name, value in parameters.items()}
        change(state)
        return write_model(folder, state, *more)

    return "vaswani.export.to_ctranslate2.write_model", write


def wrong_weight(state):
    state["decoder.layers.0.feed_forward.fc1.weight"][3, 5] += 5


def wrong_scale(state):
    state["decoder.layers.0.cross_attention.out_proj.weight"] *= 2


def swapped_words(state):
    for name in state:
        if "embedding" in name or "output_projection" in name:
            state[name][[5, 6]] = state[name][[6, 5]]


FAULTS = {"a weight": wrong_weight, "a scale": wrong_scale, "the vocabulary": swapped_words}


@pytest.mark.parametrize("lines", [200, 50])
@pytest.mark.parametrize("kind", [None, "int8"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_broken_model_is_refused(
    fault, kind, lines, young, more_text, tmp_path, capsys, monkeypatch
):
    """By its probabilities, whatever it translates."""
    monkeypatch.setattr(*changed_parameters(fault))
    code, found = proof(young, more_text, tmp_path, kind, lines)
    assert code == 1 and found is None
    error = capsys.readouterr().err
    assert "fails its proof: the model: log-probabilities" in error
    assert "--lines" in error and "--text" in error and "--reference" in error


WRONG = {"a length penalty": {"lenpen": -5.0}, "a length": {"max_len_a": 0, "max_len_b": 2}}


@pytest.mark.parametrize("lines", [200, 50])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_search_is_refused(wrong, lines, young, more_text, tmp_path, capsys, monkeypatch):
    """The model is the same, but not what the search prefers: by its scores."""
    generation = export_proof.Proof.generation
    monkeypatch.setattr(
        export_proof.Proof,
        "generation",
        lambda proof, packed: {**generation(proof, packed), **wrong},
    )
    assert proof(young, more_text, tmp_path, lines=lines) == (1, None)
    error = capsys.readouterr().err
    assert "fails its proof: " in error
    assert "are worse by the packed model's own scores" in error


def test_the_score_of_an_export_is_its_own_and_bleu_refuses_nothing(more_text, tmp_path, capsys):
    """Few translations differ, for another length penalty and at the maximum length; BLEU does."""
    search = {**SEARCH, "max_len_b": 30, "length_penalty": "gnmt"}
    model = exported.pack(tmp_path / "model", search, updates=120)
    code, found = proof(model, more_text, tmp_path)
    assert code == 0
    last = found["rows"][-1]
    assert last["tolerance"] is None and 0 <= last["p"] <= 1
    assert abs(last["bleu"][1] - last["bleu"][0]) > 0.5
    table = json.loads((tmp_path / "out" / "vaswani.json").read_text())
    (score,) = (rows["bleu"] for rows in table["scores"].values())
    assert score["score"] == pytest.approx(last["bleu"][1], abs=0.01)
    assert f"| {score['score']:.2f} |" in (tmp_path / "out" / "README.md").read_text()
    assert ("warning: " in capsys.readouterr().err) == (last["p"] < SIGNIFICANT)


def test_a_full_disk_leaves_nothing(model, text, tmp_path, capsys, monkeypatch):
    from ctranslate2.specs import model_spec

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(model_spec.ModelSpec, "_serialize", full)
    arguments = ["--to", "ctranslate2", "--text", text, "--out", tmp_path / "out"]
    assert run("export", model, *arguments) == 1
    assert "there is no space left for" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
