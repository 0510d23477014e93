"""Several processes through fairseq's trainer, on CPUs over gloo: the same losses as one process.

Every process imports torch and fairseq anew, so the default tests start as few as will do.
Losses are read from checkpoints, one of each update: the logs round them to 3 digits.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import pytest
import yaml

from tests import stock
from tests.integration.test_vaswani import SIZES
from transformer_plugin.checkpoints import load_checkpoint
from vaswani import cli

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 100  # seconds for any command; then its processes are killed
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TWO = [*TORCHRUN, "--standalone", "--local-addr", "127.0.0.1", "--nproc_per_node", "2"]
VASWANI = ["-m", "vaswani.cli", "train", "small"]


@pytest.fixture(scope="module")
def workplace(tiny_data_bin, tmp_path_factory) -> Path:
    """An experiment ``small``: dropout 0, the loss falls within an epoch, every update is kept."""
    folder = tmp_path_factory.mktemp("distributed")
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = str(tiny_data_bin)
    table["model"] = {"_name": "vaswani_transformer_tiny", **SIZES, "dropout": 0.0}
    table["lr_scheduler"].update(warmup_updates=8, lr_factor=0.3)
    table["dataset"]["max_tokens"] = 150
    table["optimization"]["max_update"] = 16
    table["checkpoint"] = {"save_interval_updates": 1}
    (folder / "configs").mkdir()
    (folder / "configs" / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    return folder


def begin(command: List[str], folder: Path, **environ: str) -> "subprocess.Popen[str]":
    """Start a command."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children(pid: int) -> List[int]:
    """Processes below one; torchrun's are no members of its process group."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *children(child)]
    return found


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the command and to all it started."""
    for pid in [process.pid, *children(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def finish(*processes: "subprocess.Popen[str]") -> List[str]:
    """What commands printed that run beside each other; whatever hangs is killed, and fails."""
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=PATIENCE)[0])
    finally:
        for process in processes:
            if process.poll() is None:
                kill(process)
    return said


def to_the_end(command: List[str], folder: Path) -> str:
    """Run a command that must succeed; what it printed."""
    process = begin(command, folder)
    said = finish(process)[0]
    assert process.returncode == 0, said
    return said


def killed_in_epoch_two(command: List[str], folder: Path, checkpoints: Path) -> int:
    """Run until a checkpoint of epoch 2, then SIGKILL; returns the updates that were saved."""
    process = begin(command, folder)
    until = time.monotonic() + PATIENCE
    try:
        while not list(checkpoints.glob("checkpoint_2_*.pt")):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
    finally:
        kill(process)
    state = load_checkpoint(checkpoints / "checkpoint_last.pt")
    assert state["extra_state"]["train_iterator"]["epoch"] >= 2
    return state["optimizer_history"][-1]["num_updates"]


def losses(checkpoints: Path) -> Dict[int, float]:
    """Update → its loss, unrounded, from the meters that fairseq saves."""
    found = {}
    for path in checkpoints.glob("checkpoint*_*.pt"):
        if path.stem.split("_")[-1].isdecimal():
            state = load_checkpoint(path)
            meters = {name: kept for _, name, _, kept in state["extra_state"]["metrics"]["train"]}
            found[state["optimizer_history"][-1]["num_updates"]] = float(meters["loss"]["val"])
    return found


def in_this_process(workplace: Path, *overrides: str) -> int:
    """One process of ``vaswani train``."""
    with pytest.MonkeyPatch.context() as patch, stock.fresh_process():
        patch.chdir(workplace)
        return cli.main(["train", "small", *overrides])


@pytest.fixture(scope="module")
def end(workplace) -> int:
    """Two processes under torchrun, killed in epoch 2 or later, then continued to this update."""
    command = [*TWO, *VASWANI, "run=two"]
    checkpoints = workplace / "runs" / "two" / "checkpoints"
    unreached = "optimization.max_update=100000"
    reached = killed_in_epoch_two([*command, unreached], workplace, checkpoints)
    said = to_the_end([*command, f"optimization.max_update={reached + 6}"], workplace)
    assert f"continuing at update {reached:,}" in said
    return reached + 6


