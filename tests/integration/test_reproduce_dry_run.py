"""``vaswani reproduce``: what it says before anything is done, and what it refuses.

In this process, without data, network or GPUs; the doing is in test_reproduce.py.
"""

import socket
from pathlib import Path

import pytest
import yaml

from vaswani import cli
from vaswani.paper import reproduction
from vaswani.scoring import published

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


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_says_all_and_does_nothing(nowhere, capsys, name):
    assert cli.main(["reproduce", name, "--gpus", "8", "--dry-run"]) == 0
    message = capsys.readouterr().out
    pair, size = name[len("wmt14-") :].rsplit("-", 1)
    paper = published.FIGURES["wmt14/full", pair][0]
    last = 20 if size == "big" else 5
    run = f"runs/{name.replace('-', '_')}"
    commands = [line.split(" vaswani ")[1] for line in message.splitlines() if " vaswani " in line]
    assert [command.split()[0] for command in commands] == [
        *("plan", "prepare", "train", "average", "generate", "score", "pack")
    ]
    assert commands[1] == f"prepare wmt14_{pair.replace('-', '_')}"
    assert commands[2].startswith(f"train {name.replace('-', '_')} dataset.max_tokens=")
    assert commands[3] == f"average {run} --last {last}"
    assert f"checkpoint_average_last{last}.pt --subset test" in commands[4]
    assert f"expected by Table 2: {getattr(paper, size)} BLEU" in message
    # 5.2: 0.4 s × 100,000 and 1.0 s × 300,000 updates; Table 2's operations
    hours, flops = ("83.3", "2.3e+19") if size == "big" else ("11.1", "3.3e+18")
    assert f" {hours} hours on 8 of the paper's P100" in message
    assert f"Table 2 has {flops}" in message and "GB free here" in message
    assert not list(nowhere.iterdir())


@pytest.mark.parametrize("row", TABLE_3["rows"])
def test_every_row_of_table_3_has_a_command(row):
    figures = TABLE_3["rows"][row]
    options = reproduction.ResultOptions(name="wmt14-en-de-base", row=row)
    target = reproduction.find_reproduction(options)
    found = reproduction.command_lines(target, [], 8, 8)
    assert (target.paper["ppl"], target.paper["bleu"]) == (figures["ppl"], figures["bleu"])
    assert found["generate"][-2:] == found["score"][-2:] == ["--subset", "valid"]
    assert found["generate"][2].endswith("checkpoints/checkpoint_last.pt"), "without averaging"
    if row in ("base", "big"):  # the trainings of Table 2, scored in another way
        assert found["train"] == ["vaswani", "train", f"wmt14_en_de_{row}"]
    else:
        run = f"run=runs/table3_{row.replace('-', '_')}"
        assert found["train"] == ["vaswani", "train", "wmt14_en_de_base", *figures["change"], run]


def test_a_dry_run_of_a_row(nowhere, capsys):
    line = ["reproduce", "wmt14_en_de_base", "--row", "a_h1", "--gpus", "8", "--dry-run"]
    assert cli.main(line) == 0
    message = capsys.readouterr().out
    assert "row A-h1: perplexity 5.29, 24.9 BLEU on newstest2013, without averaging" in message
    assert "vaswani average" not in message and "run=runs/table3_A_h1" in message


@pytest.mark.paper("6.3")
def test_a_dry_run_of_table_4(nowhere, capsys):
    trees = ["--train", "a.ptb", "--valid", "b.ptb", "--test", "c.ptb"]
    assert cli.main(["reproduce", "table4", *trees, "--gpus", "8", "--dry-run"]) == 0
    message = capsys.readouterr().out
    commands = [line.split(" vaswani ")[1] for line in message.splitlines() if " vaswani " in line]
    assert "expected by Table 4: F1 91.3 on section 23" in message
    assert commands == [
        f"prepare parsing_wsj {' '.join(trees)}",
        "train parsing_wsj",
        "average runs/parsing_wsj --last 5",
        "generate runs/parsing_wsj/checkpoints/checkpoint_average_last5.pt --subset test",
        "score runs/parsing_wsj --subset test",
    ]
    assert cli.main(["reproduce", "table4", "--small", *trees, "--dry-run"]) == 0
    message = capsys.readouterr().out
    assert f"prepare parsing_wsj --bpe 4000 --out data/table4_small {' '.join(trees)}" in message
    assert "task.data=data/table4_small/data-bin common.cpu=true" in message
    assert "run=runs/table4_small" in message
    assert "Table 4's F1 of 91.3 is not for a small" in message
    assert "--gpus" not in message and "dataset.max_tokens=4096" in message
    assert cli.main(["reproduce", "table4", *trees, "--from", "prepare", "--dry-run"]) == 0
    assert f"prepare parsing_wsj --from text {' '.join(trees)}" in capsys.readouterr().out
    assert not list(nowhere.iterdir())


