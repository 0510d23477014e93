"""What ``fairseq-train`` refuses with our task, and how its refusals and divergences end."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import forks, stock
from transformer_plugin.checkpoints import CheckpointError, load_checkpoint
from transformer_plugin.compat import commands, training_text
from transformer_plugin.compat.divergence import DivergedError, last_good_checkpoint
from transformer_plugin.config import ConfigError

OURS = ["--task", "vaswani_translation", "--no-epoch-checkpoints"]


@pytest.fixture
def other_data_bin(tiny_data_bin, tmp_path) -> Path:
    """Copy ``tiny_data_bin`` with another target text of the same lengths."""
    folder = tmp_path / "other-data-bin"
    shutil.copytree(tiny_data_bin, folder)
    path = folder / "train.en-de.de.bin"
    path.chmod(0o644)
    ids = bytearray(path.read_bytes())
    width = 2  # bytes of an id: fairseq's uint16
    assert ids[:width] != ids[width : 2 * width]
    ids[:width], ids[width : 2 * width] = ids[width : 2 * width], ids[:width]
    path.write_bytes(ids)
    return folder


@pytest.fixture
def begun(tiny_data_bin, tmp_path) -> Path:
    """Train for two updates, and return the folder."""
    folder = tmp_path / "run"
    stock.train(tiny_data_bin, folder, *OURS, "--max-update", "2")
    return folder


def updates(folder: Path) -> int:
    """Return the number of updates in the last checkpoint."""
    history = load_checkpoint(folder / "checkpoint_last.pt")["optimizer_history"]
    return int(history[-1]["num_updates"])


# --- another text ------------------------------------------------------------------------------


def test_another_text_of_the_same_lengths_is_refused(begun, other_data_bin) -> None:
    """Unless the training is to begin at epoch 1 of it; from then on it is the training's."""
    more = [*OURS, "--max-update", "4"]
    with pytest.raises(CheckpointError, match=r"train.en-de.de.bin differs.*--reset-dataloader"):
        stock.train(other_data_bin, begun, *more)
    assert updates(begun) == 2
    stock.train(other_data_bin, begun, *more, "--reset-dataloader")
    assert updates(begun) == 4
    stock.train(other_data_bin, begun, *OURS, "--max-update", "5")
    assert updates(begun) == 5


def test_a_reversed_language_pair_is_refused(begun, tiny_data_bin) -> None:
    """The dictionaries are one, and do not tell."""
    pair = ["-s", "de", "-t", "en"]
    for reset in ([], ["--reset-dataloader"]):
        with pytest.raises(
            CheckpointError, match="trained on en-de, and this training is of de-en"
        ):
            stock.train(tiny_data_bin, begun, *OURS, "--max-update", "4", *pair, *reset)
    assert updates(begun) == 2
    stock.train(tiny_data_bin, begun, *OURS, "--max-update", "1", *pair, "--reset-optimizer")


def test_data_may_move_and_older_checkpoints_have_no_text(begun, tiny_data_bin, tmp_path) -> None:
    shutil.move(shutil.copytree(tiny_data_bin, tmp_path / "copy"), tmp_path / "moved")
    stock.train(tmp_path / "moved", begun, *OURS, "--max-update", "3")
    assert updates(begun) == 3
    path = begun / "checkpoint_last.pt"
    state = load_checkpoint(path)
    assert set(state["task_state"][training_text.KEY]) == {
        *("source_lang", "target_lang"),
        *(f"train.en-de.{side}.{kind}" for side in ("en", "de") for kind in ("bin", "idx")),
    }
    del state["task_state"][training_text.KEY]
    torch.save(state, path)
    stock.train(tiny_data_bin, begun, *OURS, "--max-update", "4", "-s", "de", "-t", "en")
    assert updates(begun) == 4


def test_fairseqs_own_task_continues_with_what_it_is_given(begun, other_data_bin) -> None:
    stock.train(other_data_bin, begun, "--max-update", "4", "--no-epoch-checkpoints")
    assert updates(begun) == 4


# --- divergence --------------------------------------------------------------------------------


