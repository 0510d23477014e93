"""``vaswani pack``: of a run, of a checkpoint; of fairseq's own transformer, old ones included."""

import argparse
import json
import math
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from fairseq.data import Dictionary
from safetensors.torch import load_file

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from transformer_plugin.compat.dictionaries import KEY, dictionary_hashes
from vaswani import Translator, pack
from vaswani.common.errors import UserError
from vaswani.folders.model_folder import WEIGHTS, ModelFolder
from vaswani.folders.run import Run
from vaswani.packing import data_text
from vaswani.packing.fairseq_model import to_present_names

#: a bound that does not depend on the batch, as fairseq's with a factor does
SEARCH = {"max_len_a": 0, "max_len_b": 9, "beam": 4}
FLAGS = ["--max-len-a", "0", "--max-len-b", "9"]
THEIRS = ["--arch", "transformer"]
for _side in ("encoder", "decoder"):
    THEIRS += [f"--{_side}-layers", "2", f"--{_side}-embed-dim", "32"]
    THEIRS += [f"--{_side}-ffn-embed-dim", "64", f"--{_side}-attention-heads", "4"]
SHARING = {
    "tied": ["--share-all-embeddings"],
    "decoder tied": ["--share-decoder-input-output-embed"],
    "untied": [],
}


# ---- a run --------------------------------------------------------------------------------------


@pytest.fixture
def run(another, tiny_data_bin, tmp_path, monkeypatch) -> Path:
    """Make a run with a last checkpoint and its data, in the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "digits"
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(another, folder / "checkpoints" / "checkpoint_last.pt")
    config = {
        "task": {"_name": "vaswani_translation", "data": str(tiny_data_bin)},
        "generation": {"beam": 3, "lenpen": 0.6},
    }
    config["task"].update(source_lang="en", target_lang="de", length_penalty="gnmt")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def config(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def test_a_run_is_packed_once(run):
    assert stock.vaswani("pack", "digits") == 0
    found = config(run / "model")
    assert (found["origin"]["checkpoint"], found["origin"]["updates"]) == ("checkpoint_last.pt", 20)
    assert found["generation"] == {"beam": 3, "lenpen": 0.6, "length_penalty": "gnmt"}
    before = (run / "model" / "config.json").stat()
    (run / "model" / "README.md").write_text("# Mine\n")  # which may be edited
    assert stock.vaswani("pack", "digits") == 0
    assert (run / "model" / "config.json").stat() == before
    assert stock.vaswani("pack", "digits", "--lowercase") == 1, (
        "another model, and the card is mine"
    )
    assert (run / "model" / "README.md").read_text() == "# Mine\n"


def test_as_a_function_it_returns_the_folder(run):
    """Of the run's best checkpoint, into the run, unless the call says otherwise."""
    folder = pack(Run(run))
    assert (folder.path, folder.langs) == (run / "model", ("en", "de"))
    assert folder.search_options.lenpen == 0.6
    elsewhere = pack(Run(run), run / "checkpoints" / "checkpoint_last.pt", Path("elsewhere"))
    assert elsewhere.path == Path("elsewhere")
    assert elsewhere.weights_sha256 == folder.weights_sha256


def test_scores_of_earlier_versions_are_not_packed(run, capsys):
    """They did not record the hashes of the checkpoint and of the references."""
    (run / "eval").mkdir()
    report = {"checkpoint": "runs/digits/checkpoints/checkpoint_last.pt", "precision": "bf16"}
    (run / "eval" / "test.json").write_text(json.dumps(report))
    score = {"label": "sacreBLEU", "score": 27.25, "signature": "nrefs:1|tok:13a"}
    (run / "eval" / "test.score.json").write_text(json.dumps({"bleu": score}))
    assert stock.vaswani("pack", "digits") == 0
    assert config(run / "model")["scores"] == {}
    assert "vaswani generate runs/digits" in capsys.readouterr().err


def test_half_is_how_parameters_are_stored_not_how_they_are_read(run):
    assert stock.vaswani("pack", "digits", "--out", "whole") == 0
    assert stock.vaswani("pack", "digits", "--half") == 0
    stored = load_file(run / "model" / WEIGHTS)
    assert {value.dtype for value in stored.values()} == {torch.float16}
    expected = ModelFolder.read(Path("whole")).parameters()
    found = ModelFolder.read(run / "model").parameters()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value.half().float(), rtol=0, atol=0)


