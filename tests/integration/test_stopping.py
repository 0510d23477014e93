"""A training that is told to stop: saved after the update at hand, and continued as if unbroken."""

import os
import signal
from pathlib import Path

import pytest
import torch
from fairseq.trainer import Trainer

from tests.integration.test_vaswani import run, workplace  # noqa: F401
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.experiment.best_checkpoint import best_of_run
from vaswani.experiment.checkpoints import checkpoints_in, describe

# 5 updates an epoch, 3 where each takes 2 batches; saved every 2 and after each epoch
END = ("dataset.batch_size=40", "checkpoint.no_epoch_checkpoints=false", "model.dropout=0.3")
FREQUENCIES = {1: (*END, "optimization.max_update=12"), 2: (*END, "optimization.max_update=7")}


@pytest.fixture(scope="module")
def unbroken(workplace):  # noqa: F811
    """Batches an update → the folder of a run of that kind, in one go."""
    folders = {}
    for frequency, options in FREQUENCIES.items():
        with pytest.MonkeyPatch.context() as patch:
            name = f"run=unbroken{frequency}"
            assert train(workplace, patch, name, *options, frequency=frequency) == 0
        folders[frequency] = workplace / "runs" / f"unbroken{frequency}"
    return folders


def train(workplace, patch, *overrides, frequency=1) -> int:  # noqa: F811
    given = (f"optimization.update_freq=[{frequency}]", *overrides)
    return run(workplace, patch, "train", "small", *given)


def tell(patch, step: str, at: int, *numbers: int) -> None:
    """Send this process signals in the middle of the update after ``at``, or its validation."""
    original = getattr(Trainer, step)

    def told(trainer, *arguments, **options):
        if trainer.get_num_updates() == at:
            for number in numbers:
                os.kill(os.getpid(), number)
        return original(trainer, *arguments, **options)

    patch.setattr(Trainer, step, told)


def state(path: Path) -> dict:
    """What decides how a training goes on from a checkpoint, and how it was judged."""
    whole = load_checkpoint(path)
    extra = whole["extra_state"]
    kept = {key: extra[key] for key in ("train_iterator", "val_loss", "best") if key in extra}
    return {"model": whole["model"], "optimizer": whole["last_optimizer_state"], **kept}


def assert_same(one, other, where="") -> None:
    """Equal to the last bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    else:
        assert one == other, where


@pytest.mark.parametrize(
    ("frequency", "step", "at", "saved"),
    [
        pytest.param(*(1, "train_step", 0, 1), marks=pytest.mark.slow),
        (1, "train_step", 6, 7),  # amid epoch 2, and nothing is due
        (1, "train_step", 7, 8),  # due: the validation and checkpoint_2_8.pt
        pytest.param(*(1, "train_step", 11, 12), marks=pytest.mark.slow),  # the last update
        (1, "valid_step", 5, 5),  # after epoch 1
        pytest.param(*(2, "valid_step", 4, 4), marks=pytest.mark.slow),
        (2, "train_step", 5, 6),  # the end of epoch 2
    ],
)
def test_a_stop_costs_nothing_and_changes_nothing(
    workplace,  # noqa: F811
    unbroken,
    monkeypatch,
    capsys,
    frequency,
    step,
    at,
    saved,
):
    """Every checkpoint is the unbroken run's, to the last bit, whenever the signal came."""
    name = f"stopped{frequency}{step}{at}"
    folder, options = workplace / "runs" / name, FREQUENCIES[frequency]
    last = folder / "checkpoints" / "checkpoint_last.pt"
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, step, at, signal.SIGINT)
        assert train(workplace, patch, f"run={name}", *options, frequency=frequency) == 130
    said = capsys.readouterr().err.splitlines()
    assert any(f"saved update {saved:,} as" in line for line in said)
    assert "the same command continues" in said[-1]
    assert describe(last).updates == saved
    assert saved not in [one.updates for one in checkpoints_in(folder / "checkpoints")]
    assert train(workplace, monkeypatch, f"run={name}", *options, frequency=frequency) == 0
    expected = {path.name: path for path in (unbroken[frequency] / "checkpoints").iterdir()}
    assert {path.name for path in (folder / "checkpoints").iterdir()} == set(expected)
    for name, path in expected.items():
        assert_same(state(folder / "checkpoints" / name), state(path), name)
    assert not describe(last).stopped


def test_sigterm_saves_too_and_another_one_changes_nothing(workplace):  # noqa: F811
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, "train_step", 2, signal.SIGTERM, signal.SIGTERM)
        assert train(workplace, patch, "run=terminated") == 143
    last = workplace / "runs" / "terminated" / "checkpoints" / "checkpoint_last.pt"
    assert describe(last).updates == 3 and describe(last).stopped


def test_a_second_ctrl_c_ends_at_once(workplace):  # noqa: F811
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, "train_step", 3, signal.SIGINT, signal.SIGINT)
        assert train(workplace, patch, "run=twice") == 130
    last = workplace / "runs" / "twice" / "checkpoints" / "checkpoint_last.pt"
    assert describe(last).updates == 2 and not describe(last).stopped


def test_a_checkpoint_saved_by_a_stop_is_decoded_only_if_there_is_no_other(workplace):  # noqa: F811
    folder = workplace / "runs" / "unvalidated"
    for at, taken in ((0, "checkpoint_last.pt"), (2, "checkpoint_1_2.pt")):
        with pytest.MonkeyPatch.context() as patch:
            tell(patch, "train_step", at, signal.SIGINT)
            assert train(workplace, patch, f"run={folder.name}", "dataset.disable_validation=true")
        assert best_of_run(folder).name == taken
