"""``vaswani pack``: of a run, of a checkpoint; of fairseq's own transformer, old ones included."""

import argparse
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from vaswani import Translator, cli
from vaswani.common.errors import UserError
from vaswani.model_folder import data_text
from vaswani.model_folder.folder import WEIGHTS, read_folder

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
    """A run with a last checkpoint and its data, in the current folder."""
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


def test_a_run_is_packed_once(run, capsys):
    assert cli.main(["pack", "digits"]) == 0
    found = config(run / "model")
    assert found["origin"]["checkpoint"] == "checkpoint_last.pt"
    assert found["origin"]["updates"] == 20
    assert found["generation"] == {"beam": 3, "lenpen": 0.6, "length_penalty": "gnmt"}
    assert found["text"]["bpe"] is None and found["text"]["source_lang"] == "en"
    assert (run / "model" / "README.md").read_text().count("Not scored") == 1
    before = (run / "model" / "config.json").stat()
    assert cli.main(["pack", "digits"]) == 0
    assert "already packed" in capsys.readouterr().err
    (run / "model" / "README.md").write_text("# Mine\n")  # which may be edited
    assert cli.main(["pack", "digits"]) == 0
    assert (run / "model" / "config.json").stat() == before
    assert cli.main(["pack", "digits", "--lowercase"]) == 1  # another model, and the card is mine
    assert "README.md was changed" in capsys.readouterr().err


def test_other_codes_or_a_missing_file_are_packed_again(run):
    codes, packed = Path("codes"), run / "model" / "bpecodes"
    for merge in ("1 2", "3 4"):
        codes.write_text(f"#version: 0.2\n{merge}\n")
        assert cli.main(["pack", "digits", "--bpe-codes", "codes"]) == 0
        assert packed.read_text() == codes.read_text()
    packed.unlink()
    assert cli.main(["pack", "digits", "--bpe-codes", "codes"]) == 0 and packed.is_file()


def test_half_the_bytes(run, tmp_path):
    """The run's parameters, rounded to float16 and read as float32; the folder says so."""
    assert cli.main(["pack", "digits", "--out", "whole"]) == 0
    assert cli.main(["pack", "digits"]) == 0
    assert cli.main(["pack", "digits", "--half"]) == 0  # which replaces the other
    whole, half = (read_folder(folder) for folder in (tmp_path / "whole", run / "model"))
    assert {value.dtype for value in load_file(half.path / WEIGHTS).values()} == {torch.float16}
    assert (half.config["origin"]["stored_as"], whole.config["origin"].get("stored_as")) == (
        "float16",
        None,
    )
    read = half.parameters()
    for name, value in whole.parameters().items():
        torch.testing.assert_close(read[name], value.half().float(), rtol=0, atol=0)
    assert Translator.from_pretrained(half.path).translate(["1 2 3"])[0].text


def test_half_is_refused_where_a_number_is_too_large_for_it(run, capsys):
    last = run / "checkpoints" / "checkpoint_last.pt"
    state = load_checkpoint(last)
    state["model"]["decoder.layers.0.feed_forward.fc2.bias"][3] = 65_520.0
    torch.save(state, last)
    assert cli.main(["pack", "digits", "--half"]) == 1
    problem = capsys.readouterr().err.splitlines()[-1]
    assert "decoder.layers.0.feed_forward.fc2.bias has a number beyond 65,504" in problem
    assert problem.endswith("pack it without --half") and not (run / "model").exists()
    assert cli.main(["pack", "digits"]) == 0