def test_options_reach_the_commands(nowhere, capsys):
    options = ["--recipe", "t2t", "--archives", "/a", "--limit", "9", "--memory", "80"]
    changes = ["model.dropout=0.2", "run=second"]
    line = ["reproduce", "wmt14-en-de-base", *options, *changes, "--gpus", "2", "--dry-run"]
    assert cli.main([*line, "--from", "prepare"]) == 0
    message = capsys.readouterr().out
    assert "prepare wmt14_en_de_t2t --from raw --archives /a --limit 9" in message
    assert "wmt14_en_de_base on 2 GPUs of 80 GB" in message
    train = next(line for line in message.splitlines() if " vaswani train " in line)
    for change in ("task.data=data/wmt14_en_de_t2t/data-bin", changes[0], "run=runs/second"):
        assert change in train
    assert cli.main([*line, "--from", "generate"]) == 0
    message = capsys.readouterr().out
    assert "vaswani train" not in message and "vaswani generate runs/second/" in message


def test_fewer_gpus_than_the_machine_has(nowhere, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    line = ["reproduce", "wmt14-en-de-base", "--dry-run"]
    for more, gpus, message in (([], 8, False), (["--gpus", "2"], 2, True)):
        assert cli.main([*line, *more]) == 0
        out = capsys.readouterr().out
        assert f"on {gpus} GPUs" in out
        assert ("distributed_training.distributed_world_size=2" in out) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wmt14-en-de-bse"], "did you mean 'wmt14-en-de-base'?"),
        (["table5"], "did you mean 'table4'?); there are wmt14-en-de-base"),
        (["table5"], "wmt14-en-fr-big, table4, table1, table2, table2-demo, equal-updates, table3"),
        (["table4"], "table4 has no --train FILE: give --train, --valid and --test FILE"),
        (["table4", "--small", "--train", "a.ptb"], "there is no file a.ptb: give --train"),
        (["table4", "--from", "train"], "no GPU here, which a model of this size needs; for a"),
        (["table4", "--from", "pack"], "no stage 'pack'"),
        (["table2", "--small"], "needs the folder examples/recurrent: run this in a checkout"),
        (["table4", "--row", "C-n2"], "for wmt14_en_de_base, not for parsing_wsj"),
        (["wmt14-en-de-base", "--small"], "--small is for table4 and the comparisons (table2"),
        (["wmt14_en_ro_base"], "there are wmt14-en-de-base, wmt14-en-de-big, wmt14-en-fr-base"),
        (["wmt14-en-de-base", "--row", "C-n3"], "no row 'C-n3' (did you mean 'C-n"),
        (["wmt14-en-fr-base", "--row", "C-n2"], "for wmt14_en_de_base, not for wmt14_en_fr_base"),
        (["wmt14-en-de-base", "--from", "trian"], "no stage 'trian' (did you mean 'train'?)"),
        (["wmt14-en-de-base", "--row", "C-n2", "--from", "average"], "no stage 'average'"),
        (["wmt14-en-de-base", "model.droput=0"], "model has no key 'droput'"),
        (["wmt14-en-de-base", "task.data=x"], "give --data DIR instead"),
        (["wmt14-en-de-base"], "no GPU here, and this takes 11 hours on 8 of the paper's P100"),
        (["wmt14-en-de-base", "--gpus", "1"], "takes 89 hours on 1 of"),
        (["wmt14-en-de-base", "--from", "train"], "on a CPU: vaswani reproduce wmt14-en-de-base"),
    ],
)
def test_what_cannot_be_is_one_sentence(nowhere, capsys, arguments, message):
    assert cli.main(["reproduce", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(nowhere.iterdir())


def test_more_gpus_than_the_machine_has(nowhere, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert cli.main(["reproduce", "wmt14-en-de-base", "--gpus", "8"]) == 1
    assert "this machine has 2 visible GPUs, not 8" in capsys.readouterr().err
