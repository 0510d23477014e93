"""``vaswani export`` without its targets: rules, tolerances, the mapping, what is refused."""

import json
import math
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests import exported, packed
from vaswani import Translator, cli
from vaswani.common.errors import UserError
from vaswani.decoding.ctranslate2_engine import threads
from vaswani.export.card import export_card
from vaswani.export.comparison import (
    OTHERWISE,
    SIGNIFICANT,
    TOLERANCES,
    ModelComparison,
    SearchComparison,
    TokenizerComparison,
)
from vaswani.export.proof import bleu_of, nearest_exponent, penalty
from vaswani.export.teacher_forcing import log_probabilities
from vaswani.export.text import proof_text
from vaswani.export.to_ctranslate2 import fill_layer, position_table
from vaswani.model_folder.folder import EXPORTED, read_export, read_folder, read_model, write_folder
from vaswani.model_folder.search_options import SearchOptions, check_for_ctranslate2

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("alpha, length", [(0.6, 5.0), (0.6, 14.4), (1.0, 30.0), (0.0, 9.0)])
def test_the_nearest_exponent_has_the_same_slope(alpha, length):
    """d log length^λ / d log length = λ is that of the paper's ((5 + length) / 6)^α."""
    step = 1e-6
    above, below = (((5 + n) / 6) ** alpha for n in (length + step, length - step))
    slope = (math.log(above) - math.log(below)) / (
        math.log(length + step) - math.log(length - step)
    )
    assert nearest_exponent(alpha, length) == pytest.approx(slope, abs=1e-6)


def test_bleu_counts_characters_where_there_are_no_spaces():
    """As ``vaswani score`` does; 13a, which finds one word in a sentence, would say 0."""
    from sacrebleu.metrics import BLEU

    said, meant = ["วันนี้อยู่บ้าน", "แมวตัวใหญ่"], ["วันนี้อยู่บ้าน", "แมวตัวเล็ก"]
    expected = BLEU(tokenize="char", force=True).corpus_score(said, [meant]).score
    assert 50 < expected < 99
    assert bleu_of("th", meant).corpus_score(said, [meant]).score == pytest.approx(expected)
    spaced = ["the big cat is at home", "it is late now"], ["the cat is at home now", "it is late"]
    expected = BLEU(force=True).corpus_score(spaced[0], [spaced[1]]).score
    found = bleu_of("en", spaced[1]).corpus_score(spaced[0], [spaced[1]]).score
    assert found == pytest.approx(expected)


def row(difference, tolerance=1e-3, bleu=None, p=None):
    return SearchComparison("greedy", 500, 490, 2, 7, difference, tolerance, bleu, p, 1.0)


@pytest.mark.parametrize(
    "one, problem",
    [
        (ModelComparison(900, 9e-5, 1e-2, 1e-4), None),
        (
            ModelComparison(900, 2e-4, 2e-4, 1e-4),
            "differ by 0.0002 (root mean square), more than 0.0001",
        ),
        (ModelComparison(900, math.nan, math.nan, 0.1), "differ by nan"),
        (TokenizerComparison(500, 495, 500), None),
        (TokenizerComparison(500, 494, 500), "it reads only 494 of 500 as the packed model does"),
        (TokenizerComparison(3, 3, 1), "it writes only 1 of 3 as the packed model does"),
        (row(-9e-4), None),
        (row(0.5), None),  # better ones
        (row(-2e-3), "7 of 500 translations are worse by the packed model's own scores; on"),
        (row(-2e-3, 5e-3), None),
        (row(math.nan), "worse by the packed model's own scores"),
        (row(-0.5, None, [30.0, 25.0], 0.001), None),  # another length penalty
    ],
)
def test_tolerances(one, problem):
    found = one.problem()
    assert found is None if problem is None else problem in found


@pytest.mark.parametrize("p, warned", [(0.01, True), (0.2, False), (None, False)])
def test_another_length_penalty_is_only_warned_of(p, warned):
    warning = row(-0.5, None, [24.05, 23.49], p).warning()
    assert bool(warning) == warned and (not warned or "23.49" in warning and "24.05" in warning)


def test_the_documented_tolerances():
    """Those of docs/export.md; none is finer than float32's own error."""
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    for kind, limit in TOLERANCES.items():
        assert f"| `{kind}` | {limit:g} |" in text
        assert limit >= 10 * 2**-24 * 2048**0.5 * 36
    assert f"p < {SIGNIFICANT:g}" in text and f"{OTHERWISE:.0%} of them" in text


def test_penalties_are_the_searches():
    """fairseq's length^λ, and the paper's ((5 + length) / 6)^α."""
    assert penalty(9, SearchOptions(lenpen=0.5)) == 3
    gnmt = SearchOptions(lenpen=2.0, length_penalty="gnmt")
    assert penalty(7, gnmt) == pytest.approx(4)