def test_what_has_the_lowest_validation_loss(run, trained, capsys):
    """Of the best checkpoint and an average without stored losses; export refuses the other."""
    folder = run / "checkpoints"
    shutil.copy(folder / "checkpoint_last.pt", folder / "checkpoint_best.pt")
    assert cli.main(["pack", "digits"]) == 0
    assert config(run / "model")["origin"]["checkpoint"] == "checkpoint_best.pt"
    state = load_checkpoint(folder / "checkpoint_last.pt")
    model = load_checkpoint(trained)["model"]
    state["model"] = {name: 9 * value for name, value in state["model"].items()}
    torch.save({**state, "averaged_updates": [10, 20]}, folder / "checkpoint_average_last2.pt")
    assert cli.main(["pack", "digits"]) == 0
    found = config(run / "model")["origin"]
    assert found["checkpoint"] == "checkpoint_best.pt", "which is the better one"
    state["model"] = model
    torch.save({**state, "averaged_updates": [10, 20]}, folder / "checkpoint_average_last2.pt")
    capsys.readouterr()
    assert cli.main(["export", "digits", "--to", "fairseq"]) == 1
    problem = capsys.readouterr().err.splitlines()[-1]
    assert "was packed from checkpoint_best.pt" in problem
    assert "run 'vaswani pack runs/digits' first" in problem
    assert cli.main(["pack", "digits"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert "checkpoint_average_last2.pt: the lowest validation loss, " in line
    assert "; next checkpoint_best.pt with " in line
    found = config(run / "model")["origin"]
    assert (found["checkpoint"], found["averaged"]) == ("checkpoint_average_last2.pt", 2)


def test_scores_are_those_of_the_packed_checkpoint(run):
    (run / "eval").mkdir()
    row = {"label": "sacreBLEU", "score": 27.25, "signature": "nrefs:1|tok:13a", "text": "…"}
    for subset, checkpoint in {"test": "checkpoint_last.pt", "valid": "checkpoint_best.pt"}.items():
        report = {"checkpoint": f"runs/digits/checkpoints/{checkpoint}", "precision": "bf16"}
        (run / "eval" / f"{subset}.json").write_text(json.dumps(report))
        (run / "eval" / f"{subset}.score.json").write_text(json.dumps({"bleu": row}))
    assert cli.main(["pack", "digits"]) == 0
    row.pop("text")
    assert config(run / "model")["scores"] == {"test": {"bleu": {**row, "precision": "bf16"}}}
    # one row of five cells: a bar in the signature would begin another
    card = (run / "model" / "README.md").read_text()
    assert r"| test | sacreBLEU | 27.25 | bf16 | `nrefs:1\|tok:13a` |" in card.splitlines()


def test_another_dictionary_of_the_same_size_is_refused(run, tiny_data_bin, tmp_path, capsys):
    data = shutil.copytree(tiny_data_bin, tmp_path / "other")
    for lang in ("en", "de"):
        words = (data / f"dict.{lang}.txt").read_text().splitlines(keepends=True)
        (data / f"dict.{lang}.txt").write_text("".join(reversed(words)))
    assert cli.main(["pack", "digits", "--data", str(data)]) == 1
    assert "trained with another source dictionary" in capsys.readouterr().err
    assert not (run / "model").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["{last}"], "is not in a run: say with --out MODEL"),
        (["{last}", "--out", "m"], "does not say where its data is: give --data DIR"),
        (["{last}", "--data", "gone", "--out", "m"], "there is no folder gone"),
        (["{last}", "--data", "empty", "--out", "m"], "give --source-lang and --target-lang"),
        (
            [
                *("{last}", "--data", "empty", "--out", "m"),
                *("--source-lang", "en"),
                "--target-lang=de",
            ],
            "dict.en.txt: No such file",
        ),
        (["digits", "--bpe-codes", "gone"], "gone: No such file"),
        (["digits", "--out", "runs"], "runs is not as 'vaswani pack' leaves a folder"),
        (["nothing"], "there is no run 'nothing'"),
    ],
)
def test_what_cannot_be_packed(arguments, message, run, capsys):
    last = run.parent.parent / "last.pt"
    state = load_checkpoint(run / "checkpoints" / "checkpoint_last.pt")
    state["cfg"]["task"]["data"] = None
    torch.save(state, last)
    Path("empty").mkdir()
    assert cli.main(["pack", *(argument.format(last=last) for argument in arguments)]) == 1
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (run / "model").exists() and not Path("m").exists()


def test_a_training_begins_with_a_packed_model(run, tiny_data_bin, tmp_path, capsys):
    assert cli.main(["pack", "digits", "--out", "away/model"]) == 0
    shutil.rmtree(run)  # it is needed no more
    assert cli.main(["new", "tuned", "--data", str(tiny_data_bin), "--from", "away/model"]) == 0
    start = yaml.safe_load(Path("tuned.yaml").read_text())["checkpoint"]["finetune_from_model"]
    with stock.fresh_process():
        once = ["optimization.max_update=1", "lr_scheduler.lr_factor=1e-9"]
        assert cli.main(["train", "tuned", *once]) == 0
    last = Path("runs/tuned/checkpoints/checkpoint_last.pt")
    difference, parameter = stock.largest_difference(last, Path(start))
    assert difference < 1e-7, parameter
    assert stock.parameters(Path(start)).keys() == stock.parameters(last).keys()
    Path(start).unlink()
    shutil.copy(last, start)
    assert cli.main(["new", "again", "--data", str(tiny_data_bin), "--from", "away/model"]) == 1
    assert "away/model.pt exists and is not away/model as a checkpoint" in capsys.readouterr().err


