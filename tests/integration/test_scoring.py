"""Runs scored: what ``vaswani generate`` leaves, beside what ``vaswani prepare`` keeps.

The files are written here; tests/integration/test_vaswani.py has the whole way from training on.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.files import write
from vaswani import cli
from vaswani.data import test_sets
from vaswani.data.tokenise import tokeniser

ROOT = Path(__file__).resolve().parents[2]
TEXT = [f"Das {n}. Haus, so heißt es, ist ein Stein-Haus." for n in range(20)]
ROWS = ["bleu_tokenised", "compound_split", "compound_split_2018", "bleu", "chrf"]


def make_run(folder, name, hypotheses, references=TEXT, subset="test", **recipe):
    """A run ``name`` and its data, as far as scoring looks at them."""
    values = {"source_lang": "en", "target_lang": "de", "tokenised": False, "test": "mine"}
    values.update(recipe)
    data, out = folder / "data" / name, folder / "runs" / name / "eval"
    tokens = tokeniser("de", bool(values.get("split_hyphens")))
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


def worse(lines):
    """The last word lost in every line."""
    return [line.rsplit(" ", 1)[0] for line in lines]


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Score a run in this folder: exit code, its JSON file, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(name, *options, subset="test"):
        code = cli.main(["score", name, *options])
        path = tmp_path / "runs" / name / "eval" / f"{subset}.score.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return (code, report, *capsys.readouterr())

    return run


def test_a_run_on_text(score, tmp_path):
    make_run(tmp_path, "mine", [*worse(TEXT)[:19], ""])
    code, report, out, err = score("mine")
    assert code == 0 and set(ROWS) <= set(report) and "published" not in report
    assert report["translation"]["checkpoint"] == "last.pt"
    assert report["without_output"] == [20] and "lines 20" in err
    # what the same files give by name
    data, made = tmp_path / "data" / "mine", tmp_path / "runs" / "mine" / "eval" / "test.hyp"
    files = ["--hypotheses", str(made), "--references", str(data / "text" / "test.de")]
    again = tmp_path / "again.json"
    assert cli.main(["score", *files, "--pair", "en-de", "--json", str(again)]) == 0
    found = json.loads(again.read_text(encoding="utf-8"))
    assert all(found[key] == report[key] for key in ROWS)


def test_without_a_name_the_runs_are_listed_with_their_scores(score, tmp_path, capsys):
    assert cli.main(["score"]) == 1 and "there is no run" in capsys.readouterr().err
    for name in ("mine", "other", "table2/ours_seed1"):
        make_run(tmp_path, name, worse(TEXT))
    _, report, _, _ = score("mine")
    assert cli.main(["score"]) == 0
    mine, other, small = capsys.readouterr().out.splitlines()
    bleu, chrf = (f"{report[key]['score']:.2f}" for key in ("bleu", "chrf"))
    assert mine.split()[:6] == ["mine", "test", "sacreBLEU", bleu, "chrF", chrf]
    assert mine.endswith("by last.pt")
    assert other.split() == ["other", "not", "scored"] and small.startswith("table2/ours_seed1")


def test_tokens_score_as_fairseq_score_has_them(score, tmp_path, capsys):
    """The formula of fairseq's own scorer, in C, over the same tokens."""
    from fairseq_cli import score as fairseq_score

    make_run(tmp_path, "mine", worse(TEXT))
    _, report, _, _ = score("mine")
    made = tmp_path / "runs" / "mine" / "eval" / "test.hyp.tok"
    reference = tmp_path / "data" / "mine" / "tok" / "test.de"
    parser = fairseq_score.get_parser()
    args = parser.parse_args(["--sys", str(made), "--ref", str(reference)])
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(parser, "parse_args", lambda: args)
        monkeypatch.setattr(fairseq_score, "get_parser", lambda: parser)
        fairseq_score.cli_main()
    printed = capsys.readouterr().out
    precisions = report["bleu_tokenised"]["text"].split()[3]
    assert f"BLEU4 = {report['bleu_tokenised']['score']:.2f}, {precisions} (BP=" in printed


def test_a_run_on_tokens(score, tmp_path):
    """As Multi30k comes: no text, no sacreBLEU; its first line is what multi30k.sh shows."""
    lines = ["ein mann , der lacht .", "zwei hunde spielen ."] * 5
    make_run(tmp_path, "tokens", lines, lines, tokenised=True)
    code, report, out, _ = score("tokens")
    assert code == 0 and "bleu" not in report and report["bleu_tokenised"]["score"] == 100.0
    assert out.startswith("tokenised BLEU ") and "100.00" in out.splitlines()[0]


def test_hyphens_split_by_the_recipe_are_not_split_again(score, tmp_path):
    """The tokens have ``@-@`` and say so; compound-split BLEU is of the text."""
    make_run(tmp_path, "split", TEXT, split_hyphens=True)
    assert "@-@" in (tmp_path / "data" / "split" / "tok" / "test.de").read_text(encoding="utf-8")
    code, report, out, _ = score("split")
    assert code == 0 and "tokenised BLEU (hyphens split)" in out
    tokens = sum(len(tokeniser("de")(line).split()) + 2 for line in TEXT)  # Stein # Haus
    assert report["compound_split"]["text"].endswith(f"ref_len = {tokens})")
    # a mark that the model made and detokenising left costs these rows, not the others
    make_run(tmp_path, "slip", [*TEXT[:19], "ein @-@ @-@ Haus"], split_hyphens=True)
    code, report, _, err = score("slip")
    assert code == 0 and "compound_split" not in report and report["bleu"]["score"] > 90
    assert "compound-split BLEU: the translations, line 20" in err


