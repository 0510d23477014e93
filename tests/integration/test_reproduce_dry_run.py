"""``vaswani reproduce``: what it says before anything is done, and what it refuses.

In this process, without data, network or GPUs; the doing is in test_reproduce.py.
"""

import re
import socket
from pathlib import Path

import pytest
import yaml

from vaswani import cli
from vaswani.paper import reproduction

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"wmt14-en-{target}-{size}" for target in ("de", "fr") for size in ("base", "big")]
TABLE_3 = yaml.safe_load((ROOT / "configs" / "table3.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """An empty folder without a network and without GPUs."""

    def refuse(*_):
        raise AssertionError("nothing is to be fetched")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return tmp_path


def commands(capsys, *arguments: str) -> list:
    """The commands that a dry run would run."""
    capsys.readouterr()
    assert cli.main(["reproduce", *arguments, "--dry-run"]) == 0
    message = capsys.readouterr().out
    return [line.split(" vaswani ")[1] for line in message.splitlines() if " vaswani " in line]


@pytest.mark.parametrize("name", [NAMES[0], NAMES[3]])
def test_a_dry_run_names_the_commands_and_does_nothing(nowhere, capsys, name):
    found = commands(capsys, name, "--gpus", "8")
    verbs = ["plan", "prepare", "train", "average", "generate", "score", "pack"]
    assert [command.split()[0] for command in found] == verbs
    last, run = 20 if name.endswith("big") else 5, f"runs/{name.replace('-', '_')}"
    assert found[1] == f"prepare wmt14_{name[6:11].replace('-', '_')}"
    assert found[2].startswith(f"train {name.replace('-', '_')} dataset.max_tokens=")
    assert found[3] == f"average {run} --last {last}"
    assert f"checkpoint_average_last{last}.pt --subset test" in found[4]
    assert not list(nowhere.iterdir())


@pytest.mark.parametrize(
    "size, hours, flops", [("big", "83.3", "2.3e+19"), ("base", "11.1", "3.3e+18")]
)
def test_a_dry_run_has_the_papers_figures(nowhere, capsys, size, hours, flops):
    """5.2: 0.4 s × 100,000 and 1.0 s × 300,000 updates; Table 2's operations and BLEU."""
    assert cli.main(["reproduce", f"wmt14-en-de-{size}", "--gpus", "8", "--dry-run"]) == 0
    message = capsys.readouterr().out
    assert f" {hours} hours" in message and flops in message
    assert re.search(r"the paper +27\.3 +28\.4 ", message)


@pytest.mark.parametrize("row", ["base", "A-h1", "E-learned", "big"])
def test_a_row_of_table_3_has_a_command(monkeypatch, row):
    figures = TABLE_3["rows"][row]
    options = reproduction.Options(name="wmt14-en-de-base", row=row)
    target = reproduction.find_reproduction(options)
    monkeypatch.setattr(reproduction, "batch_of", lambda *_: [])
    found = {stage: reproduction.command_of(target, stage, 8, 8) for stage in target.stages}
    assert (target.paper["ppl"], target.paper["bleu"]) == (figures["ppl"], figures["bleu"])
    assert found["generate"][-2:] == found["score"][-2:] == ["--subset", "valid"]
    assert found["generate"][1].endswith("checkpoints/checkpoint_last.pt"), "without averaging"
    if row in ("base", "big"):  # the trainings of Table 2, scored in another way
        assert found["train"] == ["train", f"wmt14_en_de_{row}"]
    else:
        run = f"run=runs/table3_{row.replace('-', '_')}"
        assert found["train"] == ["train", "wmt14_en_de_base", *figures["change"], run]


@pytest.mark.paper("6.3")
def test_table_4_is_prepared_trained_and_scored_and_small_on_a_cpu(nowhere, capsys):
    trees = ["--train", "a.ptb", "--valid", "b.ptb", "--test", "c.ptb"]
    assert commands(capsys, "table4", *trees, "--gpus", "8") == [
        f"prepare parsing_wsj {' '.join(trees)}",
        "train parsing_wsj",
        "average runs/parsing_wsj --last 5",
        "generate runs/parsing_wsj/checkpoints/checkpoint_average_last5.pt --subset test",
        "score runs/parsing_wsj --subset test",
    ]
    prepare, train, *_ = commands(capsys, "table4", "--small", *trees)
    assert prepare.endswith(f"--out data/table4_small {' '.join(trees)}")
    for change in ("task.data=data/table4_small/data-bin", "common.cpu=true", "run=runs/table4"):
        assert change in train
    assert not list(nowhere.iterdir())


def test_options_reach_the_commands(nowhere, capsys):
    options = ["--recipe", "t2t", "--archives", "/a", "--limit", "9", "--memory", "80"]
    changes = ["model.dropout=0.2", "run=second"]
    line = ["wmt14-en-de-base", *options, *changes, "--gpus", "2"]
    found = commands(capsys, *line, "--from", "prepare")
    assert "prepare wmt14_en_de_t2t --from raw --archives /a --limit 9" in found
    (train,) = [command for command in found if command.startswith("train ")]
    for change in ("task.data=data/wmt14_en_de_t2t/data-bin", changes[0], "run=runs/second"):
        assert change in train
    found = commands(capsys, *line, "--from", "generate")
    assert found[0].startswith("generate runs/second/")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["wmt14-en-de-bse"], "wmt14-en-de-base"),
        (["table4"], "--train"),
        (["wmt14-en-de-base", "--row", "C-n3"], "C-n"),
        (["wmt14-en-de-base", "model.droput=0"], "droput"),
        (["wmt14-en-de-base", "task.data=x"], "--data"),
        (["wmt14-en-de-base"], "GPU"),
    ],
)
def test_a_reproduction_that_cannot_be_is_refused_before_anything_is_done(
    nowhere, capsys, arguments, named
):
    assert cli.main(["reproduce", *arguments]) == 1
    assert named in capsys.readouterr().err
    assert not list(nowhere.iterdir())


def test_a_result_that_needs_no_training_is_not_begun_by_a_dry_run(nowhere, capsys):
    assert commands(capsys, "table1") == ["reproduce table1"]
    assert commands(capsys, "figures", "m", "--out", "o") == ["reproduce figures m --out o"]
    assert not list(nowhere.iterdir())
