"""Parsing (section 6.3): a treebank prepared, and the parses of a run scored.

The trees are those of ``tests/evalb``. Hypotheses are written here, for want of a trained parser.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from tests.files import write
from tests.preloaded import python
from vaswani import cli
from vaswani.data.bpe import undo
from vaswani.data.recipe import find_recipe
from vaswani.data.trees import linearise, parse_tree, read_trees
from vaswani.scoring.evalb import compare_all, summary

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "evalb"
GOLD, PARSED = (read_trees(FOLDER / name) for name in ("gold.ptb", "parsed.ptb"))
#: those without a sentence that EVALB leaves out
SAME = [
    n for n, pair in enumerate(zip(GOLD, PARSED, strict=True)) if pair[0].words == pair[1].words
]
OPTIONS = ["--train", "gold.ptb", "--valid", "gold.ptb", "--test", "test.ptb", "--workers", "1"]


@pytest.fixture
def treebank(tmp_path, monkeypatch) -> Path:
    """A folder with a training and a test set."""
    monkeypatch.chdir(tmp_path)
    lines = (FOLDER / "gold.ptb").read_text(encoding="utf-8").splitlines()
    write(tmp_path / "gold.ptb", *lines)
    write(tmp_path / "test.ptb", *(lines[n] for n in SAME))
    return tmp_path


def prepare(*more) -> int:
    """Prepare the treebank in ``data/trees``."""
    return cli.main(["prepare", "trees", *OPTIONS, "--bpe", "200", *more])


def lines(path) -> list:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.paper("6.3")
def test_a_treebank_is_prepared(treebank, monkeypatch, capsys):
    """Words in subwords, brackets whole, and a dictionary for each."""
    monkeypatch.setattr(sys, "executable", python())
    assert prepare() == 0
    data = treebank / "data" / "trees"
    words, subwords = lines(data / "text" / "train.words"), lines(data / "bpe" / "train.words")
    assert words == [" ".join(tree.words) for tree in GOLD] == [*map(undo, subwords)]
    assert any("@@ " in line for line in subwords)
    brackets = [" ".join(linearise(tree)) for tree in GOLD]
    assert lines(data / "bpe" / "train.trees") == brackets
    assert read_trees(data / "text" / "test.ptb") == [GOLD[n] for n in SAME]
    types = {
        side: {line.split(" ")[0] for line in lines(data / "data-bin" / f"dict.{side}.txt")}
        for side in ("words", "trees")
    }
    assert {*" ".join(brackets).split()} == {
        one for one in types["trees"] if not one.startswith("madeupword")
    }
    assert not any(one.startswith(("(", ")")) for one in types["words"])

    # an experiment for it searches as in 6.3, and no command translates text
    assert cli.main(["new", "parser", "--data", "data/trees"]) == 0
    experiment = yaml.safe_load((treebank / "parser.yaml").read_text(encoding="utf-8"))
    assert experiment["generation"] == {"beam": 21, "lenpen": 0.3, "max_len_a": 1, "max_len_b": 300}
    assert experiment["model"]["untie_embeddings"] is True
    assert capsys.readouterr().err.rstrip().endswith("vaswani score parser")


def test_tags_are_kept_if_asked(treebank, light):
    assert prepare("--keep-tags") == 0
    data = treebank / "data" / "trees"
    tagged = [" ".join(linearise(tree, tags=True)) for tree in GOLD]
    assert lines(data / "bpe" / "train.trees") == tagged
    assert prepare() == 0
    assert lines(data / "bpe" / "train.trees") != tagged


@pytest.mark.parametrize(
    "options, problem",
    [
        (["trees"], "give --train FILE and --valid FILE: trees in Penn brackets"),
        (["trees", "--train", "bad.ptb", "--valid", "gold.ptb"], "bad.ptb, line 2: 2 of its br"),
        (["trees", "--train", "nowhere", "--valid", "gold.ptb"], "there is no file nowhere"),
        (["demo_en_de", "--keep-tags"], "--keep-tags is for trees"),
    ],
)
def test_what_cannot_be_prepared_is_one_sentence(treebank, capsys, options, problem):
    write(treebank / "bad.ptb", lines(treebank / "gold.ptb")[0], "(TOP (S (NN a)")
    assert cli.main(["prepare", *options, "--out", "out"]) == 1
    message = capsys.readouterr().err
    assert problem in message and message.count("\n") == 1
    assert not (treebank / "out" / "text").exists()


def make_run(folder, hypotheses, **recipe) -> None:
    """A run ``parser``, as far as scoring looks at it, on what is prepared in ``data/trees``."""
    data, out = folder / "data" / "trees", folder / "runs" / "parser" / "eval"
    if recipe:
        table = yaml.safe_load((data / "recipe.yaml").read_text(encoding="utf-8"))
        write(data / "recipe.yaml", yaml.safe_dump({**table, **recipe}))
    for name in ("test.hyp", "test.hyp.tok"):
        write(out / name, *hypotheses)
    report = {"data": str(data / "data-bin"), "checkpoint": "last.pt"}
    write(out / "test.json", json.dumps(report))
    write(out.parent / "config.yaml", "checkpoint: {}")


@pytest.mark.paper("6.3")
def test_the_parses_of_a_run_are_repaired_and_scored(treebank, light, capsys):
    """Parses as a model writes them, two of which are no trees."""
    assert prepare() == 0
    gold = [GOLD[n] for n in SAME]
    parsed = [PARSED[n]._replace(tags=GOLD[n].tags) for n in SAME]  # XX stands for them
    hypotheses = [" ".join(linearise(tree)) for tree in parsed]
    # neither what is left out at the end nor what is too much changes these trees
    ends = [n for n, line in enumerate(hypotheses) if line.endswith(")NP")][:2]
    hypotheses[ends[0]] = hypotheses[ends[0]].removesuffix(" )NP")
    hypotheses[ends[1]] += " )VP XX"
    make_run(treebank, hypotheses)
    capsys.readouterr()
    for options in ([], ["--trees"]):
        assert cli.main(["score", "parser", *options]) == 0
        out = capsys.readouterr().out
        with open(treebank / "runs" / "parser" / "eval" / "test.score.json") as stream:
            report = json.load(stream)
        expected = summary(compare_all(gold, parsed))
        assert 80 < expected["f1"] < 99
        assert {key: report[key] for key in expected} == expected
        assert report["repaired"] == [n + 1 for n in ends]
        assert f"F1{expected['f1']:28.2f}" in out and "repaired to trees: 2\n" in out
        assert [parse_tree(line).constituents for line in report["parses"]] == [
            tree.constituents for tree in parsed
        ]
    wrong = [["," if tag == "NN" else "NN" for tag in tree.tags] for tree in parsed]
    tagged = [tree._replace(tags=tags) for tree, tags in zip(parsed, wrong, strict=True)]
    make_run(treebank, [" ".join(linearise(tree, tags=True)) for tree in tagged])
    assert cli.main(["score", "parser"]) == 0, "of a parser that learned tags, and mistakes them"
    report = json.loads((treebank / "runs/parser/eval/test.score.json").read_text(encoding="utf-8"))
    assert {key: report[key] for key in expected} == expected


def test_runs_that_cannot_be_scored_so_are_one_sentence(treebank, light, capsys):
    assert prepare() == 0
    make_run(treebank, ["XX"] * len(SAME))
    capsys.readouterr()
    make_run(treebank, ["XX"] * len(SAME), trees=None)
    assert cli.main(["score", "parser", "--trees"]) == 1
    assert "this run writes text, not the trees of" in capsys.readouterr().err


@pytest.mark.paper("6.3")
def test_the_configuration_is_the_base_models_but_for_what_the_paper_says():
    """All but what it states or chose on section 22 "remained unchanged"."""
    base, parsing = (
        OmegaConf.to_container(OmegaConf.load(ROOT / "configs" / f"{name}.yaml"))
        for name in ("wmt14_en_de_base", "parsing_wsj")
    )
    for part in ("common", "criterion", "optimizer", "checkpoint"):
        base[part].pop("save_dir", None), parsing[part].pop("save_dir", None)
        assert base[part] == parsing[part]
    changed = {key: value for key, value in parsing["model"].items() if key not in base["model"]}
    assert {**changed, **base["model"]} == parsing["model"]
    sizes = {f"{side}_{key}" for side in ("encoder", "decoder") for key in ("layers", "embed_dim")}
    assert {*changed} == {*sizes, "dropout", "attention_dropout", "untie_embeddings"}
    assert [changed[key] for key in sorted(sizes)] == [1024, 4, 1024, 4]
    assert parsing["generation"] == {"beam": 21, "lenpen": 0.3, "max_len_a": 1, "max_len_b": 300}
    assert parsing["task"]["length_penalty"] == "gnmt"
    recipe, folder = find_recipe("parsing_wsj")
    assert (recipe.trees, recipe.bpe, recipe.bpe_counts) == (True, 16000, "types")
    assert parsing["task"]["data"] == str(folder / "data-bin")
    assert recipe.langs == (parsing["task"]["source_lang"], parsing["task"]["target_lang"])