def test_half_is_refused_where_a_number_is_too_large_for_it(run, capsys):
    last = run / "checkpoints" / "checkpoint_last.pt"
    state = load_checkpoint(last)
    state["model"]["decoder.layers.0.feed_forward.fc2.bias"][3] = 65_520.0
    torch.save(state, last)
    assert stock.vaswani("pack", "digits", "--half") == 1
    assert "decoder.layers.0.feed_forward.fc2.bias" in capsys.readouterr().err
    assert not (run / "model").exists()


def test_what_has_the_lowest_validation_loss_is_packed(run, trained, capsys):
    """Of the best checkpoint and an average without stored losses; export refuses the other."""
    folder = run / "checkpoints"
    shutil.copy(folder / "checkpoint_last.pt", folder / "checkpoint_best.pt")
    state = load_checkpoint(folder / "checkpoint_last.pt")
    bad = {name: 9 * value for name, value in state["model"].items()}
    for model, lowest in (
        (bad, "checkpoint_best.pt"),
        (load_checkpoint(trained)["model"], "checkpoint_average_last2.pt"),
    ):
        average = {**state, "model": model, "averaged_updates": [10, 20]}
        torch.save(average, folder / "checkpoint_average_last2.pt")
        if (run / "model").exists() and lowest != "checkpoint_best.pt":
            assert stock.vaswani("export", "digits", "--to", "fairseq") == 1
            assert "vaswani pack runs/digits" in capsys.readouterr().err
        assert stock.vaswani("pack", "digits") == 0
        assert config(run / "model")["origin"]["checkpoint"] == lowest


def test_another_dictionary_of_the_same_size_is_refused(run, tiny_data_bin, tmp_path, capsys):
    last = run / "checkpoints" / "checkpoint_last.pt"
    state = load_checkpoint(last)
    known = Dictionary.load(str(tiny_data_bin / "dict.en.txt"))
    task = SimpleNamespace(source_dictionary=known, target_dictionary=known)
    state["task_state"][KEY] = dictionary_hashes(task)
    torch.save(state, last)
    assert stock.vaswani("pack", "digits", "--out", "same") == 0
    data = shutil.copytree(tiny_data_bin, tmp_path / "other")
    for lang in ("en", "de"):
        words = (data / f"dict.{lang}.txt").read_text().splitlines(keepends=True)
        (data / f"dict.{lang}.txt").write_text("".join(reversed(words)))
    assert stock.vaswani("pack", "digits", "--data", data) == 1
    assert "dictionary" in capsys.readouterr().err
    assert not (run / "model").exists()


def test_a_training_begins_with_a_packed_model(run, tiny_data_bin):
    assert stock.vaswani("pack", "digits", "--out", "away/model") == 0
    shutil.rmtree(run)  # it is needed no more
    assert stock.vaswani("new", "tuned", "--data", tiny_data_bin, "--from", "away/model") == 0
    start = Path(
        yaml.safe_load(Path("tuned.yaml").read_text())["checkpoint"]["finetune_from_model"]
    )
    once = ["optimization.max_update=1", "lr_scheduler.lr_factor=1e-9"]
    assert stock.vaswani("train", "tuned", *once) == 0
    last = Path("runs/tuned/checkpoints/checkpoint_last.pt")
    difference, parameter = stock.largest_difference(last, start)
    assert difference < 1e-7, parameter
    start.write_bytes(last.read_bytes())
    assert stock.vaswani("new", "again", "--data", tiny_data_bin, "--from", "away/model") == 1
    assert start.read_bytes() == last.read_bytes(), "somebody else's checkpoint is not replaced"


# ---- how its text was prepared ------------------------------------------------------------------

