"""How a training begins, why it ends, and that patience outlives a restart: ``vaswani train``."""

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.test_vaswani import run, workplace  # noqa: F401

#: validation is not to improve: the loss's three digits do not change at such a rate
STANDING_STILL = ("lr_scheduler.lr_factor=1e-12", "dataset.batch_size=40")


@pytest.fixture
def train(workplace, monkeypatch, request):  # noqa: F811
    """A function that trains in a folder of this test's own; it returns the exit code."""
    folder = workplace / "runs" / "ends"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(folder.with_name("unbroken"), ignore_errors=True)

    def train(*overrides: str, name: str = "ends") -> int:
        return run(workplace, monkeypatch, "train", "small", f"run={name}", *overrides)

    train.folder = folder
    return train


def finished(folder: Path) -> dict:
    return json.loads((folder / "finished.json").read_text(encoding="utf-8"))


class Killed(Exception):
    """The process ends here, with nothing more written."""


def stop_after(patch, updates: int, error=Killed) -> None:
    """Every training ends by an error as it begins the update after this many."""
    from fairseq.trainer import Trainer

    step = Trainer.train_step

    def train_step(trainer, *arguments, **options):
        if trainer.get_num_updates() == updates:
            raise error
        return step(trainer, *arguments, **options)

    patch.setattr(Trainer, "train_step", train_step)


NO_LIMIT = "optimization.max_update=0"
#: 0.00025 at first, 0.00010 after 5 updates
FALLING = ("lr_scheduler.warmup_updates=1", "lr_scheduler.lr_factor=0.001", "dataset.batch_size=40")


@pytest.mark.parametrize(
    ("reason", "overrides", "updates"),
    [
        ("max_update", ["optimization.max_update=4"], 4),
        ("max_epoch", [NO_LIMIT, "optimization.max_epoch=2", "dataset.batch_size=40"], 10),
        ("stop_time_hours", ["optimization.stop_time_hours=1e-9"], 1),
        ("stop_min_lr", [NO_LIMIT, *FALLING, "optimization.stop_min_lr=0.00013"], 5),
        ("patience", ["optimization.max_update=90", "checkpoint.patience=2", *STANDING_STILL], 5),
    ],
)
def test_why_a_training_ended_is_said_and_recorded(train, capsys, reason, overrides, updates):
    """5 updates an epoch where 40 sentences make a batch: validated at 2, 4 and 5."""
    assert train(*overrides) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{reason} at update {updates}" in last and "vaswani average runs/ends" in last
    found = finished(train.folder)
    assert (found["reason"], found["num_updates"]) == (reason, updates)
    lines = [json.loads(line) for line in (train.folder / "train.jsonl").open()]
    assert found["perplexity"] == [line["valid_ppl"] for line in lines if "valid_ppl" in line][-1]
    assert train(*overrides) == 0
    assert f"already trained, {updates} update" in capsys.readouterr().err


def test_a_training_begins_with_its_device_its_limits_and_its_log(train, capsys):
    """In one line; resumed, with the updates so far."""
    assert train("optimization.max_update=3", "optimization.stop_time_hours=0.5") == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert "on the CPU in fp32 to update 3 or for 0.5 hours" in first
    assert "runs/ends/train.log" in first and (train.folder / "train.log").is_file()
    assert train("optimization.max_update=4", "checkpoint.patience=3") == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert "update 3 on the CPU in fp32, to update 4 or until 3 validations" in first


@pytest.mark.parametrize(("updates", "continues"), [(1, False), (3, True)])
def test_the_same_command_continues_once_something_is_saved(train, capsys, updates, continues):
    """Saved at update 2."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, updates, KeyboardInterrupt)
        assert train() == 130
    assert ("the same command continues" in capsys.readouterr().err) == continues


# --- patience ----------------------------------------------------------------------------------

PATIENT = ("optimization.max_update=90", "checkpoint.patience=6", *STANDING_STILL)


def test_patience_survives_a_kill(train):
    """Validated at 2, 4, 5, 6, 8, 10, 12 …: without improvement since the first of these."""
    assert train(*PATIENT, name="unbroken") == 0
    assert finished(train.folder.with_name("unbroken"))["num_updates"] == 12
    for updates in (7, 9):
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, updates)
            with pytest.raises(Killed):
                train(*PATIENT)
    assert train(*PATIENT) == 0
    assert finished(train.folder)["num_updates"] == 12
    assert finished(train.folder)["reason"] == "patience"


def test_a_kill_before_finished_json_adds_no_update(train, capsys):
    """The last checkpoint is that of the end: nothing is left, until patience is raised."""
    assert train(*PATIENT) == 0
    (train.folder / "finished.json").unlink()
    assert train(*PATIENT) == 0
    assert "nothing is left to train" in capsys.readouterr().err
    assert finished(train.folder)["num_updates"] == 12
    assert finished(train.folder)["reason"] == "patience"
    assert train(*PATIENT, "checkpoint.patience=7") == 0
    assert finished(train.folder)["num_updates"] == 14