@pytest.mark.parametrize(
    ("subset", "part", "count", "table"),
    [
        ("test", "newstest2014", 20, "Table 2"),
        ("valid", "newstest2013", 20, "Table 3"),
        ("test", "newstest2014", 19, None),  # a trial: not that set
        ("test", "newstest2015", 20, None),
    ],
)
def test_published_figures_stand_beside_wmts_test_sets(
    score, tmp_path, monkeypatch, subset, part, count, table
):
    """As if WMT's sets had 20 sentences; their true sizes are in tests/unit/test_score.py."""
    for name in test_sets.SENTENCES:
        monkeypatch.setitem(test_sets.SENTENCES, name, 20)
    lines = TEXT[:count]
    make_run(tmp_path, "wmt", lines, lines, subset, archives="wmt14", **{subset: part})
    code, report, out, _ = score("wmt", "--subset", subset, subset=subset)
    assert code == 0 and ("published" in report) == bool(table)
    assert table is None or (table in out and table in report["published"][0]["source"])


def test_two_runs_are_compared_on_the_same_references(score, tmp_path):
    make_run(tmp_path, "a", TEXT)
    make_run(tmp_path, "b", worse(TEXT))
    code, report, out, _ = score("a", "--compare", "b")
    found = report["comparison"]
    assert code == 0 and found["with"] == "b" and "paired bootstrap, 1,000 resamples" in out
    assert all(row["p"] < 0.05 for row in found["metrics"].values())
    assert found["files"]["hypotheses"]["file"].endswith("b/eval/test.hyp")
    make_run(tmp_path, "c", TEXT, [line + "!" for line in TEXT])
    code, _, _, err = score("a", "--compare", "c")
    assert code == 1 and "on the same references" in err and err.count("\n") == 1


@pytest.mark.parametrize("tokenised", [False, True])
def test_a_run_is_compared_with_a_file(score, tmp_path, tokenised):
    """The same comparison as with the run that the file belongs to."""
    for name, lines in (("a", TEXT), ("b", worse(TEXT))):
        make_run(tmp_path, name, lines, tokenised=tokenised)
    _, by_run, _, _ = score("a", "--compare", "b")
    made = tmp_path / "runs" / "b" / "eval" / f"test.hyp{'.tok' if tokenised else ''}"
    code, by_file, out, _ = score("a", "--compare", str(made))
    assert code == 0 and "paired bootstrap, 1,000 resamples" in out
    assert by_file["comparison"]["with"] == str(made)
    assert by_file["comparison"]["metrics"] == by_run["comparison"]["metrics"]
    short = write(tmp_path / "short", *TEXT[:3])
    code, _, _, err = score("a", "--compare", str(short))
    assert code == 1 and "short has 3 lines and" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--subset", "valid"], "no translations of 'valid'"),
        (["--pair", "en-de"], "not both: --pair"),
        (["--compare", "nothing"], "no run 'nothing'"),
    ],
)
def test_what_a_run_cannot_do(score, tmp_path, options, message):
    make_run(tmp_path, "mine", TEXT)
    code, _, out, err = score("mine", *options)
    assert code == 1 and not out and message in err and err.count("\n") == 1


def test_references_of_a_run_that_nobody_prepared(score, tmp_path):
    make_run(tmp_path, "mine", TEXT)
    (tmp_path / "data" / "mine" / "recipe.yaml").unlink()
    assert "was not made by 'vaswani prepare'" in score("mine")[3]


MADE = "runs/r/checkpoints/checkpoint_average_last"


@pytest.mark.parametrize(
    ("kept", "environment", "arguments", "stages"),
    [
        ("21", {}, [], ["average r --last 20", f"generate {MADE}20.pt", "score r --subset test"]),
        ("6", {}, [], ["average r --last 5", f"generate {MADE}5.pt", "score r --subset test"]),
        ("-1", {}, [], ["average r --last 5", f"generate {MADE}5.pt", "score r --subset test"]),
        (
            "5",
            {"LAST": "3"},
            ["--beam", "2", "--subset", "valid"],
            ["average r --last 3", f"generate {MADE}3.pt --beam 2 --subset valid"]
            + ["score r --subset valid"],
        ),
        (
            "20",
            {"AVERAGE": "no"},
            ["--subset=valid"],
            ["generate runs/r/checkpoints/checkpoint_last.pt --subset=valid"]
            + ["score r --subset valid"],
        ),
    ],
)
def test_the_stages_of_evaluate(tmp_path, kept, environment, arguments, stages):
    """5 checkpoints of base and 20 of big (section 6.1), of which the runs keep one more.

    Their average is decoded even where the best checkpoint has a lower validation loss.
    """
    config = {"checkpoint": {"keep_interval_updates": int(kept), "keep_last_epochs": 7}}
    write(tmp_path / "runs" / "r" / "config.yaml", yaml.safe_dump(config))
    (tmp_path / "vaswani").write_text('#!/bin/sh\necho "$*"\n', encoding="utf-8")
    (tmp_path / "vaswani").chmod(0o755)
    here = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "evaluate.sh"), "r", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{here}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == stages