def test_given_translations_have_their_probabilities(tmp_path):
    """In a batch padded on both sides: those of each sentence alone, in its place."""
    exported.pack(tmp_path / "model", updates=30)
    translator = Translator(read_folder(tmp_path / "model"), device="cpu")
    lines, targets = ["the house is big .", "a dog", "the cat"], [["a"], [], ["the", "cat", "is"]]
    words, model = translator.engine.target, translator.engine.model
    found = log_probabilities(translator, lines, targets)
    assert [len(row) for row in found] == [2, 1, 4]
    for line, target, row in zip(lines, targets, found, strict=True):
        tokens = [*map(words.index, target), words.eos()]
        with torch.no_grad():
            source = torch.tensor([translator.read(line).ids])
            logits, _ = model(source, None, torch.tensor([tokens]).roll(1))
        expected = logits[0].log_softmax(-1)[range(len(tokens)), tokens]
        torch.testing.assert_close(torch.tensor(row), expected, rtol=0, atol=1e-5)


# ---- the mapping to CTranslate2 -----------------------------------------------------------------


class Node:
    """Stands for any part of CTranslate2's specification; remembers what is set."""

    def __init__(self):
        self.__dict__["parts"] = {}
        self.__dict__["arrays"] = {}

    def __getattr__(self, name):
        return self.parts.setdefault(name, Node())

    __getitem__ = __getattr__

    def __setattr__(self, name, value):
        assert name not in self.arrays
        self.arrays[name] = value

    def all(self):
        found = list(self.arrays.values())
        return found + [one for part in self.parts.values() for one in part.all()]


@pytest.mark.parametrize("side, linears", [("encoder", 2), ("decoder", 5)])
def test_every_parameter_of_a_layer_has_one_place(side, linears, tmp_path):
    state = packed.pack(tmp_path / "model").state_dict()
    prefix = f"{side}.layers.1"
    names = [name for name in state if name.startswith(prefix + ".")]
    layer = Node()
    fill_layer(layer, state, prefix)
    assert sorted(a.shape for a in layer.all()) == sorted(tuple(state[n].shape) for n in names)
    sums = sorted(float(array.sum()) for array in layer.all())
    assert sums == pytest.approx(sorted(state[n].sum().item() for n in names), abs=1e-5)
    attentions = [layer.self_attention, layer.attention]
    assert sum(len(one.linear.parts) for one in attentions if "linear" in one.parts) == linears


@pytest.mark.parametrize("learned", [False, True])
def test_positions_become_a_table(learned, tmp_path):
    options = {f"{side}_learned_pos": learned for side in ("encoder", "decoder")}
    model = packed.pack(tmp_path / "model", **options)
    architecture = read_folder(tmp_path / "model").config["architecture"]
    tokens = torch.arange(4, 4 + 10)[None]
    for side in ("encoder", "decoder"):
        table = position_table(model.state_dict(), architecture, side)
        assert table.shape == (64, 16) and table.dtype == torch.float32
        embedding = getattr(model, side).embedding.eval()
        expected = embedding(tokens)[0] - embedding.tokens(tokens)[0] * 4
        torch.testing.assert_close(table[:10], expected)


# ---- a search that CTranslate2 lacks ------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"length_penalty": "gnmt"}, "--length-penalty gnmt is unavailable"),
        ({"sampling": True}, "--sampling is unavailable"),
        ({"unkpen": 1.0}, "--unkpen is unavailable"),
        ({"nbest": 6}, "--nbest 6 asks for more"),
        ({"lenpen": math.inf}, "--lenpen must be a finite"),
    ],
)
def test_options_that_cannot_be(options, message):
    check_for_ctranslate2(SearchOptions())
    with pytest.raises(UserError, match=message):
        check_for_ctranslate2(SearchOptions(**options))


def test_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads(None) == 3 and threads(1) == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads(None) >= 1


# ---- an exported folder -------------------------------------------------------------------------

TABLE = {
    "format": EXPORTED.format,
    "format_version": 1,
    "target": "ctranslate2",
    "quantization": None,
    "text": exported.RECIPE.table(),
    "generation": {"beam": 2},
    "limits": {"source": 64, "target": 64},
    "origin": {},
    "scores": {},
}


@pytest.fixture
def folder(tmp_path):
    """What an export leaves, with nothing in its model."""

    def fill(part):
        (part / "vaswani.json").write_text(json.dumps(TABLE))
        for name in ("model.bin", "config.json", "shared_vocabulary.json", "README.md"):
            (part / name).write_text("{}")

    write_folder(tmp_path / "exported", fill, EXPORTED)
    return tmp_path / "exported"


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, data, renewed=False):
    def written(folder):
        (folder / name).write_bytes(data)
        if renewed:
            exported.renew(folder, name)

    return written


