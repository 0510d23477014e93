"""Threads and processes that work on the same thing at a time."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def losses(run: str) -> list:
    lines = [json.loads(line) for line in Path("runs", run, "train.jsonl").read_text().splitlines()]
    return [line["valid_nll_loss"] for line in lines if "valid_nll_loss" in line]


def test_training_with_two_threads_learns_the_same(cli, workplace):
    """Sums differ in their last digits, so weights do more, but the losses hardly."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        changes = ["optimization.max_update=2", f"run=runs/threads{threads}"]
        assert cli("train", "small", *changes).code == 0
    assert losses("threads2") == pytest.approx(losses("threads1"), rel=1e-4)


def test_two_generate_at_once_leave_one_whole_result(own_run, cli):
    """One waits, or is refused; neither mixes its lines with the other's."""
    assert cli("generate", "small", "--workers", 1).code == 0
    alone = {path.name: path.read_bytes() for path in (own_run / "eval").glob("test.hyp*")}
    shutil.rmtree(own_run / "eval")
    command = [sys.executable, "-m", "vaswani", "generate", "small", "--workers", "1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) in ([0, 0], [0, 1]), said
    together = {path.name: path.read_bytes() for path in (own_run / "eval").glob("test.hyp*")}
    assert together == alone and len(alone) == 2
