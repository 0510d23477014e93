"""Threads and processes that work on the same thing at a time."""

import json
from pathlib import Path

import pytest
import torch


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