RECIPES = {
    "none": ({}, "Das Haus .", {"tokeniser": "moses", "lowercase": False, "subword": None}),
    "small letters": ({}, "das haus .", {"lowercase": True}),
    "hyphens": ({}, "alt @-@ Bau", {"split_hyphens": True}),
    "codes": ({"codes": ""}, "Ha@@ us", {"subword": "subword_nmt"}),
    "normalised": (
        {"recipe.yaml": "normalise: all\nsplit_hyphens: true\nstraight_test_apostrophes: true"},
        "Haus",
        {"normalise": "all", "split_hyphens": True, "straight_apostrophes": True},
    ),
    "of an earlier version": (
        {"recipe.yaml": "normalise: none"},
        "Haus",
        {"unicode": "none", "text_rules": 1},
    ),
    "of this version": (
        {"recipe.yaml": "unicode: NFC\ntext_rules: 2\nlowercase: true"},
        "Haus",
        {"unicode": "NFC", "text_rules": 2, "lowercase": True},
    ),
}


def recipe_of(folder: Path, files: dict, words: str) -> data_text.TextRecipe:
    data = folder / "data-bin" if "recipe.yaml" in files else folder
    data.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    for lang in ("en", "de"):
        (data / f"dict.{lang}.txt").write_text("".join(f"{word} 1\n" for word in words.split()))
    dictionaries = data / "dict.en.txt", data / "dict.de.txt"
    return data_text.text_recipe(data_text.DataOptions(), data, ("en", "de"), dictionaries)[0]


@pytest.mark.parametrize("files, words, expected", RECIPES.values(), ids=RECIPES)
def test_data_tells_how_its_text_was_prepared(files, words, expected, tmp_path):
    recipe = recipe_of(tmp_path, files, words)
    assert {name: getattr(recipe, name) for name in expected} == expected


def test_split_words_need_codes(tmp_path):
    with pytest.raises(UserError, match="Ha@@"):
        recipe_of(tmp_path, {}, "Ha@@ us")


def test_other_codes_than_the_datas_are_refused(tmp_path):
    """They packed in silence, and the model got subwords that it does not know."""
    recipe_of(
        tmp_path, {"codes": "#version: 0.2\nH a\n", "other": "#version: 0.2\nu s</w>\n"}, "Ha@@"
    )
    dictionaries = tmp_path / "dict.en.txt", tmp_path / "dict.de.txt"
    for name, other in (("other", True), ("codes", False)):
        options = data_text.DataOptions(bpe_codes=str(tmp_path / name))
        with pytest.raises(UserError, match="differs from .*codes") if other else nullcontext():
            data_text.text_recipe(options, tmp_path, ("en", "de"), dictionaries)


def test_rules_of_a_later_version_are_refused(tmp_path):
    with pytest.raises(
        UserError, match="text_rules is 99, but this version of vaswani-transformer knows 1 to"
    ):
        recipe_of(tmp_path, {"recipe.yaml": "text_rules: 99"}, "Haus")


# ---- fairseq's own transformer ------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=["tied", "untied", pytest.param("decoder tied", marks=pytest.mark.slow)],
)
def theirs(request, tiny_data_bin, tmp_path_factory) -> Path:
    """Train fairseq's transformer for 20 updates, and return its checkpoint."""
    folder = tmp_path_factory.mktemp("theirs")
    model = [*THEIRS, *SHARING[request.param]]
    recipe = ["--optimizer", "adam", "--lr", "0.005", "--criterion", "cross_entropy"]
    extra = ["--max-update", "20", "--no-epoch-checkpoints"]
    stock.train(tiny_data_bin, folder, *extra, model=model, recipe=recipe)
    return folder / "checkpoint_last.pt"


