"""Parsing (section 6.3): a treebank prepared, and the parses of a run scored.

The trees are those of ``tests/evalb``. Hypotheses are written here, for want of a trained parser.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from tests.files import write
from vaswani import cli
from vaswani.data.bpe import undo
from vaswani.data.read_recipe import find_recipe
from vaswani.data.trees import linearise, parse_tree, read_trees
from vaswani.scoring.evalb import compare_all, summary

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "evalb"
GOLD, PARSED = (read_trees(FOLDER / name) for name in ("gold.ptb", "parsed.ptb"))
#: those without a sentence that EVALB leaves out
SAME = [
    n for n, pair in enumerate(zip(GOLD, PARSED, strict=True)) if pair[0].words == pair[1].words
]
DATA = Path("data/trees")


@pytest.fixture
def treebank(tmp_path, monkeypatch) -> Path:
    """Enter a folder with a training and a test set."""
    monkeypatch.chdir(tmp_path)
    gold = lines(FOLDER / "gold.ptb")
    write(tmp_path / "gold.ptb", *gold)
    write(tmp_path / "test.ptb", *(gold[n] for n in SAME))
    return tmp_path


def prepare(*more) -> int:
    """Prepare the treebank in ``data/trees``."""
    sets = ["--train", "gold.ptb", "--valid", "gold.ptb", "--test", "test.ptb"]
    return cli.main(["prepare", "trees", *sets, "--workers", "1", "--bpe", "200", *more])


def lines(path) -> list:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.paper("6.3")
def test_a_treebank_is_prepared(treebank):
    """Words in subwords, brackets whole, and a dictionary for each."""
    assert prepare() == 0
    words, subwords = lines(DATA / "text" / "train.words"), lines(DATA / "bpe" / "train.words")
    assert words == [" ".join(tree.words) for tree in GOLD] == [*map(undo, subwords)]
    assert any("@@ " in line for line in subwords)
    brackets = [" ".join(linearise(tree)) for tree in GOLD]
    assert lines(DATA / "bpe" / "train.trees") == brackets
    assert read_trees(DATA / "text" / "test.ptb") == [GOLD[n] for n in SAME]
    types = {
        side: {line.split(" ")[0] for line in lines(DATA / "data-bin" / f"dict.{side}.txt")}
        for side in ("words", "trees")
    }
    assert set(" ".join(brackets).split()) <= types["trees"]
    assert not any(one.startswith(("(", ")")) for one in types["words"])

    # an experiment for it searches as in 6.3
    assert cli.main(["new", "parser", "--data", "data/trees"]) == 0
    experiment = yaml.safe_load((treebank / "parser.yaml").read_text(encoding="utf-8"))
    assert experiment["generation"] == {"beam": 21, "lenpen": 0.3, "max_len_a": 1, "max_len_b": 300}
    assert experiment["model"]["untie_embeddings"] is True


def test_tags_are_kept_if_asked(treebank, light):
    assert prepare("--keep-tags") == 0
    tagged = [" ".join(linearise(tree, tags=True)) for tree in GOLD]
    assert lines(DATA / "bpe" / "train.trees") == tagged


def score(hypotheses) -> dict:
    """Score a run with these parses of the test set, and return the report."""
    out = Path("runs/parser/eval")
    for name in ("test.hyp", "test.hyp.tok"):
        write(out / name, *hypotheses)
    write(out / "test.json", json.dumps({"data": str(DATA / "data-bin"), "checkpoint": "last.pt"}))
    write(out.parent / "config.yaml", "checkpoint: {}")
    assert cli.main(["score", "parser"]) == 0
    return json.loads((out / "test.score.json").read_text(encoding="utf-8"))


@pytest.mark.paper("6.3")
def test_the_parses_of_a_run_are_repaired_and_scored(treebank, light):
    """Parses as a model writes them, two of which are no trees; then those of one with tags."""
    assert prepare() == 0
    gold = [GOLD[n] for n in SAME]
    parsed = [PARSED[n]._replace(tags=GOLD[n].tags) for n in SAME]  # XX stands for them
    expected = asdict(summary(compare_all(gold, parsed)))
    assert 80 < expected["f1"] < 99
    hypotheses = [" ".join(linearise(tree)) for tree in parsed]
    # neither what is left out at the end nor what is too much changes these trees
    ends = [n for n, line in enumerate(hypotheses) if line.endswith(")NP")][:2]
    hypotheses[ends[0]] = hypotheses[ends[0]].removesuffix(" )NP")
    hypotheses[ends[1]] += " )VP XX"
    report = score(hypotheses)
    assert {key: report[key] for key in expected} == expected
    assert report["repaired"] == [n + 1 for n in ends]
    assert [parse_tree(line).constituents for line in report["parses"]] == [
        tree.constituents for tree in parsed
    ]
    wrong = [["," if tag == "NN" else "NN" for tag in tree.tags] for tree in parsed]
    tagged = [tree._replace(tags=tags) for tree, tags in zip(parsed, wrong, strict=True)]
    report = score([" ".join(linearise(tree, tags=True)) for tree in tagged])
    assert {key: report[key] for key in expected} == expected


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