@pytest.fixture(scope="module")
def one(workplace, end) -> Path:
    """One process that takes two batches an update, unbroken; its checkpoints."""
    updates = f"optimization.max_update={end}"
    assert in_this_process(workplace, "run=one", "optimization.update_freq=[2]", updates) == 0
    return workplace / "runs" / "one" / "checkpoints"


def test_losses_of_the_first_epoch_are_those_of_one_process(workplace, one):
    two = losses(workplace / "runs" / "two" / "checkpoints")
    expected = losses(one)
    first = load_checkpoint(one / "checkpoint1.pt")["optimizer_history"][-1]["num_updates"]
    compared = [update for update in range(1, first) if update in two]
    assert len(compared) >= 4, "the last update of an epoch is saved under another name"
    assert two[compared[0]] - two[compared[-1]] > 0.1, "it learns, so the gradients matter"
    for update in compared:
        assert two[update] == pytest.approx(expected[update], abs=1e-5)


def test_killed_and_continued_it_goes_on_as_unbroken(workplace, one, end):
    """With dropout 0 one process with accumulation is the unbroken run in later epochs too."""
    two, expected = losses(workplace / "runs" / "two" / "checkpoints"), losses(one)
    assert end in two and len([update for update in two if update > end - 6]) >= 4
    for update in set(two) & set(expected):
        assert two[update] == pytest.approx(expected[update], abs=1e-4)


def test_one_set_of_records_and_who_trained(workplace, end):
    run = workplace / "runs" / "two"
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    updates = [line["num_updates"] for line in lines if line["tag"] == "resumed"]
    assert updates == [end - 6]
    after = [x for x in lines if x["tag"] == "valid" and x["valid_num_updates"] > end - 6]
    assert [line["valid_num_updates"] for line in after] == list(range(end - 5, end + 1))
    environment = json.loads((run / "env.json").read_text())
    assert (environment["processes"], environment["started_by"]) == (2, "torchrun")
    assert len(environment["earlier_starts"]) == 1
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["distributed_training"]["distributed_init_method"] is None, "of no later use"
    assert json.loads((run / "finished.json").read_text())["num_updates"] == end


def test_a_second_training_of_a_run_is_refused(workplace, capsys):
    from tests.unit.test_distributed import holder

    process = holder(workplace / "runs" / "taken" / ".lock")
    try:
        assert in_this_process(workplace, "run=taken") == 1
    finally:
        process.kill()
        process.wait()
    said = capsys.readouterr().err
    assert "runs/taken is being trained by another command (process " in said
    assert said.count("\n") == 1
    assert [path.name for path in (workplace / "runs" / "taken").iterdir()] == [".lock"]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
def test_a_finished_run_is_left_alone_by_all_processes(workplace, end):
    log = workplace / "runs" / "two" / "train.jsonl"
    before = log.read_bytes()
    said = to_the_end([*TWO, *VASWANI, "run=two", f"optimization.max_update={end}"], workplace)
    assert f"already trained, {end} updates" in said and log.read_bytes() == before


@pytest.mark.slow
def test_two_machines_by_train_sh(workplace, one, tmp_path):
    """Both "machines" are this one; the first prepares, by a stand-in, as there is no recipe."""
    (tmp_path / "vaswani").write_text('#!/bin/sh\necho "$*" >>prepared\n')
    (tmp_path / "vaswani").chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NODES": "2",
        "PROCESSES": "1",
        "MASTER": f"127.0.0.1:{free_port()}",
    }
    command = ["bash", str(ROOT / "scripts" / "train.sh"), "small", "run=machines"]
    processes = [begin(command, workplace, NODE_RANK=str(n), **environ) for n in (0, 1)]
    said = finish(*processes)
    assert [process.returncode for process in processes] == [0, 0], said
    assert (workplace / "prepared").read_text() == "prepare small\n"
    found, expected = losses(workplace / "runs" / "machines" / "checkpoints"), losses(one)
    assert len(found) >= 10
    for update in set(found) & set(expected):
        assert found[update] == pytest.approx(expected[update], abs=1e-4)


