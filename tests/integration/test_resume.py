"""A run that was stopped and goes on ends as the unbroken one, to the last bit on one CPU.

``--update-epoch-batch-itr True``: else modern fairseq gives a resumed run other batches.
"""

import json
import sys
from pathlib import Path
from typing import Dict, List

import pytest
import torch

from tests import stock
from tests.processes import killed_in_epoch_two
from transformer_plugin.checkpoints import load_checkpoint

# 200 pairs, 40 a batch: 5 updates an epoch, so that update 12 lies in the middle of epoch 3
FLAGS = ["--max-tokens", "100000", "--batch-size", "40", "--update-epoch-batch-itr", "True"]
FLAGS += ["--dropout", "0.3", "--log-format", "json", "--log-interval", "1"]
STOP, END = 12, 17


def paper_rate(step: int, d_model: int = 32, warmup: int = 50) -> float:
    """Equation 3 at the sizes of ``stock.SMALL`` and the warm-up of ``stock.train``."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def logged_rates(lines: List[str]) -> Dict[int, float]:
    """Number of finished updates → the rate that was set after them."""
    entries = [json.loads(line) for line in lines if line.startswith("{") and '"ups"' in line]
    return {int(e["num_updates"]): float(e["lr"]) for e in entries if "lr" in e}


def optimizer_state(path: Path) -> List[torch.Tensor]:
    """Adam's moments, in the order of the parameters."""
    state = load_checkpoint(path)["last_optimizer_state"]["state"]
    return [state[n][moment] for n in sorted(state) for moment in ("exp_avg", "exp_avg_sq")]


@pytest.fixture(scope="module")
def unbroken(tiny_data_bin, tmp_path_factory) -> Path:
    """A run of ``END`` updates in one go."""
    folder = tmp_path_factory.mktemp("unbroken")
    stock.train(tiny_data_bin, folder, *FLAGS, "--max-update", str(END))
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def broken(tiny_data_bin, tmp_path_factory) -> Path:
    """The folder of a run that was stopped in the middle of epoch 3."""
    folder = tmp_path_factory.mktemp("broken")
    stock.train(tiny_data_bin, folder, *FLAGS, "--max-update", str(STOP))
    state = load_checkpoint(folder / "checkpoint_last.pt")["extra_state"]["train_iterator"]
    assert (state["epoch"], state["iterations_in_epoch"]) == (3, 2)
    return folder


@pytest.fixture(scope="module")
def resumed(tiny_data_bin, broken) -> List[str]:
    """What the run logs that goes on to ``END``."""
    return stock.train(tiny_data_bin, broken, *FLAGS, "--max-update", str(END))


def test_parameters_are_those_of_the_unbroken_run(resumed, broken, unbroken):
    """And the moments of Adam."""
    last = broken / "checkpoint_last.pt"
    difference, name = stock.largest_difference(last, unbroken)
    assert difference == 0, name
    pairs = zip(optimizer_state(last), optimizer_state(unbroken), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_schedule_goes_on_where_it_stopped(resumed):
    """After u updates the rate of update u + 1 is set: the paper's n, which counts from 1."""
    rates = logged_rates(resumed)
    assert sorted(rates) == list(range(STOP + 1, END + 1))
    for updates, rate in rates.items():
        assert rate == pytest.approx(paper_rate(updates + 1), rel=1e-5)  # logged to 6 digits


def test_a_changed_schedule_is_said(tiny_data_bin, broken, resumed, tmp_path):
    """Options given now win, as ever in fairseq, but with our task not in silence."""
    options = ["--task", "vaswani_translation"]
    options += ["--restore-file", str(broken / "checkpoint_last.pt"), "--warmup-updates", "7"]
    lines = stock.train(tiny_data_bin, tmp_path, *FLAGS, *options, "--max-update", str(END + 1))
    assert any("lr_scheduler.warmup_updates was 50, is 7" in line for line in lines)
    rates = logged_rates(lines)
    assert rates[END + 1] == pytest.approx(paper_rate(END + 2, warmup=7), rel=1e-5)


@pytest.mark.slow
def test_a_killed_training_goes_on_as_the_unbroken_one(tiny_data_bin, tmp_path):
    """SIGKILL, as from a full machine, while the run saves every 3 updates in epoch ≥ 2."""
    killed = tmp_path / "killed"
    command = [sys.executable, str(Path(sys.executable).parent / "fairseq-train")]
    command += [str(tiny_data_bin), *stock.ON_CPU, *stock.OURS, *stock.SMALL, *FLAGS]
    command += ["--save-dir", str(killed), "--warmup-updates", "50", "--max-update", "100000"]
    command += ["--save-interval-updates", "3"]
    reached = killed_in_epoch_two(command, tmp_path, killed)
    end = ["--max-update", str(reached + 6)]
    stock.train(tiny_data_bin, killed, *FLAGS, *end, "--save-interval-updates", "3")
    stock.train(tiny_data_bin, tmp_path / "unbroken", *FLAGS, *end)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("killed", "unbroken")]
    difference, name = stock.largest_difference(*paths)
    assert difference == 0, name