def change(**values):
    return lambda folder: exported.change(folder, "", **values)


DAMAGES = {
    "no model": (remove("model.bin"), "No such file .*model.bin"),
    "no vocabulary": (remove("shared_vocabulary.json"), "No such file .*shared_vocabulary.json"),
    "no hashes": (remove("SHA256SUMS"), "No such file .*SHA256SUMS"),
    "a bit": (write("model.bin", b"}{"), "model.bin was altered or damaged: its hash"),
    "another config": (write("config.json", b"{ }"), "config.json was altered or damaged"),
    "no codes": (change(text={**TABLE["text"], "bpe": "subword_nmt"}), "No such file .*bpecodes"),
    "a newer format": (change(format_version=2), "version 2.*reads version 1: get a newer one"),
    "an older format": (change(format_version=0), "version 0.*: export the model again"),
    "another's": (change(format="onnx"), "was not written by 'vaswani export'"),
    "no JSON": (write("vaswani.json", b"{"), "damaged, or was not written by"),
    "a text option": (change(text={"alphabet": "runes"}), "text is of another version.*alphabet"),
    "fairseq's": (change(target="fairseq"), "was exported to fairseq, whose own commands"),
}


@pytest.mark.parametrize("damage, message", DAMAGES.values(), ids=DAMAGES)
def test_what_is_not_whole_is_refused(damage, message, folder):
    assert read_export(folder).langs == ("en", "de")
    damage(folder)
    for read in (read_model, Translator.from_pretrained):
        with pytest.raises((UserError, OSError), match=message):
            read(folder)


def test_an_export_is_no_packed_model(folder, capsys):
    assert cli.main(["attention", str(folder), "the house"]) == 1
    assert "was made by 'vaswani export'" in capsys.readouterr().err
    assert cli.main(["export", str(folder), "--to", "fairseq"]) == 1
    assert "give the model folder it was made from" in capsys.readouterr().err


def test_what_was_exported_is_replaced_and_nothing_else_is(folder, tmp_path):
    def fill(part):
        (part / "vaswani.json").write_text(json.dumps(TABLE))

    write_folder(folder, fill, EXPORTED)
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "vaswani.json"]
    (folder / "notes").touch()
    with pytest.raises(UserError, match="not as 'vaswani export' leaves a folder .notes was added"):
        write_folder(folder, fill, EXPORTED)
    model = tmp_path / "model"
    packed.pack(model)
    with pytest.raises(UserError, match="vaswani.json is missing, or another's"):
        write_folder(model, fill, EXPORTED)
    with pytest.raises(UserError, match="not as 'vaswani pack' leaves a folder"):
        packed.pack(folder)


def test_without_the_package(folder, tmp_path, monkeypatch, capsys):
    """One sentence says how to install it, before anything is done."""
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    packed.pack(tmp_path / "model")
    (folder / "shared_vocabulary.json").write_text('["<s>", "<pad>", "</s>", "<unk>"]')
    exported.renew(folder, "shared_vocabulary.json")
    (tmp_path / "text").write_text("the house\n")
    for arguments in (
        ["export", str(tmp_path / "model"), "--to", "ctranslate2"],
        ["translate", str(folder), str(tmp_path / "text")],
    ):
        assert cli.main(arguments) == 1
        error = capsys.readouterr().err
        assert "the package 'ctranslate2' is missing: pip install" in error
        assert len(error.splitlines()) == 1


# ---- the text -----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run with a packed model, and its prepared text beside it."""
    packed.pack(tmp_path / "runs" / "mine" / "model")
    config = tmp_path / "runs" / "mine" / "config.yaml"
    config.write_text("task: {data: data/mine/data-bin}\n")
    text = tmp_path / "data" / "mine" / "text"
    text.mkdir(parents=True)
    for subset in ("test", "valid"):
        (text / f"{subset}.en").write_text(f"the {subset}\n\na house\nthe end\n")
        (text / f"{subset}.de").write_text("das eine\n\nein Haus\ndas Ende\n")
    return tmp_path


def found(run, text=None, reference=None, lines=0):
    path = run / "runs" / "mine" / "model"
    return proof_text(path, read_folder(path), text, reference, lines)


def test_the_text_is_the_runs_test_else_its_validation_text(run, monkeypatch):
    monkeypatch.chdir("/")  # wherever one is
    text = found(run)
    assert text.name.endswith("data/mine/text/test.en")
    assert text.source == ["the test", "a house", "the end"]
    assert text.reference == ["das eine", "ein Haus", "das Ende"]
    assert found(run, lines=3).source == ["the test", "a house"]
    (run / "data" / "mine" / "text" / "test.de").unlink()
    assert found(run).source[0] == "the valid"
    shutil.rmtree(run / "data")
    with pytest.raises(UserError, match="in a run whose text still exists: say with --text FILE"):
        found(run)
    (run / "runs" / "mine" / "config.yaml").unlink()
    with pytest.raises(UserError, match="is not in a run"):
        found(run)


