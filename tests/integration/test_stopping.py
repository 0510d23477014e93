"""A training that is told to stop: saved after the update at hand, and continued as if unbroken."""

import os
import signal
from pathlib import Path

import pytest
import torch
from fairseq.trainer import Trainer

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.folders.run import Run
from vaswani.training import checkpoints
from vaswani.training.checkpoints import best_of_run, checkpoints_in, describe

# 5 updates an epoch, 3 where each takes 2 batches; saved every 2 and after each epoch
END = ("dataset.batch_size=40", "checkpoint.no_epoch_checkpoints=false", "model.dropout=0.3")
FREQUENCIES = {1: (*END, "optimization.max_update=9"), 2: (*END, "optimization.max_update=7")}


def train(name: str, *overrides: str, frequency: int = 1) -> int:
    freq = f"optimization.update_freq=[{frequency}]"
    return stock.vaswani("train", "small", f"run={name}", freq, *overrides)


@pytest.fixture(scope="module")
def unbroken(trained_workplace):
    """Train without a stop; return batches per update → the checkpoints of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(trained_workplace)
        for frequency, options in FREQUENCIES.items():
            assert train(f"unbroken{frequency}", *options, frequency=frequency) == 0
    return {n: trained_workplace / "runs" / f"unbroken{n}" / "checkpoints" for n in FREQUENCIES}


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
    """Return the parts of a checkpoint on which the rest of the training depends."""
    whole = load_checkpoint(path)
    extra = whole["extra_state"]
    kept = {key: extra[key] for key in ("train_iterator", "val_loss", "best") if key in extra}
    return {"model": whole["model"], "optimizer": whole["last_optimizer_state"], **kept}


@pytest.mark.parametrize(
    ("frequency", "step", "at", "saved"),
    [
        pytest.param(*(1, "train_step", 0, 1), marks=pytest.mark.slow),
        pytest.param(*(1, "train_step", 6, 7), marks=pytest.mark.slow),  # amid epoch 2
        (1, "train_step", 7, 8),  # due: the validation and checkpoint_2_8.pt
        pytest.param(*(1, "train_step", 8, 9), marks=pytest.mark.slow),  # the last update
        (1, "valid_step", 5, 5),  # after epoch 1
        (2, "train_step", 5, 6),  # the end of epoch 2
    ],
)
def test_a_stop_costs_nothing_and_changes_nothing(
    workplace, unbroken, capsys, frequency, step, at, saved
):
    """Every checkpoint is the unbroken run's, to the last bit, whenever the signal came."""
    folder = Path("runs/stopped/checkpoints")
    options = FREQUENCIES[frequency]
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, step, at, signal.SIGINT)
        assert train("stopped", *options, frequency=frequency) == 130
    said = capsys.readouterr().err.splitlines()
    assert any(f"saved update {saved:,} as" in line for line in said)
    assert "the same command continues" in said[-1]
    assert describe(folder / "checkpoint_last.pt").updates == saved
    assert saved not in [one.updates for one in checkpoints_in(folder)]
    assert train("stopped", *options, frequency=frequency) == 0
    expected = {path.name: path for path in unbroken[frequency].iterdir()}
    assert {path.name for path in folder.iterdir()} == set(expected)
    for name, path in expected.items():
        torch.testing.assert_close(state(folder / name), state(path), rtol=0, atol=0)
    assert not describe(folder / "checkpoint_last.pt").stopped


@pytest.mark.parametrize(
    ("number", "code", "saved"), [(signal.SIGTERM, 143, 4), (signal.SIGINT, 130, 2)]
)
def test_a_second_ctrl_c_ends_at_once_but_no_second_sigterm(workplace, number, code, saved):
    """Launchers pass on what their processes have received themselves."""
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, "train_step", 3, number, number)
        assert train("told") == code
    last = describe(Path("runs/told/checkpoints/checkpoint_last.pt"))
    assert (last.updates, last.stopped) == (saved, saved == 4)


def test_a_checkpoint_saved_by_a_stop_is_decoded_only_if_there_is_no_other(workplace):
    folder = Path("runs/unvalidated")
    for at, taken in ((0, "checkpoint_last.pt"), (2, "checkpoint_1_2.pt")):
        with pytest.MonkeyPatch.context() as patch:
            tell(patch, "train_step", at, signal.SIGINT)
            assert train(folder.name, "dataset.disable_validation=true") == 130
        assert best_of_run(Run(folder)).name == taken


def test_an_average_is_out_of_date_only_if_another_would_be_made(workplace, monkeypatch, capsys):
    """Not as a stop saved a checkpoint of its own, which is never averaged."""

    def averages_are_best(candidates, _):
        return [-one.averaged for one in candidates]

    def says_that_training_continued():
        capsys.readouterr()
        assert describe(best_of_run(Run(folder))).updates == 4
        return "training continued after" in capsys.readouterr().err

    monkeypatch.setattr(checkpoints, "losses_of", averages_are_best)
    folder = Path("runs/told")
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, "train_step", 4, signal.SIGINT)
        assert train("told") == 130
    last = describe(folder / "checkpoints/checkpoint_last.pt")
    assert (last.updates, last.stopped) == (5, True)
    assert stock.vaswani("average", "told", "--last", "2") == 0
    assert not says_that_training_continued()
    assert train("told") == 0
    assert says_that_training_continued()
