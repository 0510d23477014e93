"""From launcher to fairseq's section, what the launching scripts run, and locks. No torch here."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from vaswani.common.errors import UserError
from vaswani.common.files import locked
from vaswani.experiment.launch import (
    BY_HAND,
    ONE,
    PER_GPU,
    TORCHRUN,
    find_launch,
)

ROOT = Path(__file__).resolve().parents[2]
FIVE = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
}
GLOO = {"distributed_backend": "gloo", "ddp_backend": "legacy_ddp"}


def config(gpus: int, cpu: bool = False, update_freq=(1,), **given):
    """The three sections that matter, with fairseq's defaults on a machine of so many GPUs."""
    defaults = {
        "distributed_world_size": max(1, gpus),
        "distributed_num_procs": max(1, gpus),
        "distributed_rank": 0,
        "distributed_init_method": None,
    }
    return SimpleNamespace(
        common=SimpleNamespace(cpu=cpu or not gpus),
        optimization=SimpleNamespace(update_freq=list(update_freq)),
        distributed_training=SimpleNamespace(**{**defaults, **given}),
    )


@pytest.mark.parametrize(
    ("gpus", "cpu", "environ", "kind", "rank", "processes"),
    [
        (0, False, {}, ONE, 0, 1),
        (1, False, {}, ONE, 0, 1),
        (8, False, {}, PER_GPU, 0, 8),
        (8, True, {}, ONE, 0, 1),
        (0, False, {"MASTER_ADDR": "x", "MASTER_PORT": "1"}, ONE, 0, 1),  # not a launcher's doing
        (2, False, FIVE, TORCHRUN, 3, 4),
        (0, False, FIVE, TORCHRUN, 3, 4),
        (0, False, {**FIVE, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, TORCHRUN, 0, 1),
    ],
)
def test_how_it_was_started(gpus, cpu, environ, kind, rank, processes):
    launch = find_launch(config(gpus, cpu), environ, gpus)
    assert (launch.kind, launch.rank, launch.world_size) == (kind, rank, processes)
    assert launch.section["distributed_world_size"] == processes
    assert launch.section["distributed_rank"] == rank


def test_torchruns_section_for_gpus_and_without():
    expected = {
        "distributed_init_method": "env://",
        "distributed_world_size": 4,
        "distributed_rank": 3,
        "distributed_no_spawn": True,
        "device_id": 1,
    }
    assert find_launch(config(2), FIVE, 2).section == expected
    assert find_launch(config(0), FIVE, 0).section == {**expected, **GLOO}
    assert find_launch(config(2, cpu=True), FIVE, 2).section == {**expected, **GLOO}


def test_all_gpus_of_a_machine_meet_at_a_free_port_of_it():
    section = find_launch(config(8), {}, 8).section
    host, port = section["distributed_init_method"].rsplit(":", 1)
    assert host == "tcp://127.0.0.1" and 1024 <= int(port) < 65536
    assert section["distributed_num_procs"] == 8 and not section["distributed_no_spawn"]


def test_settings_by_hand_stand_but_for_what_a_cpu_needs():
    by_hand = {"distributed_init_method": "tcp://first:29500", "distributed_world_size": 16}
    launch = find_launch(config(8, distributed_rank=8, **by_hand), FIVE, 8)
    assert launch == (BY_HAND, 8, 16, {})
    launch = find_launch(config(0, distributed_rank=1, **by_hand), {}, 0)
    assert launch == (BY_HAND, 1, 16, {**GLOO, "distributed_no_spawn": True})


@pytest.mark.parametrize(
    ("gpus", "environ", "given", "message"),
    [
        (0, {"WORLD_SIZE": "2"}, {}, "WORLD_SIZE but not RANK, LOCAL_RANK, MASTER_ADDR"),
        (0, {"RANK": "0"}, {}, "RANK but not WORLD_SIZE"),
        (0, {**FIVE, "MASTER_PORT": ""}, {}, "not MASTER_PORT"),
        (1, FIVE, {}, "--nproc_per_node 1"),
        (8, {}, {"distributed_world_size": 16}, "has 8 visible GPUs"),
        (0, {}, {"distributed_world_size": 2}, "--nproc_per_node 2 -m vaswani train"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(gpus, environ, given, message):
    with pytest.raises(UserError) as error:
        find_launch(config(gpus, **given), environ, gpus)
    assert message in str(error.value) and "\n" not in str(error.value)


# ---- what the scripts run, seen by stand-ins for the commands they call

SAY = '#!/bin/sh\necho "$(basename "$0") $*" >>"$SAID"\n'


def scripts(tmp_path, command, **environ):
    """Run a script where vaswani and torchrun only say how they were called."""
    tools = tmp_path / "bin"
    tools.mkdir()
    bodies = {
        "vaswani": SAY,
        "python": SAY,
        "torchrun": SAY,
        "scontrol": SAY + '[ "$1" = requeue ] || printf "one\\ntwo\\n"\n',
        "srun": SAY + 'shift 2\nSLURM_NODEID=1 exec "$@"\n',
    }
    for name, body in bodies.items():
        (tools / name).write_text(body)
        (tools / name).chmod(0o755)
    process = subprocess.Popen(
        ["bash", *command],
        cwd=ROOT,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "SAID": str(tmp_path / "said"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, tmp_path / "said"


def test_the_demo_reports_what_each_stage_took(tmp_path):
    """Whole seconds; here none takes one."""
    process, said = scripts(tmp_path, ["scripts/demo.sh", "en-fr"])
    assert process.wait(timeout=60) == 0
    calls = [line.split()[1:] for line in said.read_text().splitlines()]
    verbs = ["prepare", "train", "average", "generate", "score", "pack"]
    assert [call[0] for call in calls] == [*verbs, "-m", "translate"]
    took = [item.partition("=") for item in calls[-2][3:]]
    assert [stage for stage, _, _ in took] == verbs
    assert all(seconds.isdigit() for _, _, seconds in took)


TRAIN = ["scripts/train.sh", "small", "run=a"]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, ["vaswani prepare small --if-missing", "vaswani train small run=a"]),
        ({"TEXT": "t"}, ["vaswani prepare small --text t", "vaswani train small run=a"]),
        (
            {"PROCESSES": "2"},
            [
                "vaswani prepare small --if-missing",
                "torchrun --standalone --local-addr 127.0.0.1 --nproc_per_node 2 "
                "-m vaswani train small run=a",
            ],
        ),
        (
            {"NODES": "2", "NODE_RANK": "1", "MASTER": "first:123"},
            [
                "torchrun --nnodes 2 --node_rank 1 --master_addr first --master_port 123 "
                "--nproc_per_node gpu -m vaswani train small run=a",
            ],
        ),
    ],
)
def test_train_sh(tmp_path, environ, message):
    process, path = scripts(tmp_path, TRAIN, **environ)
    assert process.wait(20) == 0, process.communicate()
    assert path.read_text().splitlines() == message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NODES": "2", "MASTER": "first:123"}, "NODE_RANK=0 for the first"),
        ({"NODES": "2", "NODE_RANK": "0"}, "MASTER=HOST:PORT of the first"),
    ],
)
def test_train_sh_asks_for_what_several_machines_need(tmp_path, environ, message):
    process, path = scripts(tmp_path, TRAIN, **environ)
    assert message in process.communicate(timeout=20)[1]
    assert process.returncode and not path.exists(), "nothing was begun"


SLURM = {
    "SLURM_JOB_NODELIST": "[one-two]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_ID": "45678",
    "SLURM_CPUS_PER_TASK": "32",
}


def environment(tmp_path, activate: str) -> str:
    """A virtual environment, as far as the script looks at it."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").write_text(activate)
    return str(tmp_path / "env")


def test_slurm_runs_one_torchrun_a_machine(tmp_path):
    env = environment(tmp_path, "")
    batch = ["scripts/slurm/train.sbatch", "small", "run=a b"]
    process, path = scripts(tmp_path, batch, VENV=env, **SLURM)
    assert process.wait(20) == 0, process.communicate()
    srun = next(line for line in path.read_text().splitlines() if line.startswith("srun "))
    assert "--cpus-per-task=32" in srun.split(), "it does not inherit the job's"
    assert path.read_text().splitlines()[-1] == (
        "torchrun --nnodes 2 --node_rank 1 --master_addr one --master_port 25678 "
        "--nproc_per_node gpu -m vaswani train small run=a b"
    )


def test_slurm_queues_again_when_time_is_up(tmp_path):
    env = environment(tmp_path, 'srun() { echo begun >>"$SAID"; sleep 5; }\n')
    process, path = scripts(tmp_path, ["scripts/slurm/train.sbatch", "small"], VENV=env, **SLURM)
    until = time.monotonic() + 20
    while not (path.exists() and "begun" in path.read_text()):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    process.wait(20)
    assert path.read_text().splitlines()[-1] == "scontrol requeue 45678"


# ---- locks

HOLD = """
import sys, time
from pathlib import Path
from vaswani.common.files import locked
with locked(Path(sys.argv[1]), "it is used"):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    """Another process that holds the lock; to be killed."""
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


def test_a_folder_that_cannot_be_written_needs_no_lock(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with locked(tmp_path / "lock", "it is used"):
        pass
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_two_preparations_of_one_folder(tmp_path, monkeypatch, capsys):
    from tests import archives
    from vaswani import cli

    for part in ("train", "valid"):
        for lang in ("en", "de"):
            text = "\n".join(archives.sentences(lang, 20, 1)) + "\n"
            (tmp_path / f"{part}.{lang}").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = "prepare --source-lang en --target-lang de --train train --valid valid --bpe 10"
    process = holder(tmp_path / "out" / ".stages" / "lock")
    try:
        assert cli.main([*command.split(), "--out", "out"]) == 1
    finally:
        process.kill()
        process.wait()
    message = capsys.readouterr().err
    assert "out is being prepared by another command" in message and message.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".stages"]
