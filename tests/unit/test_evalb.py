"""Scores of parses: every figure that EVALB prints for 80 pairs of trees (``tests/evalb``)."""

import json
from pathlib import Path

import pytest

from tests.files import write
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data.trees import parse_tree, read_trees
from vaswani.scoring.evalb import VALID, compare, compare_all, percent, summary

FOLDER = Path(__file__).resolve().parents[1] / "evalb"
GOLD, PARSED = (read_trees(FOLDER / name) for name in ("gold.ptb", "parsed.ptb"))
TABLE, SUMMARY = (FOLDER / "evalb.txt").read_text(encoding="utf-8").split("=== Summary ===")
#: those of one sentence: twelve columns, of which the first is its number
LINES = [line.split() for line in TABLE.splitlines()[3:-2]]
CUT_OFF = 40


def line(number, found):
    """A comparison as EVALB prints it."""
    shares = [(found.matched, found.gold), (found.matched, found.test), (found.tags, found.words)]
    recall, precision, accuracy = (f"{percent(*share):.2f}" for share in shares)
    counts = (found.matched, found.gold, found.test, found.crossing, found.words, found.tags)
    columns = (number, found.length, found.status, recall, precision, *counts, accuracy)
    return [*map(str, columns)]


@pytest.mark.paper("6.3")
@pytest.mark.parametrize("number", range(1, len(LINES) + 1))
def test_a_sentence_has_evalbs_figures(number):
    pair = GOLD[number - 1], PARSED[number - 1]
    assert line(number, compare(*pair)) == LINES[number - 1]


@pytest.mark.paper("6.3")
@pytest.mark.parametrize("part", ["All", f"len<={CUT_OFF}"])
def test_the_sums_are_evalbs(part):
    lines = SUMMARY.split(f"-- {part} --")[1].split("\n\n")[0].splitlines()
    theirs = {name.strip(): value.strip() for name, value in (one.split(" =") for one in lines[1:])}
    found = compare_all(GOLD, PARSED)
    if part != "All":
        found = [one for one in found if one.length <= CUT_OFF]
    ours = summary(found)
    named = {
        "recall": "Bracketing Recall",
        "precision": "Bracketing Precision",
        "f1": "Bracketing FMeasure",
        "complete_match": "Complete match",
    }
    assert {name: f"{ours[key]:.2f}" for key, name in named.items()} == {
        name: theirs[name] for name in named.values()
    }
    assert str(ours["sentences"]) == theirs["Number of Valid sentence"]
    assert str(len(ours["errors"])) == theirs["Number of Error sentence"]
    assert sum(one.status == VALID for one in found) == ours["sentences"]


def test_a_tree_beside_itself_is_right():
    gold = [tree for tree in GOLD if compare(tree, tree).status == VALID]
    assert len(gold) > 70
    ours = summary(compare_all(gold, gold))
    assert {ours[key] for key in ("recall", "precision", "f1", "complete_match")} == {100.0}


def test_a_word_without_its_tag_has_the_treebanks():
    """What a model writes without tags; punctuation would otherwise be words."""
    gold = parse_tree("(TOP (S (NP (NNP John)) (, ,) (VP (VBZ sleeps)) (. .)))")
    parsed = gold._replace(tags=["XX"] * 4)
    assert compare(gold, parsed) == compare(gold, gold)
    assert compare(gold, parsed._replace(words=["Jim", *gold.words[1:]])).status != VALID


def test_trees_of_other_sentences_are_refused():
    """As by EVALB, which stops at the eleventh."""
    with pytest.raises(UserError, match=r"80 trees to score and 79 .* on the line of its ref"):
        compare_all(GOLD[:-1], PARSED)
    one, other = parse_tree("(S (NN a))"), parse_tree("(S (NN b))")
    found = compare_all([one] * 12, [one, *[other] * 10, one])
    assert summary(found)["errors"] == [*range(2, 12)] and summary(found)["recall"] == 100.0
    with pytest.raises(UserError, match="11 of 12 trees have other words .* the first on line 2:"):
        compare_all([one] * 12, [one, *[other] * 11])


def test_the_command_for_files(tmp_path, capsys):
    parsed = tmp_path / "parsed.ptb"
    parsed.write_bytes((FOLDER / "parsed.ptb").read_bytes())
    files = ["score", "--trees", "--hypotheses", str(parsed)]
    assert cli.main([*files, "--references", str(FOLDER / "gold.ptb")]) == 0
    out = capsys.readouterr().out
    for name, value in {"recall": 91.05, "precision": 92.79, "F1": 91.91, "match": 30.14}.items():
        assert any(one.split()[-2:] == [name, str(value)] for one in out.splitlines())
    assert "73 sentences" in out and "left out, with other words than their references: line" in out
    report = json.loads((tmp_path / "parsed.ptb.score.json").read_text(encoding="utf-8"))
    assert report["errors"] == [3, 17, 65, 68, 77] and report["sentences"] == 73


@pytest.mark.parametrize(
    "options, problem",
    [
        ([], "--trees: give a run, or --hypotheses with --references"),
        (["--references", "short.ptb"], "80 trees to score and 1 to compare them with"),
        (["--references", "bad.ptb"], "bad.ptb, line 1: it holds no tree"),
        (["--references", "gold.ptb", "--json", "gold.ptb"], "gold.ptb"),
    ],
)
def test_what_cannot_be_scored_is_one_sentence(tmp_path, monkeypatch, capsys, options, problem):
    monkeypatch.chdir(tmp_path)
    gold = (FOLDER / "gold.ptb").read_bytes()
    (tmp_path / "gold.ptb").write_bytes(gold)
    write(tmp_path / "short.ptb", "(TOP (NN a))")
    write(tmp_path / "bad.ptb", "")
    parsed = ["--hypotheses", str(FOLDER / "parsed.ptb")]
    assert cli.main(["score", "--trees", *parsed, *options]) == 1
    message = capsys.readouterr().err
    assert problem in message and message.count("\n") == 1
    assert (tmp_path / "gold.ptb").read_bytes() == gold
    assert not (FOLDER / "parsed.ptb.score.json").exists()