def test_a_divergence_names_the_update_and_the_last_good_checkpoint(
    tiny_data_bin, tmp_path
) -> None:
    """The checkpoint of update 3 was saved with NaN in it, and is not good."""
    folder = tmp_path / "run"
    options = [*OURS, "--save-interval-updates", "1"]
    stock.train(tiny_data_bin, folder, *options, "--max-update", "2")
    diverging = ["--lr-factor", "1e35", "--max-update", "9"]
    with pytest.raises(DivergedError) as ended:
        stock.train(tiny_data_bin, folder, *options, *diverging)
    found = str(ended.value)
    assert "the training diverged at update 4: gradients are Nan/Inf" in found
    assert f"last good checkpoint: {folder / 'checkpoint_best.pt'}" in found
    assert "--lr-factor" in found
    assert (folder / "checkpoint_1_3.pt").exists()


def saved(folder: Path, template: Path, name: str, count: int, **changes: Any) -> None:
    """Write a checkpoint of so many updates, with another validation loss or parameter."""
    state = load_checkpoint(template)
    state["optimizer_history"][-1]["num_updates"] = count
    if "val_loss" in changes:
        state["extra_state"]["val_loss"] = changes["val_loss"]
    if "weight" in changes:
        key = next(key for key in state["model"] if key.endswith("fc1.weight"))
        state["model"][key][0, 0] = changes["weight"]
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / name)


def test_a_good_checkpoint_has_a_finite_validation_loss(begun, tmp_path) -> None:
    """Or, saved without a validation, finite parameters; damaged ones are passed over."""
    template, folder = begun / "checkpoint_last.pt", tmp_path / "checkpoints"
    assert last_good_checkpoint(folder) is None
    saved(folder, template, "checkpoint_1_7.pt", 7, val_loss=float("nan"))
    saved(folder, template, "checkpoint_1_6.pt", 6, val_loss=float("inf"))
    saved(folder, template, "checkpoint_1_5.pt", 5, val_loss=None, weight=float("nan"))
    assert last_good_checkpoint(folder) is None
    saved(folder, template, "checkpoint_1_3.pt", 3, val_loss=2.5)
    assert last_good_checkpoint(folder) == folder / "checkpoint_1_3.pt"
    saved(folder, template, "checkpoint_1_4.pt", 4, val_loss=None)
    (folder / "checkpoint_1_8.pt").write_bytes(b"damaged")
    assert last_good_checkpoint(folder) == folder / "checkpoint_1_4.pt"


# --- processes ---------------------------------------------------------------------------------


def test_processes_that_would_train_apart_are_refused(tiny_data_bin, tmp_path, monkeypatch) -> None:
    """``torchrun fairseq-train`` without ``--distributed-world-size``."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="2 processes.*--distributed-world-size 2"):
        stock.train(tiny_data_bin, tmp_path / "run", *OURS, "--max-update", "1")
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    stock.train(tiny_data_bin, tmp_path / "run", *OURS, "--max-update", "1")


# --- how a refusal is printed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/venv/bin/fairseq-train", "fairseq-train"),
        ("/venv/lib/fairseq_cli/generate.py", "fairseq-generate"),
        ("/venv/bin/pytest", ""),
        ("train.py", ""),
        ("-c", ""),
        ("", ""),
    ],
)
def test_only_fairseqs_commands_are_known_as_such(program, name, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert commands.command_name() == name


def test_a_program_that_imports_the_task_keeps_its_exception_hook(tiny_data_bin, tmp_path) -> None:
    before = sys.excepthook
    stock.train(tiny_data_bin, tmp_path / "run", *OURS, "--max-update", "1")
    assert sys.excepthook is before


@pytest.mark.parametrize("with_traceback", [False, True])
def test_a_refusal_is_one_sentence(with_traceback, tiny_data_bin, tmp_path) -> None:
    """After fairseq's log; the traceback, if the environment asks for it."""
    program = forks.BIN / "fairseq-train"
    command = [str(program), str(tiny_data_bin), *stock.ON_CPU, *OURS, *stock.OURS]
    command += [*stock.SMALL, "--max-tokens", "500", "--save-dir", str(tmp_path / "run")]
    environment = {**os.environ, commands.TRACEBACK: "1" if with_traceback else ""}
    done = forks.run([*command, "--dropout", "1.5"], tmp_path, environment)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith("--dropout must be below 1, not 1.5")
    assert ("Traceback" in done.stderr) == with_traceback
    assert last.startswith("fairseq-train: ") != with_traceback


def test_fairseq_train_refuses_to_validate_on_its_training_text(tiny_data_bin, tmp_path):
    with pytest.raises(ConfigError, match="--train-subset valid"):
        stock.train(tiny_data_bin, tmp_path / "run", *OURS, "--train-subset", "valid")
    assert not list(tmp_path.rglob("*.pt"))