# ---- how its text was prepared ------------------------------------------------------------------

RECIPES = {
    "none": ({}, "Das Haus .", {"tokeniser": "moses", "lowercase": False, "bpe": None}),
    "small letters": ({}, "das haus .", {"lowercase": True}),
    "no letters": ({}, "1 2 .", {"lowercase": False}),
    "hyphens": ({}, "alt @-@ Bau", {"split_hyphens": True}),
    "codes": ({"codes": ""}, "Ha@@ us", {"bpe": "subword_nmt"}),
    "tokens": ({"recipe.yaml": "tokenised: true"}, "Haus", {"tokeniser": "none"}),
    "normalised training": ({"recipe.yaml": "normalise: train"}, "Haus", {"normalise": "train"}),
    "normalised": (
        {"recipe.yaml": "normalise: all\nsplit_hyphens: true\nstraight_test_apostrophes: true"},
        "Haus",
        {"normalise": "all", "split_hyphens": True, "straight_apostrophes": True},
    ),
}


@pytest.mark.parametrize("files, words, expected", RECIPES.values(), ids=RECIPES)
def test_how_text_was_prepared(files, words, expected, tmp_path):
    data = tmp_path / "data-bin" if "recipe.yaml" in files else tmp_path
    data.mkdir(exist_ok=True)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    dictionaries = data / "dict.en.txt", data / "dict.de.txt"
    for path in dictionaries:
        path.write_text("".join(f"{word} 1\n" for word in words.split()))
    recipe, codes = data_text.text_recipe(data_text.DataOptions(), data, ("en", "de"), dictionaries)
    assert {name: getattr(recipe, name) for name in expected} == expected
    assert bool(codes) == bool(recipe.bpe)


def test_split_words_need_codes(tmp_path):
    path = tmp_path / "dict.en.txt"
    path.write_text("Ha@@ 1\nus 1\n")
    with pytest.raises(UserError, match="has parts of words .'Ha@@'., but .* has no BPE codes"):
        data_text.text_recipe(data_text.DataOptions(), tmp_path, ("en", "de"), (path, path))


# ---- fairseq's own transformer ------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=["tied", "untied", pytest.param("decoder tied", marks=pytest.mark.slow)],
)
def theirs(request, tiny_data_bin, tmp_path_factory) -> Path:
    """A checkpoint of fairseq's transformer after 20 updates."""
    folder = tmp_path_factory.mktemp("theirs")
    model = [*THEIRS, *SHARING[request.param]]
    recipe = ["--optimizer", "adam", "--lr", "0.005", "--criterion", "cross_entropy"]
    extra = ["--max-update", "20", "--no-epoch-checkpoints"]
    stock.train(tiny_data_bin, folder, *extra, model=model, recipe=recipe)
    return folder / "checkpoint_last.pt"


def pack(checkpoint: Path, data: Path, out: Path) -> None:
    assert cli.main(["pack", str(checkpoint), "--data", str(data), "--out", str(out)]) == 0


def expect_the_same(checkpoint: Path, data: Path, model: Path, text: Path) -> None:
    """fairseq's own model and the packed one find the same hypotheses, with the same scores."""
    rows = stock.results(stock.generate(data, str(checkpoint), *FLAGS), "H")
    expected = [rows[number] for number in range(len(rows))]
    sentences = text.read_text().splitlines()
    found = Translator.from_pretrained(model).translate(sentences, **SEARCH)
    assert [one.hypotheses[0].tokens for one in found] == [row[1].split() for row in expected]
    scores = [float(row[0]) * math.log(2) for row in expected]  # which fairseq prints in bits
    assert [one.score for one in found] == pytest.approx(scores, abs=2e-4)
    assert len({tuple(row[1].split()) for row in expected}) > 1