def by_hand(rank: int, port: int) -> List[str]:
    """fairseq's flags for one of two processes on a CPU."""
    flags = f"--distributed-init-method tcp://127.0.0.1:{port} --distributed-world-size 2"
    flags += f" --distributed-rank {rank} --distributed-no-spawn --distributed-backend gloo"
    return [*flags.split(), "--ddp-backend", "legacy_ddp"]


@pytest.mark.slow
def test_fairseqs_own_command_killed_and_continued(tiny_data_bin, tmp_path):
    """Both ranks killed in epoch 2 or later, against an unbroken run of two and one of one."""
    name = Path(sys.executable).parent / "fairseq-train"
    flags = [str(tiny_data_bin), *stock.ON_CPU, *stock.OURS, *stock.SMALL, "--max-tokens", "150"]
    flags += ["--dropout", "0", "--warmup-updates", "8", "--lr-factor", "0.3"]
    flags += ["--update-epoch-batch-itr", "True", "--save-interval-updates", "1"]

    def both(run: str, end: int) -> "List[subprocess.Popen[str]]":
        port, more = free_port(), ["--save-dir", run, "--max-update", str(end)]
        command = [sys.executable, str(name), *flags, *more]
        return [begin([*command, *by_hand(rank, port)], tmp_path) for rank in (0, 1)]

    processes = both("killed", 100000)
    until = time.monotonic() + PATIENCE
    try:
        while not list((tmp_path / "killed").glob("checkpoint_2_*.pt")):
            assert time.monotonic() < until and processes[0].poll() is None
            time.sleep(0.05)
    finally:
        for process in processes:
            kill(process)
    last = load_checkpoint(tmp_path / "killed" / "checkpoint_last.pt")
    end = last["optimizer_history"][-1]["num_updates"] + 6
    for run in ("killed", "unbroken"):
        processes = both(run, end)
        said = finish(*processes)
        assert [process.returncode for process in processes] == [0, 0], said
    alone = ["--max-update", str(end), "--update-freq", "2"]
    stock.train(tiny_data_bin, tmp_path / "one", *flags[1:], *alone)
    killed, unbroken, one = (losses(tmp_path / run) for run in ("killed", "unbroken", "one"))
    assert end in killed and len(one) >= 8
    for update in one:
        assert killed[update] == pytest.approx(unbroken[update], abs=1e-5)
        assert killed[update] == pytest.approx(one[update], abs=1e-4)


@pytest.mark.slow
def test_a_machine_without_the_run_says_so_and_no_other_waits(workplace, end, tmp_path):
    """Settings by hand; the second process stands in another folder, with the same data."""
    (tmp_path / "configs").symlink_to(workplace / "configs")
    section = {
        "init_method": f"tcp://127.0.0.1:{free_port()}",
        "world_size": "2",
    }
    overrides = [f"distributed_training.distributed_{k}={v}" for k, v in section.items()]
    overrides += ["run=two", f"optimization.max_update={end + 100000}"]
    processes = [
        begin(
            [sys.executable, *VASWANI, *overrides, f"distributed_training.distributed_rank={rank}"],
            folder,
        )
        for rank, folder in enumerate((workplace, tmp_path))
    ]
    said = finish(*processes)
    assert [process.returncode for process in processes] == [1, 1], said
    for one in said:
        assert "process 1, on " in one and "does not see the runs/two of process 0" in one
        assert "Traceback" not in one
