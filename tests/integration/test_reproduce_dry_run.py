"""``vaswani reproduce``: what it says before anything is done, and what it refuses.

In this process, without data, network or GPUs; the doing is in test_reproduce.py.
"""

import re
import socket
from pathlib import Path

import pytest
import yaml

from vaswani import cli
from vaswani.reproduction import full_size

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"wmt14-en-{target}-{size}" for target in ("de", "fr") for size in ("base", "big")]
TABLE_3 = yaml.safe_load((ROOT / "configs" / "table3.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """Enter an empty folder without a network and without GPUs."""

    def refuse(*_):
        raise AssertionError("nothing is to be fetched")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return tmp_path


def commands(capsys, *arguments: str) -> list:
    """Return the commands that a dry run prints."""
    capsys.readouterr()
    assert cli.main(["reproduce", *arguments, "--dry-run"]) == 0
    message = capsys.readouterr().out
    return [line.split(" vaswani ")[1] for line in message.splitlines() if " vaswani " in line]


@pytest.mark.parametrize("name", [NAMES[0], NAMES[3]])
def test_a_dry_run_names_the_commands_and_does_nothing(nowhere, capsys, name):
    found = commands(capsys, name, "--gpus", "8")
    verbs = ["plan", "prepare", "train", "average", "generate", "score", "pack"]
    assert [command.split()[0] for command in found] == verbs
    last = 20 if name.endswith("big") else 5
    run = f"runs/{name.replace('-', '_')}"
    recipe = f"wmt14_{name[6:11].replace('-', '_')}"
    assert found[1] == f"prepare {recipe} --out data/{recipe} --if-missing"
    assert found[2].startswith(f"train {name.replace('-', '_')} dataset.max_tokens=")
    assert found[3] == f"average {run} --last {last}"
    assert f"checkpoint_average_last{last}.pt --subset test" in found[4]
    assert not list(nowhere.iterdir())


def test_a_batch_that_the_user_names_is_trained_with_and_named_once(nowhere, capsys):
    """'vaswani train' refuses a key that is given twice."""
    train = commands(capsys, NAMES[0], "dataset.max_tokens=1234")[2]
    assert train.count("dataset.max_tokens=") == 1 and "dataset.max_tokens=1234" in train


def test_a_dry_run_has_the_papers_figures(nowhere, capsys):
    assert cli.main(["reproduce", "wmt14-en-de-base", "--gpus", "8", "--dry-run"]) == 0
    assert re.search(r"the paper +27\.3 +28\.4 ", capsys.readouterr().out)


@pytest.mark.parametrize("row", ["base", "A-h1", "E-learned", "big"])
def test_a_row_of_table_3_has_a_command(monkeypatch, row):
    figures = TABLE_3["rows"][row]
    options = full_size.Options(name="wmt14-en-de-base", row=row)
    target = full_size.find_reproduction(options)
    monkeypatch.setattr(full_size, "batch_of", lambda *_: [])
    found = {stage: full_size.command_of(target, stage, 8, 8) for stage in target.stages}
    assert (target.paper["ppl"], target.paper["bleu"]) == (figures["ppl"], figures["bleu"])
    assert found["generate"][-2:] == found["score"][-2:] == ["--subset", "valid"]
    assert found["generate"][1].endswith("checkpoints/checkpoint_last.pt"), "without averaging"
    if row in ("base", "big"):  # the trainings of Table 2, scored in another way
        assert found["train"] == ["train", f"wmt14_en_de_{row}"]
    else:
        run = f"run=runs/table3_{row.replace('-', '_')}"
        assert found["train"] == ["train", "wmt14_en_de_base", *figures["change"], run]


@pytest.mark.paper("6.3")
def test_table_4_is_trained_and_scored(nowhere, capsys):
    assert commands(capsys, "table4", "--gpus", "8") == [
        "train parsing_wsj",
        "average runs/parsing_wsj --last 5",
        "generate runs/parsing_wsj/checkpoints/checkpoint_average_last5.pt --subset test",
        "score runs/parsing_wsj --subset test",
    ]
    assert not list(nowhere.iterdir())


def test_options_reach_the_commands(nowhere, capsys):
    changes = ["task.data=data/trial/data-bin", "model.dropout=0.2", "run=second"]
    found = commands(capsys, "wmt14-en-de-base", "--memory", "80", *changes, "--gpus", "2")
    plan, prepare, train, _, generate, *_ = found
    assert "--memory 80" in plan
    assert prepare == "prepare wmt14_en_de --out data/trial --if-missing"
    for change in (*changes[:2], "run=runs/second"):
        assert change in train
    assert generate.startswith("generate runs/second/")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["wmt14-en-de-bse"], "wmt14-en-de-base"),
        (["table4"], "python -m experiments table4"),
        (["table4", "--small"], "python -m experiments table4"),
        (["table2", "--small"], "python -m experiments table2/captions"),
        (["table2-tatoeba", "--small"], "python -m experiments table2/everyday"),
        (["equal-updates"], "python -m experiments equal_updates"),
        (["wmt14-en-de-base", "--small"], "python -m experiments"),
        (["wmt14-en-de-base", "--row", "C-n3"], "C-n"),
        (["wmt14-en-de-base", "model.droput=0"], "droput"),
        (["wmt14-en-de-base", "checkpoint.save_dir=x"], "run="),
        (["wmt14-en-de-base"], "GPU"),
    ],
)
def test_a_reproduction_that_cannot_be_is_refused_before_anything_is_done(
    nowhere, capsys, arguments, named
):
    assert cli.main(["reproduce", *arguments]) == 1
    assert named in capsys.readouterr().err
    assert not list(nowhere.iterdir())