def test_a_training_starts_from_a_checkpoint_of_fairseqs(
    theirs, tiny_data_bin, tmp_path, monkeypatch, capsys
):
    """``vaswani new --from checkpoint.pt``: the first loss is that of the checkpoint's model."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(theirs, "theirs.pt")
    command = ["new", "tuned", "--data", tiny_data_bin, "--from", "theirs.pt"]
    assert stock.vaswani(*command) == 0
    assert "theirs.pt packed" in capsys.readouterr().err
    begin = ["optimization.max_update=1", "lr_scheduler.lr_factor=1e-6", "common.cpu=true"]
    assert stock.vaswani("train", "tuned", *begin) == 0
    trained = load_checkpoint(Path("runs/tuned/checkpoints/checkpoint_last.pt"))["model"]
    packed_model = ModelFolder.read(Path("theirs-model")).parameters()
    for name, parameter in packed_model.items():
        torch.testing.assert_close(trained[name], parameter, rtol=0, atol=1e-5)
    assert stock.vaswani("new", "wrong", "--data", tiny_data_bin, "--from", "missing.pt") == 1


def pack_checkpoint(checkpoint: Path, data: Path, out: Path) -> None:
    assert stock.vaswani("pack", checkpoint, "--data", data, "--out", out) == 0


def expect_the_same(checkpoint: Path, data: Path, model: Path, text: Path) -> None:
    """Assert that fairseq's own model and the packed one find the same hypotheses and scores."""
    rows = stock.results(stock.generate(data, str(checkpoint), *FLAGS), "H")
    expected = [rows[number] for number in range(len(rows))]
    sentences = text.read_text().splitlines()
    found = Translator.from_pretrained(model).translate(sentences, **SEARCH)
    assert [one.hypotheses[0].tokens for one in found] == [row[1].split() for row in expected]
    scores = [float(row[0]) * math.log(2) for row in expected]  # which fairseq prints in bits
    assert [one.score for one in found] == pytest.approx(scores, abs=2e-4)
    assert len({tuple(row[1].split()) for row in expected}) > 1


def test_fairseqs_transformer_finds_the_same_when_packed(
    theirs, tiny_data_bin, tiny_text, tmp_path
):
    pack_checkpoint(theirs, tiny_data_bin, tmp_path / "model")
    expect_the_same(theirs, tiny_data_bin, tmp_path / "model", tiny_text / "test.en")


def test_parameters_of_published_checkpoints_have_old_names():
    """Before fairseq 0.9: fused projections, numbered norms, and what is not learned."""
    rows = torch.arange(6)
    old = {
        "encoder.layers.0.self_attn.in_proj_weight": rows,
        "encoder.layers.0.layer_norms.1.bias": rows,
        "decoder.layers.2.layer_norms.1.weight": rows,
        "decoder.embed_out": rows,
        "decoder.version": rows,
        "encoder.embed_positions._float_tensor": rows,
    }
    found = {name: value.tolist() for name, value in to_present_names(old).items()}
    assert found == {
        "encoder.layers.0.self_attn.q_proj.weight": [0, 1],
        "encoder.layers.0.self_attn.k_proj.weight": [2, 3],
        "encoder.layers.0.self_attn.v_proj.weight": [4, 5],
        "encoder.layers.0.final_layer_norm.bias": rows.tolist(),
        "decoder.layers.2.encoder_attn_layer_norm.weight": rows.tolist(),
        "decoder.output_projection.weight": rows.tolist(),
    }


def test_a_checkpoint_with_options_in_args_is_packed(theirs, tiny_data_bin, tmp_path):
    """As before fairseq 0.11, and as published."""
    state = load_checkpoint(theirs)
    options = argparse.Namespace(**vars(state.pop("cfg")["model"]))
    options.arch = "transformer"
    options.data = ["data"]
    torch.save({**state, "args": options}, tmp_path / "old.pt")
    for checkpoint, name in ((theirs, "new"), (tmp_path / "old.pt", "old")):
        pack_checkpoint(checkpoint, tiny_data_bin, tmp_path / name)
    new, old = (ModelFolder.read(tmp_path / name) for name in ("new", "old"))
    assert new.table.architecture == old.table.architecture
    assert new.sums[WEIGHTS] == old.sums[WEIGHTS]


@pytest.mark.parametrize(
    "options, named",
    [
        ({"activation_fn": "tanh"}, "tanh"),
        ({"decoder_normalize_before": True}, "none after its last layer"),
        ({"_name": "lstm", "arch": "lstm"}, "lstm"),
        ("decoder.adaptive_softmax.head", "decoder.adaptive_softmax.head"),
    ],
)
def test_a_model_that_ours_cannot_express_is_refused(
    options, named, theirs, tiny_data_bin, tmp_path, capsys
):
    state = load_checkpoint(theirs)
    if isinstance(options, dict):
        vars(state["cfg"]["model"]).update(options)
    else:
        state["model"][options] = torch.zeros(1)
    torch.save(state, tmp_path / "changed.pt")
    arguments = ["--data", tiny_data_bin, "--out", tmp_path / "model"]
    assert stock.vaswani("pack", tmp_path / "changed.pt", *arguments) == 1
    assert named in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
