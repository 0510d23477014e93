"""Writing a checkpoint: what was good stays good, whatever stops it."""

import errno
import os
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from transformer_plugin.compat import saving
from transformer_plugin.compat.replacing import protect

TENSOR_BYTES = 4 * 4096
STATE = {"model": {str(n): torch.full((4096,), float(n)) for n in range(8)}}


class Stream:
    """A file in which something happens to the first tensor, at the first so many openings."""

    def __init__(self, path: str, mode: str, happens, times: list) -> None:
        self.stream = open(path, mode)  # noqa: SIM115
        self.happens = happens
        self.times = times

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.stream.close()

    def write(self, data) -> int:
        if len(data) >= TENSOR_BYTES and self.times:
            self.times.pop()
            self.times = []  # of this opening
            data = self.happens(bytes(data))
        return self.stream.write(data)

    def __getattr__(self, name):
        return getattr(self.stream, name)


def interrupt(data: bytes) -> bytes:
    raise KeyboardInterrupt


def full_disk(data: bytes) -> bytes:
    raise OSError(errno.ENOSPC, "No space left on device")


def passing(data: bytes) -> bytes:
    """Raise the error of a network file system."""
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Return ``save(happens, times)``, which writes onto an older file and returns its path."""
    protect()
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"what was good")
    monkeypatch.setattr(saving, "PAUSE", 0)

    def run(happens, times: int) -> Path:
        left = [True] * times
        opened = lambda name, mode: Stream(name, mode, happens, left)  # noqa: E731
        monkeypatch.setattr(saving, "open", opened, raising=False)
        checkpoint_utils.torch_persistent_save(STATE, str(path))
        return path

    run.path = path
    return run


def is_good(path: Path) -> bool:
    found = torch.load(path, weights_only=True)["model"]
    return all(torch.equal(found[name], tensor) for name, tensor in STATE["model"].items())


def test_a_checkpoint_replaces_the_older_one_and_no_other_file(save, tmp_path):
    """fairseq's own name for what is half written is ``checkpoint_last.pt.tmp``."""
    (tmp_path / "checkpoint_last.pt.tmp").write_bytes(b"somebody's")
    assert is_good(save(None, 0))
    assert (tmp_path / "checkpoint_last.pt.tmp").read_bytes() == b"somebody's"


def test_an_interrupt_stays_one_and_leaves_the_older_file(save, tmp_path):
    """torch makes a RuntimeError of it, and fairseq then writes on into the same stream."""
    with pytest.raises(KeyboardInterrupt):
        save(interrupt, 1)
    assert save.path.read_bytes() == b"what was good"
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_an_error_that_passes_costs_nothing(save, tmp_path):
    assert is_good(save(passing, 2))
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


@pytest.mark.parametrize("happens", [full_disk, passing])
def test_a_failed_write_leaves_the_older_file(save, tmp_path, happens):
    with pytest.raises(OSError, match="No space left|Input/output") as stopped:
        save(happens, saving.TRIES)
    assert stopped.value.filename == str(save.path)
    assert save.path.read_bytes() == b"what was good"
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_best_and_last_are_links_through_which_nothing_is_written(tmp_path):
    protect()

    def save(updates: int) -> Path:
        path = tmp_path / f"checkpoint_1_{updates}.pt"
        checkpoint_utils.torch_persistent_save({"updates": updates}, str(path))
        PathManager.copy(str(path), str(tmp_path / "checkpoint_last.pt"), overwrite=True)
        return path

    first = save(1)
    os.link(first, tmp_path / ".checkpoint_last.pt.part")  # left by a kill
    second = save(2)
    save(2)  # again
    assert os.path.samefile(second, tmp_path / "checkpoint_last.pt")
    assert [torch.load(path)["updates"] for path in (first, second)] == [1, 2]
    assert len(os.listdir(tmp_path)) == 3
