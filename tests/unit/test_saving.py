"""Writing a checkpoint: what was good stays good, whatever stops it."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from transformer_plugin.checkpoints import load_checkpoint
from transformer_plugin.compat import saving

TENSOR_BYTES = 4 * 4096
STATE = {"model": {str(n): torch.full((4096,), float(n)) for n in range(8)}}


class Stream:
    """A file in which something happens to the first tensor, at the first so many openings."""

    def __init__(self, path: str, mode: str, happens, times: list) -> None:
        self.stream = open(path, mode)  # noqa: SIM115
        self.happens, self.times = happens, times

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
    """As of a network file system."""
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def save(tmp_path, monkeypatch):
    """``save(happens, times)`` onto an older file; returns its path."""
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


def test_a_checkpoint_replaces_the_older_one(save, tmp_path):
    assert is_good(save(None, 0))
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_a_users_file_beside_it_is_not_touched(save, tmp_path):
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


@pytest.mark.parametrize(("happens", "times"), [(full_disk, 1), (passing, saving.TRIES)])
def test_what_cannot_be_written_leaves_the_older_file(save, tmp_path, happens, times):
    """A full disk is not waited for."""
    with pytest.raises(OSError, match="No space left|Input/output") as stopped:
        save(happens, times)
    assert stopped.value.filename == str(save.path)
    assert save.path.read_bytes() == b"what was good"
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


# --- best and last are links -------------------------------------------------------------------


def saved(folder: Path, updates: int, name: str = "vaswani_transformer", **more: bool) -> str:
    """A checkpoint after so many updates, written as fairseq does; its path."""
    state = {"model": {}, "cfg": {"model": {"_name": name}}}
    state["optimizer_history"] = [{"num_updates": updates}]
    path = str(folder / f"checkpoint_1_{updates}.pt")
    checkpoint_utils.torch_persistent_save(state, path, **more)
    return path


def copied(path: str, name: str) -> str:
    other = os.path.join(os.path.dirname(path), name)
    assert PathManager.copy(path, other, overwrite=True)
    return other


def updates(path: str) -> int:
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


def test_best_and_last_are_links_through_which_nothing_is_written(tmp_path):
    first = saved(tmp_path, 1)
    best, last = (copied(first, f"checkpoint_{name}.pt") for name in ("best", "last"))
    assert os.path.samefile(first, best) and os.path.samefile(first, last)
    copied(first, "checkpoint_last.pt")  # one of its names replaces another
    second = saved(tmp_path, 2)
    copied(second, "checkpoint_last.pt")
    assert os.path.samefile(second, last)
    saved(tmp_path, 2)  # again
    os.remove(first)  # as --keep-interval-updates does
    assert [updates(path) for path in (best, second, last)] == [1, 2, 2]
    names = ["checkpoint_1_2.pt", "checkpoint_best.pt", "checkpoint_last.pt"]
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.parametrize("way", ["save", "copy"])
def test_a_link_left_by_a_kill_is_not_written_into(way, tmp_path, monkeypatch):
    first = saved(tmp_path, 1)
    os.link(first, tmp_path / ".checkpoint_last.pt.part")
    os.link(first, tmp_path / ".checkpoint_1_2.pt.part")
    monkeypatch.setattr(os, "link", no_links)
    second = saved(tmp_path, 2)
    if way == "copy":
        copied(second, "checkpoint_last.pt")
    assert (updates(first), updates(second)) == (1, 2)


def no_links(*paths: str) -> None:
    """As on a FAT or some network file systems."""
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("why", ["another's model", "no links"])
def test_without_links_it_is_a_copy(why, tmp_path, monkeypatch):
    """fairseq without this plugin writes into the files of its own models."""
    if why == "no links":
        monkeypatch.setattr(os, "link", no_links)
    first = saved(tmp_path, 1, "vaswani_transformer" if why == "no links" else "transformer")
    last = copied(first, "checkpoint_last.pt")
    assert updates(last) == 1 and not os.path.samefile(first, last)


def test_an_asynchronous_save_does_not_write_into_a_link(tmp_path):
    """fairseq opens the file itself then; where iopath is not installed, it fails."""
    first = saved(tmp_path, 1)
    best = copied(first, "checkpoint_best.pt")
    with contextlib.suppress(AttributeError):
        saved(tmp_path, 1, async_write=True)
    assert updates(best) == 1 and not os.path.samefile(first, best)
