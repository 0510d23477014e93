"""Runs scored: what ``vaswani generate`` leaves, beside what ``vaswani prepare`` keeps.

The files are written here; tests/integration/test_vaswani.py has the whole way from training on.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.files import write
from vaswani import cli
from vaswani.data.tokenisation import moses_tokeniser
from vaswani.scoring import published

ROOT = Path(__file__).resolve().parents[2]
TEXT = [f"Das {n}. Haus, so heißt es, ist ein Stein-Haus." for n in range(20)]
ROWS = ["bleu_tokenised", "compound_split", "compound_split_2018", "bleu", "chrf"]
#: the last word lost in every line
WORSE = [line.rsplit(" ", 1)[0] for line in TEXT]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_run(name, hypotheses, references=TEXT, subset="test", **recipe):
    """Write the files of a run ``name`` and of its data that scoring reads."""
    values = {"source_lang": "en", "target_lang": "de", "tokenised": False, "test": "mine"}
    values.update(recipe)
    data, out = Path("data") / name, Path("runs") / name / "eval"
    tokens = moses_tokeniser("de", bool(values.get("split_hyphens")))
    if values["tokenised"]:
        tokens = str
    write(data / "text" / f"{subset}.de", *references)
    write(data / "tok" / f"{subset}.de", *map(tokens, references))
    write(data / "recipe.yaml", yaml.safe_dump(values))
    write(out / f"{subset}.hyp", *hypotheses)
    write(out / f"{subset}.hyp.tok", *map(tokens, hypotheses))
    report = {"data": str(data / "data-bin"), "checkpoint": "last.pt"}
    write(out / f"{subset}.json", json.dumps(report))
    write(out.parent / "config.yaml", "checkpoint: {}")


def score(name, *options, subset="test"):
    """Score a run, and return the report."""
    assert cli.main(["score", name, *options]) == 0
    path = Path("runs") / name / "eval" / f"{subset}.score.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_run_has_the_scores_of_its_files():
    make_run("mine", [*WORSE[:19], ""])
    report = score("mine")
    assert report["translation"]["checkpoint"] == "last.pt" and report["without_output"] == [20]
    files = ["--hypotheses", "runs/mine/eval/test.hyp", "--references", "data/mine/text/test.de"]
    assert cli.main(["score", *files, "--pair", "en-de", "--json", "again.json"]) == 0
    again = json.loads(Path("again.json").read_text(encoding="utf-8"))
    assert all(again[key] == report[key] for key in ROWS)


def test_a_low_score_of_a_perfect_system_is_repeated(capsys):
    """'vaswani prepare' measured it; where it was high, nothing is said."""
    for name, restored_bleu in (("low", 74.93), ("high", 99.98), ("older", None)):
        make_run(name, WORSE, restored_bleu=restored_bleu)
        score(name)
        message = capsys.readouterr().err
        assert ("a perfect system would get BLEU 74.93" in message) == (name == "low")


def test_tokens_score_as_fairseq_score_has_them(capsys, monkeypatch):
    """The formula of fairseq's own scorer, in C, over the same tokens."""
    from fairseq_cli import score as fairseq_score

    make_run("mine", WORSE)
    row = score("mine")["bleu_tokenised"]
    files = ["--sys", "runs/mine/eval/test.hyp.tok", "--ref", "data/mine/tok/test.de"]
    monkeypatch.setattr(sys, "argv", ["fairseq-score", *files])
    capsys.readouterr()
    fairseq_score.cli_main()
    printed = capsys.readouterr().out
    assert f"BLEU4 = {row['score']:.2f}, {row['text'].split()[3]} (BP=" in printed


def test_hyphens_split_by_the_recipe_are_not_split_again():
    """The tokens have ``@-@``; compound-split BLEU is of the text."""
    make_run("split", TEXT, split_hyphens=True)
    assert "@-@" in Path("data/split/tok/test.de").read_text(encoding="utf-8")
    tokens = sum(len(moses_tokeniser("de")(line).split()) + 2 for line in TEXT)  # Stein # Haus
    assert score("split")["compound_split"]["text"].endswith(f"ref_len = {tokens})")


def test_published_figures_stand_beside_wmts_test_sets(monkeypatch):
    """As if WMT's set had 20 sentences; its true size is in tests/unit/test_score.py."""
    monkeypatch.setitem(published.SENTENCES, "wmt13", 20)
    make_run("wmt", TEXT, TEXT, "valid", archives="wmt14", valid="newstest2013")
    report = score("wmt", "--subset", "valid", subset="valid")
    assert "Table 3" in report["published"][0]["source"]


@pytest.mark.parametrize("tokenised", [False, True])
def test_a_run_is_compared_with_a_run_or_a_file(tokenised):
    """The same comparison with either."""
    make_run("a", TEXT, tokenised=tokenised)
    make_run("b", WORSE, tokenised=tokenised)
    by_run = score("a", "--compare", "b")["comparison"]
    made = f"runs/b/eval/test.hyp{'.tok' if tokenised else ''}"
    by_file = score("a", "--compare", made)["comparison"]
    assert (by_run["with"], by_file["with"]) == ("b", made)
    assert by_file["metrics"] == by_run["metrics"]
    assert all(row["p"] < 0.05 for row in by_run["metrics"].values())


MADE = "runs/r/checkpoints/checkpoint_average_last"