@pytest.mark.parametrize(
    "source, reference, message",
    [
        (b"a\nb\n", b"a\n", "text has 2 lines and meant 1"),
        (b"\n \n", None, "text holds no sentence"),
        ("Köln\n".encode("latin-1"), None, "line 1: byte 2 is not UTF-8"),
        (b"a\n", b"\xff\n", "meant, line 1: byte 1 is not UTF-8"),
        (b"x" * (1 << 20) + b"y\n", None, "line 1, is longer than 1,048,576"),
        (None, None, "there is no file text"),
    ],
)
def test_what_is_no_text(source, reference, message, run, monkeypatch, capsys):
    monkeypatch.chdir(run)
    arguments = ["export", "mine", "--to", "fairseq", "--text", "text"]
    if source is not None:
        Path("text").write_bytes(source)
    if reference is not None:
        Path("meant").write_bytes(reference)
        arguments += ["--reference", "meant"]
    before = sorted(run.rglob("*"))
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["mine", "--to", "fairseq", "--quantization", "int8"], "is for --to ctranslate2"),
        (["mine", "--to", "huggingface", "--quantization", "int8"], "huggingface has none"),
        (["mine", "--to", "fairseq", "--reference", "x"], "--reference needs --text: give both"),
        (["gone", "--to", "fairseq"], "there is no model folder gone"),
        (["last.pt", "--to", "fairseq"], "last.pt is a checkpoint, not a model folder"),
        (["mine", "--to", "fairseq", "--out", "data"], "not as 'vaswani export' leaves a folder"),
    ],
)
def test_what_cannot_be_exported(arguments, message, run, monkeypatch, capsys):
    monkeypatch.chdir(run)
    (run / "last.pt").write_bytes(b"x")
    before = sorted(run.rglob("*"))
    assert cli.main(["export", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize(
    "options, to, message",
    [
        ({"head_key_dim": 8}, "ctranslate2", "d_k 8 and d_v 4, but CTranslate2 needs one width"),
        ({"head_key_dim": 8, "head_value_dim": 8}, "fairseq", "both are d_model/h, which is 4"),
    ],
)
def test_heads_that_a_target_lacks(options, to, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", SimpleNamespace())
    packed.pack(tmp_path / "model", **options)
    assert cli.main(["export", str(tmp_path / "model"), "--to", to]) == 1
    assert message in capsys.readouterr().err


def test_the_card_says_how_to_use_it(run):
    model = read_folder(run / "runs" / "mine" / "model")
    text = {**TABLE["text"], "tokeniser": "moses", "bpe": "subword_nmt"}
    table = {**TABLE, "target": "fairseq", "text": text}
    table["generation"] = {"beam": 4, "lenpen": 0.6, "length_penalty": "fairseq"}
    card = export_card(table, model, Path("a model"), ["greedy 1 of 1"])
    assert "fairseq-interactive 'a model' --path 'a model'/model.pt --source-lang en" in card
    assert "--tokenizer moses --moses-no-dash-splits \\\n" in card
    assert "--bpe subword_nmt --bpe-codes 'a model'/bpecodes" in card
    assert "--beam 4 --lenpen 0.6\n```" in card and "greedy 1 of 1" in card
    card = export_card({**TABLE, "quantization": "float16"}, model, Path("m"), [])
    assert "for CTranslate2 (float16)" in card and "computes in float32" in card


# ---- the documents ------------------------------------------------------------------------------


def test_the_documented_service_is_the_example():
    example = (ROOT / "examples" / "service" / "service.py").read_text(encoding="utf-8")
    assert f"```python\n{example}```" in (ROOT / "docs" / "export.md").read_text(encoding="utf-8")


def test_the_service_answers(tmp_path, monkeypatch):
    pytest.importorskip("fastapi", reason="fastapi is missing: the example of a service is NOT run")
    pytest.importorskip("httpx", reason="httpx is missing: the example of a service is NOT run")
    from fastapi.testclient import TestClient

    packed.pack(tmp_path / "model")
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    found = runpy.run_path(str(ROOT / "examples" / "service" / "service.py"))
    client = TestClient(found["app"])
    said = ["the house", ""]
    answer = client.post("/translate", json={"sentences": said})
    expected = [one.text for one in Translator.from_pretrained(tmp_path / "model").translate(said)]
    assert answer.json() == expected and answer.status_code == 200
    assert client.post("/translate", json={"sentences": ["a"] * 101}).status_code == 422
