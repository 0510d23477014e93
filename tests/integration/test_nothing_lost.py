"""A training that is interrupted, repeated or continued wrongly costs nothing that was saved, and
one that was stopped ends as the unbroken one: fairseq-train with our task, in this process.

``--update-epoch-batch-itr True``: else modern fairseq gives a resumed run other batches.
"""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.processes import killed_in_epoch_two
from transformer_plugin.checkpoints import CheckpointError, load_checkpoint

OURS = ["--task", "vaswani_translation"]
# 5 updates an epoch: update 7 lies in the middle of the second
EVERY_3 = [
    *OURS,
    "--batch-size",
    "40",
    "--max-tokens",
    "100000",
    "--update-epoch-batch-itr",
    "True",
]
EVERY_3 += ["--dropout", "0.3", "--log-format", "json", "--log-interval", "1"]
EVERY_3 += ["--save-interval-updates", "3", "--no-epoch-checkpoints"]


def updates(path: Path) -> int:
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.pt"))}


def assert_same_bits(one: Path, other: Path) -> None:
    """Assert that parameters and Adam's moments are equal to the last bit."""
    states = [load_checkpoint(path) for path in (one, other)]
    for part in ("model", "last_optimizer_state"):
        torch.testing.assert_close(states[0][part], states[1][part], rtol=0, atol=0)


@pytest.fixture(scope="module")
def seven_updates(tiny_data_bin, tmp_path_factory) -> Path:
    """Save checkpoints of updates 3, 6 and (best, last) 7."""
    folder = tmp_path_factory.mktemp("seven")
    stock.train(tiny_data_bin, folder, *EVERY_3, "--max-update", "7")
    return folder


@pytest.fixture
def begun(seven_updates, tmp_path) -> Path:
    """Copy the checkpoints for one test."""
    return Path(shutil.copytree(seven_updates, tmp_path / "begun"))


# --- where a training goes on from -------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_training_ends_as_the_unbroken_one(tiny_data_bin, tmp_path):
    """SIGKILL, as from a full machine."""
    killed = tmp_path / "killed"
    command = [sys.executable, str(Path(sys.executable).parent / "fairseq-train")]
    command += [str(tiny_data_bin), *stock.ON_CPU, *stock.OURS, *stock.SMALL, *EVERY_3]
    command += ["--save-dir", str(killed), "--warmup-updates", "50", "--max-update", "100000"]
    end = ["--max-update", str(killed_in_epoch_two(command, tmp_path, killed) + 6)]
    stock.train(tiny_data_bin, killed, *EVERY_3, *end)
    stock.train(tiny_data_bin, tmp_path / "unbroken", *EVERY_3, *end)
    assert_same_bits(killed / "checkpoint_last.pt", tmp_path / "unbroken" / "checkpoint_last.pt")


@pytest.mark.parametrize(
    ("missing", "damaged", "taken"),
    [(["last"], ["best", "2_6"], "checkpoint_1_3.pt"), (["best"], ["last"], "checkpoint_2_6.pt")],
)
def test_without_the_last_checkpoint_it_goes_on_from_the_newest(
    begun, tiny_data_bin, missing, damaged, taken
):
    for name in missing:
        (begun / f"checkpoint_{name}.pt").unlink()
    for name in damaged:
        path = begun / f"checkpoint_{name}.pt"
        path.write_bytes(path.read_bytes()[:-100])
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, "--max-update", "8")
    assert any(f"continuing from {taken}" in line for line in lines)
    assert updates(begun / "checkpoint_last.pt") == 8


@pytest.mark.parametrize("damage", ["a zeroed block", "a flipped bit"])
def test_a_last_checkpoint_damaged_inside_a_tensor_is_passed_over(begun, tiny_data_bin, damage):
    """What is no tensor can be read; checksums tell, once all of it is loaded."""
    path = begun / "checkpoint_last.pt"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
    largest = max(tensors, key=lambda entry: entry.file_size)
    place = largest.header_offset + 200  # after its name and its padding to 64 bytes
    if damage == "a flipped bit":
        content[place] ^= 1
    else:
        content[place : place + 64] = bytes(64)
    path.write_bytes(content)
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, "--max-update", "8")
    assert any("continuing from checkpoint_best.pt (7 updates)" in line for line in lines)
    assert updates(path) == 8


def test_if_none_can_be_read_nothing_is_trained_over_them(begun, tiny_data_bin):
    (begun / "checkpoint_last.pt").unlink()
    for path in begun.glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-100])
    before = contents(begun)
    with pytest.raises(CheckpointError, match="damaged"):
        stock.train(tiny_data_bin, begun, *EVERY_3, "--max-update", "8")
    assert contents(begun) == before


def test_a_restore_file_that_does_not_exist_is_refused(tiny_data_bin, tmp_path):
    """fairseq starts over, in silence."""
    with pytest.raises(CheckpointError, match="gone.pt"):
        stock.train(tiny_data_bin, tmp_path, *EVERY_3, "--restore-file", str(tmp_path / "gone.pt"))
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.parametrize("limit", ["--max-update 7", "--max-update 100 --stop-time-hours 1e-9"])
def test_a_training_that_is_done_is_not_trained_further(begun, tiny_data_bin, limit):
    """All versions train one update more, and replace the last and the best checkpoint."""
    before = contents(begun)
    stock.train(tiny_data_bin, begun, *EVERY_3, *limit.split())
    assert contents(begun) == before


# --- with what it goes on ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_words(tiny_data_bin, tmp_path_factory) -> Path:
    """Copy the data with a dictionary of the same size, its words in another order."""
    folder = Path(shutil.copytree(tiny_data_bin, tmp_path_factory.mktemp("other") / "data-bin"))
    for path in folder.glob("dict.*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join([*lines[1:], lines[0]]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("flag", ["--save-dir", "--restore-file"])
def test_training_with_other_words_is_refused(begun, other_words, tmp_path, flag):
    path = str(begun if flag == "--save-dir" else begun / "checkpoint_last.pt")
    before = contents(begun)
    with pytest.raises(CheckpointError, match="another source dictionary"):
        stock.train(other_words, tmp_path / "new", *EVERY_3, flag, path, "--max-update", "9")
    assert contents(begun) == before


@pytest.mark.parametrize("flags", ["--finetune-from-model", "--reset-optimizer --restore-file"])
def test_another_training_may_begin_with_other_words(begun, other_words, tmp_path, flags):
    """The optimizer is reset on purpose: a warning."""
    options = [*flags.split(), str(begun / "checkpoint_last.pt"), "--reset-dataloader"]
    options = options[: 2 if "finetune" in flags else None]
    lines = stock.train(other_words, tmp_path / "new", *EVERY_3, *options, "--max-update", "2")
    assert any("another source dictionary" in line for line in lines)
    lines = stock.train(other_words, tmp_path / "new", *EVERY_3, "--max-update", "3")
    assert not any("another source dictionary" in line for line in lines)


def test_translating_with_other_words_is_refused(begun, other_words):
    with pytest.raises(CheckpointError, match="another source dictionary"):
        stock.generate(other_words, begun / "checkpoint_last.pt", *OURS)


def test_options_that_changed_are_said(begun, tiny_data_bin):
    changed = ["--label-smoothing", "0.2", "--dropout", "0.5", "--seed", "3"]
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, *changed, "--max-update", "8")
    message = next(line for line in lines if "continuing with changed options" in line)
    for name in ("criterion.label_smoothing", "model.dropout", "common.seed"):
        assert f"{name} was " in message
    assert message.count(" was ") == 3
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, *changed, "--max-update", "9")
    assert not any("other options" in line for line in lines)
