"""On busy cores OpenMP's threads wait briefly, if the user has not chosen otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest

from vaswani.experiment import busy_cores

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_torch(monkeypatch):
    """As before torch is imported, which these tests' process has."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.parametrize(
    ("given", "idle", "done"),
    [
        ({}, 0.0, True),
        ({}, 0.4, True),
        ({}, 1.0, False),
        ({}, None, False),
        ({"OMP_NUM_THREADS": "2"}, 0.0, True),
        ({"OMP_NUM_THREADS": "1"}, 0.0, False),
        ({"GOMP_SPINCOUNT": "5"}, 0.0, False),
        ({"OMP_WAIT_POLICY": "active"}, 0.0, False),
        ({"KMP_BLOCKTIME": "0"}, 0.0, False),
    ],
)
def test_only_on_busy_cores_and_never_over_the_users_choice(
    no_torch, monkeypatch, given, idle, done
):
    monkeypatch.setattr(busy_cores, "cores", lambda: 2)
    environ = dict(given)
    assert bool(busy_cores.wait_briefly(environ, lambda: idle)) == done
    assert environ == {**given, **({"GOMP_SPINCOUNT": "1000"} if done else {})}


def test_where_torch_is_loaded_it_is_too_late(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", object())
    environ: dict = {}
    assert busy_cores.wait_briefly(environ, lambda: 0.0) == "" and environ == {}


def test_idle_cores_are_those_of_this_process(tmp_path, monkeypatch):
    """Of 20 ticks each, core 1 idled for 5, one of them waiting for a disk, and core 3 for 20."""
    stat = tmp_path / "stat"
    busy = "cpu{} {} 0 0 {} {} 0 0 0 0 0\n"
    stat.write_text(busy.format(0, 9, 9, 9) + busy.format(1, 100, 50, 0) + busy.format(3, 7, 0, 0))

    def later(seconds):
        stat.write_text(
            busy.format(0, 99, 9, 9) + busy.format(1, 115, 54, 1) + busy.format(3, 7, 20, 0)
        )

    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1, 3})
    monkeypatch.setattr(busy_cores.time, "sleep", later)
    assert busy_cores.idle_cores(stat) == pytest.approx(1.25)
    monkeypatch.setattr(busy_cores.time, "sleep", lambda seconds: None)
    assert busy_cores.idle_cores(stat) is None, "no time has passed"
    assert busy_cores.idle_cores(tmp_path / "none") is None


BEFORE_TORCH = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), "gomp" in open("/proc/self/maps").read())
            sys.exit()
sys.meta_path.insert(0, Finder())
from vaswani.experiment import busy_cores
busy_cores.idle_cores = lambda: 0.0
from vaswani.cli import main
main(["train", "demo_en_de"])
"""


def test_train_sets_it_before_openmp_is_loaded(monkeypatch):
    """libgomp reads it then; nothing loads it before torch."""
    for name in (*busy_cores.CHOSEN, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_TORCH], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "1000 False\n", done.stderr