def test_fairseqs_transformer(theirs, tiny_data_bin, tiny_text, tmp_path):
    pack(theirs, tiny_data_bin, tmp_path / "model")
    expect_the_same(theirs, tiny_data_bin, tmp_path / "model", tiny_text / "test.en")
    state = load_checkpoint(theirs)["model"]
    source, target, output = (
        state[name]
        for name in (
            *("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
            "decoder.output_projection.weight",
        )
    )
    architecture = config(tmp_path / "model")["architecture"]
    decoders = torch.equal(target, output)
    assert architecture["untie_embeddings"] is not decoders
    alone = decoders and not torch.equal(source, target)
    assert architecture["share_decoder_input_output_embed"] is alone


def test_another_precision_is_for_our_models(theirs, tiny_data_bin, tmp_path, capsys):
    """fairseq's would compute in fp32, and the report would say otherwise."""
    arguments = ["--data", tiny_data_bin, "--out", tmp_path / "out", "--precision", "bf16"]
    assert cli.main([*map(str, ["generate", theirs, *arguments])]) == 1
    assert "--precision bf16 is for this plugin's models" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def as_published(path: Path, to: Path) -> None:
    """What WMT's published models have: ``args``, fused projections, old names, halves, no zip."""
    state = load_checkpoint(path)
    options = vars(state["cfg"]["model"])
    model = {}
    for name, value in state["model"].items():
        part, _, letter = name.rpartition("_attn.")
        if letter.startswith(("k_proj", "v_proj")):
            continue
        if letter.startswith("q_proj"):
            kind = letter.split(".")[1]
            parts = [state["model"][f"{part}_attn.{x}_proj.{kind}"] for x in "qkv"]
            name, value = f"{part}_attn.in_proj_{kind}", torch.cat(parts)
        layer, _, norm = name.partition("_layer_norm.")
        if norm:
            order = ["self_attn", "encoder_attn", "final"]
            if name.startswith("encoder"):
                order.remove("encoder_attn")
            stem, _, which = layer.rpartition(".")
            name = f"{stem}.layer_norms.{order.index(which)}.{norm}"
        if name == "decoder.output_projection.weight":
            if options["share_decoder_input_output_embed"] or options["share_all_embeddings"]:
                continue
            name = "decoder.embed_out"
        model[name] = value.half()
    model["decoder.version"] = torch.tensor([2.0])
    for name in ("activation_fn", "layernorm_embedding", "no_cross_attention"):
        options.pop(name, None)
    options.update(arch="transformer", data=["data"], source_lang="en", target_lang="de")
    old = {"args": argparse.Namespace(**options), "model": model, "best_loss": 1.0}
    history = {"optimizer_history": [{"num_updates": 20}], "extra_state": {}}
    torch.save({**old, **history}, to, _use_new_zipfile_serialization=False)


def test_published_checkpoints_have_old_forms(theirs, tiny_data_bin, tiny_text, tmp_path):
    old, halves = tmp_path / "old.pt", tmp_path / "halves.pt"
    as_published(theirs, old)
    state = load_checkpoint(theirs)
    state["model"] = {name: value.half() for name, value in state["model"].items()}
    torch.save(state, halves)
    pack(old, tiny_data_bin, tmp_path / "model")
    expect_the_same(halves, tiny_data_bin, tmp_path / "model", tiny_text / "test.en")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"encoder_normalize_before": True}, "has norms before the sub-layers"),
        ({"activation_fn": "gelu"}, r"another activation function \(activation_fn gelu\)"),
        ({"decoder_learned_pos": True}, "has learned positions"),
        ({"_name": "lstm", "arch": "lstm"}, "has the architecture lstm"),
        ("decoder.adaptive_softmax.head", "decoder.adaptive_softmax.head, which has no place"),
    ],
)
def test_what_our_model_cannot_express(options, message, theirs, tiny_data_bin, tmp_path, capsys):
    state = load_checkpoint(theirs)
    if isinstance(options, dict):
        vars(state["cfg"]["model"]).update(options)
    else:
        state["model"][options] = torch.zeros(1)
    torch.save(state, tmp_path / "changed.pt")
    arguments = ["--data", str(tiny_data_bin), "--out", str(tmp_path / "model")]
    assert cli.main(["pack", str(tmp_path / "changed.pt"), *arguments]) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "model").exists()
