"""Losses, the best checkpoint and patience belong to one validation text: another begins anew."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import stock
from tests.integration.test_trainings_end import PATIENT, Killed, finished, stop_after, updates
from transformer_plugin.checkpoints import load_checkpoint
from transformer_plugin.compat.validation_text import KEY
from vaswani.folders.run import Run
from vaswani.training.checkpoints import OWN
from vaswani.training.validation import Validation

DATA = Path("data/digits/data-bin")
CHECKPOINTS = Path("runs/small/checkpoints")
BEST, LAST = CHECKPOINTS / "checkpoint_best.pt", CHECKPOINTS / "checkpoint_last.pt"


def replace_validation_text() -> None:
    """Replace the validation set by the test set."""
    for path in DATA.glob("test.*"):
        shutil.copyfile(path, DATA / path.name.replace("test", "valid"))


def change(path: Path, **values: Any) -> None:
    """Change a checkpoint's top-level values; ``best`` is in its extra state."""
    state = load_checkpoint(path)
    if "best" in values:
        state["extra_state"]["best"] = values.pop("best")
    torch.save({**state, **values}, path)


def loss_now(path: Path) -> str:
    """Return a checkpoint's loss on the present validation text, as ``generate`` prints it."""
    validation = Validation(path, Run(CHECKPOINTS.parent))
    return f"{validation(load_checkpoint(path)['model']):.4f}"


@pytest.mark.parametrize("other", [False, True])
def test_the_best_checkpoint_is_chosen_anew_on_another_text(
    own_run: Path, cli: Any, other: bool
) -> None:
    """The old text was easy: no checkpoint reaches the best loss on it.

    BLEU was that of update 6, however long the run went on with the new text.
    """
    for path in (BEST, LAST):
        change(path, best=0.01)
    if other:
        replace_validation_text()
    ended = cli("train", "small", "optimization.max_update=8")
    assert ended.code == 0, ended.err
    assert ("the best checkpoint is chosen anew and the patience starts over" in ended.err) == other
    assert updates(BEST) == (8 if other else 6)
    assert f"using runs/small/checkpoints/{BEST.name} (" in cli("generate", "small").err
    again = cli("train", "small", "optimization.max_update=10")
    assert "counted anew" not in again.err, "the new text is that of the checkpoint now"


def test_fairseq_train_chooses_anew_too(tiny_data_bin: Path, tmp_path: Path) -> None:
    data = shutil.copytree(tiny_data_bin, tmp_path / "data")
    best, last = (tmp_path / "run" / f"checkpoint_{name}.pt" for name in ("best", "last"))
    task = ["--task", "vaswani_translation", "--no-epoch-checkpoints"]
    stock.train(data, tmp_path / "run", *task, "--max-update", "5")
    change(last, best=0.01)
    stock.train(data, tmp_path / "run", *task, "--max-update", "10")
    assert updates(best) == 5
    for path in data.glob("test.*"):
        shutil.copyfile(path, data / path.name.replace("test", "valid"))
    lines = stock.train(data, tmp_path / "run", *task, "--max-update", "15")
    assert any(
        "the best checkpoint is chosen anew and the patience starts over" in line for line in lines
    )
    assert updates(best) > 10


def test_fine_tuning_on_other_text_is_no_such_change(own_run: Path, cli: Any) -> None:
    """It takes the parameters alone, and has no best checkpoint yet."""
    replace_validation_text()
    start = f"checkpoint.finetune_from_model={LAST}"
    ended = cli("train", "small", "run=tuned", start, "optimization.max_update=2")
    assert ended.code == 0 and "counted anew" not in ended.err


@pytest.mark.parametrize("other", [False, True])
def test_patience_begins_anew_on_another_text(workplace: Path, cli: Any, other: bool) -> None:
    """Validated at 2, 4, 5, 6, 8, 10, 12: the sixth without improvement is at 12."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 9)
        with pytest.raises(Killed):
            cli("train", "small", *PATIENT)
    if other:
        replace_validation_text()
    assert cli("train", "small", *PATIENT).code == 0
    assert finished()["reason"] == "patience"
    assert (finished()["num_updates"] > 12) == other


def test_the_loss_of_an_average_is_computed_again_on_another_text(own_run: Path, cli: Any) -> None:
    """The stored one is used while the text is there, or while nobody knows of which it is."""
    assert cli("average", "small", "--last", 2).code == 0
    average = CHECKPOINTS / "checkpoint_average_last2.pt"
    assert load_checkpoint(average)[KEY]
    change(average, **{OWN: 0.5})
    assert f"using runs/small/checkpoints/{average.name} (lowest validation loss, 0.5000)" in (
        cli("generate", "small").err
    )
    replace_validation_text()
    line = next(x for x in cli("generate", "small").err.splitlines() if x.startswith("using"))
    used = Path(line.split()[1])
    assert f"lowest validation loss, {loss_now(used)})" in line
    losses = {path: loss_now(path) for path in (average, BEST, LAST)}
    assert losses[used] == min(losses.values())


def test_the_best_on_an_earlier_text_competes_with_the_last(own_run: Path, cli: Any) -> None:
    """Without an average, and before the training goes on."""
    better = load_checkpoint(LAST)["model"]
    change(BEST, model={name: 9 * value for name, value in better.items()})
    assert f"using runs/small/checkpoints/{BEST.name} (the run has no average)" in (
        cli("generate", "small").err
    )
    replace_validation_text()
    used = f"using runs/small/checkpoints/{LAST.name} (lowest validation loss, {loss_now(LAST)})"
    assert used in cli("generate", "small").err
