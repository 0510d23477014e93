"""A lock is one process's, is free once that is killed, and why it is not the package filelock's.

The last two tests show in what filelock differs: if one fails, it has changed, and ours can go.
"""

import errno
import fcntl
import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests import own_text
from vaswani.common.errors import UserError
from vaswani.common.files import locked

ROOT = Path(__file__).resolve().parents[2]

HOLD = """
import sys, time
from pathlib import Path
from vaswani.common.files import locked
with locked(Path(sys.argv[1]), "it is used"):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    """Start another process that holds the lock; to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_one_processs_until_it_is_killed(tmp_path):
    path = tmp_path / "new" / "lock"
    process = holder(path)
    try:
        with (
            pytest.raises(UserError, match=f"it is used by .*process {process.pid} on"),
            locked(path, "it is used"),
        ):
            raise AssertionError("two at once")
    finally:
        process.kill()
        process.wait()
    with locked(path, "it is used"):
        assert f"process {os.getpid()} on" in path.read_text(), "the kernel let go"


FORK = """
import os, sys, time
from pathlib import Path
from vaswani.common.files import locked
with locked(Path(sys.argv[1]), "it is used"):
    worker = os.fork()
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


def test_a_worker_that_outlives_its_killed_parent_keeps_no_lock(tmp_path):
    """Else the same command could not continue at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path / "lock")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        os.kill(worker, 0)  # it is there
        with locked(tmp_path / "lock", "it is used"):
            pass
    finally:
        os.kill(worker, 9)


def test_a_lock_that_is_a_link_does_not_empty_a_file(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="lock"), locked(tmp_path / "lock", "it is being made"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_lock_on_a_full_disk_names_its_file(tmp_path):
    with (
        own_text.small_files(0),
        pytest.raises(OSError, match="lock"),
        locked(tmp_path / "lock", "it is"),
    ):
        pass


def test_a_lock_that_was_taken_this_moment_names_nobody_yet(tmp_path, monkeypatch):
    """Its holder has not written its number into the file."""
    monkeypatch.setattr("fcntl.lockf", MagicMock(side_effect=BlockingIOError))
    (tmp_path / "lock").touch()
    refused = pytest.raises(UserError, match=r"another command \(which has just begun\): wait")
    with refused, locked(tmp_path / "lock", "it is used"):
        pass


# ---- network file systems ------------------------------------------------------------------------


def removed_by_its_holder(monkeypatch, name: str, path: Path) -> None:
    """Have the file removed after it is opened and before it is locked, as NFS removes an open one.

    That gives it another name, and so a link is left.
    """
    lock = getattr(fcntl, name)
    removed = []

    def lock_later(handle, operation):
        if not removed:
            removed.append(path)
            path.rename(path.with_name(".nfs0001"))
        return lock(handle, operation)

    monkeypatch.setattr(fcntl, name, lock_later)


def test_a_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    removed_by_its_holder(monkeypatch, "lockf", path)
    with locked(path, "it is used"):
        assert f"process {os.getpid()} on" in path.read_text(), "the next command finds it there"


def without_locks(handle, operation):
    """Raise the error of a file system without locks."""
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_where_the_file_system_has_no_locks_a_command_runs_without(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "lockf", without_locks)
    with locked(tmp_path / "lock", "it is used"), locked(tmp_path / "lock", "it is used"):
        pass


def test_filelock_takes_a_file_that_nfs_removed_for_the_lock(tmp_path, monkeypatch):
    """So the next command gets the lock, too: two at once."""
    filelock = pytest.importorskip("filelock")
    path = tmp_path / "lock"
    removed_by_its_holder(monkeypatch, "flock", path)
    with filelock.FileLock(path, timeout=0):
        assert not path.exists()


def test_filelock_leaves_a_lock_of_its_own_where_the_file_system_has_none(tmp_path, monkeypatch):
    """Which a killed process does not remove, and so the same command would never continue."""
    filelock = pytest.importorskip("filelock")
    monkeypatch.setattr(fcntl, "flock", without_locks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lock = filelock.FileLock(tmp_path / "lock", timeout=0)
        lock.acquire()
    try:
        assert isinstance(lock, filelock.SoftFileLock)
    finally:
        lock.release()
