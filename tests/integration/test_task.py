"""``vaswani_translation`` in fairseq's commands and in ours: the batch is said, and warned of."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from fairseq.trainer import Trainer

from tests import shared, stock
from vaswani import cli
from vaswani.planning.hardware import Hardware
from vaswani.planning.training_plan import training_plan

OURS = ["--task", "vaswani_translation"]
SHORT = [*OURS, "--max-update", "1", "--no-save", "--disable-validation"]
#: tests/conftest.py's 200 training pairs in one batch, with an EOS a side
WHOLE = ["--batch-size", "200", "--max-tokens", "100000"]


@pytest.fixture(scope="module")
def tokens(tiny_text) -> int:
    """Count the tokens of the training text on a side (both are equal), EOS included."""
    lines = (tiny_text / "train.en").read_text(encoding="utf-8").splitlines()
    return sum(len(line.split()) + 1 for line in lines)


def message(lines):
    return [line for line in lines if line.startswith("an update sees")]


@pytest.mark.parametrize(("share", "warned"), [(None, 0), (0.92, 0), (0.5, 1), (2.0, 1)])
def test_a_batch_far_from_the_wish_is_warned_of(share, warned, tiny_data_bin, tmp_path, tokens):
    """Once, over two epochs."""
    wish = ["--batch-tokens", str(round(tokens * share))] if share else []
    lines = stock.train(tiny_data_bin, tmp_path, *SHORT, *WHOLE, *wish, "--max-update", "2")
    assert f"{tokens:,} source and {tokens:,} target" in message(lines)[0]
    assert len(message(lines)) == 1 + warned


EVERY_4 = ["--save-interval-updates", "4", "--save-interval", "1000", "--no-epoch-checkpoints"]
LAST_8 = ["--max-update", "47", "--save-all-last", "8"]


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        (LAST_8, [4, 16, 32, 44]),
        ([*LAST_8, "--stop-time-hours", "0.385"], [4, 16, 24]),
    ],
)
def test_checkpoints_that_are_not_averaged_are_ten_minutes_apart(
    options, updates, tiny_data_bin, tmp_path, monkeypatch
):
    """If an update takes a minute. At each fifth an epoch ends, and checkpoint_last.pt is saved."""
    monkeypatch.setattr(
        Trainer, "cumulative_training_time", lambda trainer: 60 * trainer.get_num_updates()
    )
    batches = ["--batch-size", "40", "--max-tokens", "100000"]
    lines = stock.train(tiny_data_bin, tmp_path, *OURS, *batches, *EVERY_4, *options)
    names = [re.search(r"Saved .*checkpoint_\d+_(\d+)\.pt", line) for line in lines]
    assert [int(name.group(1)) for name in names if name] == updates


def test_accumulated_batches_count(tiny_data_bin, tmp_path, tokens):
    """Five batches of 40 are one update with --update-freq 5, and five without."""
    fifth = [*SHORT, "--batch-size", "40", "--max-tokens", "100000"]
    wish = ["--batch-tokens", str(tokens)]
    lines = stock.train(tiny_data_bin, tmp_path, *fifth, *wish, "--update-freq", "5")
    assert len(message(lines)) == 1
    lines = stock.train(tiny_data_bin, tmp_path, *fifth, *wish)
    assert "dataset.batch_size=40 optimization.update_freq=[5]" in message(lines)[1]


@pytest.fixture
def experiment(tiny_data_bin, tmp_path, monkeypatch) -> Path:
    """Write an experiment of one update on the whole training text, in a folder of its own."""
    table = shared.experiment()
    table["task"].update(_name="vaswani_translation", data=str(tiny_data_bin))
    table["dataset"].update(max_tokens=100_000, batch_size=200)
    table["optimization"]["max_update"] = 1
    table["checkpoint"] = {"no_epoch_checkpoints": True}
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def test_vaswani_train_shows_the_warning(experiment, tokens, capsys):
    assert stock.vaswani("train", experiment, f"task.batch_tokens={tokens // 2}") == 0
    assert capsys.readouterr().err.count("warning: an update sees") == 1
    assert Path("runs/one/train.log").read_text(encoding="utf-8").count("an update sees") == 2


def test_training_sees_the_batch_of_its_plan(experiment, capsys):
    """``vaswani plan`` counts batches; training with its options counts the same."""
    change = ["task.batch_tokens=700", "dataset.batch_size=null", "dataset.max_tokens=600"]
    assert cli.main(["plan", str(experiment), *change, "--gpus", "1"]) == 0
    assert "measured on" in capsys.readouterr().out
    plan = training_plan(str(experiment), change, Hardware(gpus=1))
    assert plan.batch.left_out == 0 and plan.vocabulary == 16
    assert abs(plan.batch.target_tokens - 700) <= 70
    assert stock.vaswani(*shlex.split(plan.command)[1:]) == 0
    assert "warning" not in capsys.readouterr().err
    log = Path("runs/one/train.log").read_text(encoding="utf-8")
    message = (
        f"sees {plan.batch.source_tokens:,.0f} source and {plan.batch.target_tokens:,.0f} target"
    )
    assert f"{message} tokens on average; updates per epoch: {plan.batch.updates_per_epoch}" in log
    written = Path("runs/one/checkpoints/checkpoint_last.pt").stat().st_size
    assert plan.disk.checkpoint_bytes <= written <= plan.disk.checkpoint_bytes + 300_000
