"""From launcher to fairseq's section, and what the launching scripts run. No torch here."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from vaswani.common.errors import UserError
from vaswani.training.launch import ON_CPU, ONE, PER_GPU, TORCHRUN, find_launch

ROOT = Path(__file__).resolve().parents[2]
TORCHRUNS = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


def config(gpus: int, **given):
    """Return the section of launching, with fairseq's defaults on a machine of ``gpus`` GPUs."""
    numbers = dict.fromkeys(("distributed_world_size", "distributed_num_procs"), max(1, gpus))
    defaults = {**numbers, "distributed_rank": 0, "distributed_init_method": None}
    return SimpleNamespace(distributed_training=SimpleNamespace(**{**defaults, **given}))


@pytest.mark.parametrize(
    ("visible", "used", "environ", "kind", "rank", "processes"),
    [
        (0, 0, {}, ONE, 0, 1),
        (8, 8, {}, PER_GPU, 0, 8),
        (8, 0, {}, ONE, 0, 1),  # common.cpu
        (2, 2, TORCHRUNS, TORCHRUN, 3, 4),
        (0, 0, {**TORCHRUNS, "RANK": "0", "WORLD_SIZE": "1"}, TORCHRUN, 0, 1),
    ],
)
def test_a_launch_is_found_from_gpus_and_environment(visible, used, environ, kind, rank, processes):
    launch = find_launch(config(visible), environ, used)
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
    assert find_launch(config(2), TORCHRUNS, 2).section == expected
    assert find_launch(config(0), TORCHRUNS, 0).section == {**expected, **ON_CPU}


@pytest.mark.parametrize(("gpus", "processes"), [(8, 16), (0, 2)])
def test_more_processes_than_gpus_need_torchrun(gpus, processes):
    """On a CPU one process would train with half the batch, in silence."""
    with pytest.raises(UserError, match="torchrun"):
        find_launch(config(gpus, distributed_world_size=processes), {}, gpus)


# ---- what the scripts run, seen by stand-ins for the commands they call

SAY = '#!/bin/sh\necho "$(basename "$0") $*" >>"$SAID"\n'


def scripts(tmp_path, command, **environ):
    """Run a script where vaswani and torchrun only say how they were called."""
    tools = tmp_path / "bin"
    tools.mkdir()
    bodies = dict.fromkeys(("vaswani", "python", "torchrun"), SAY)
    bodies["scontrol"] = SAY + '[ "$1" = requeue ] || printf "one\\ntwo\\n"\n'
    bodies["srun"] = SAY + 'shift 2\nSLURM_NODEID=1 exec "$@"\n'
    for name, body in bodies.items():
        (tools / name).write_text(body)
        (tools / name).chmod(0o755)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "SAID": str(tmp_path / "said"), **environ}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(["bash", *command], cwd=ROOT, env=environ, **options)
    return process, tmp_path / "said"


SECOND = {"NODES": "2", "NODE_RANK": "1", "MASTER": "first:123"}


@pytest.mark.parametrize(
    ("environ", "prepared", "started"),
    [
        ({}, True, "vaswani"),
        ({"PROCESSES": "2"}, True, "torchrun --standalone --local-addr 127.0.0.1"),
        (SECOND, False, "torchrun --nnodes 2 --node_rank 1 --master_addr first --master_port 123"),
    ],
)
def test_train_sh_prepares_once_and_starts_a_process_for_each_gpu(
    tmp_path, environ, prepared, started
):
    process, path = scripts(tmp_path, ["scripts/train.sh", "small", "run=a"], **environ)
    assert process.wait() == 0, process.communicate()
    *before, last = path.read_text().splitlines()
    assert before == ["vaswani prepare small --if-missing"] * prepared
    assert last.startswith(started) and last.endswith("train small run=a")


SLURM = {"SLURM_JOB_NODELIST": "[one-two]", "SLURM_JOB_NUM_NODES": "2"}
SLURM.update(SLURM_JOB_ID="45678", SLURM_CPUS_PER_TASK="32")


def environment(tmp_path, activate: str) -> str:
    """Make a virtual environment, as far as the script looks at it."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").write_text(activate)
    return str(tmp_path / "env")


def test_slurm_runs_one_torchrun_a_machine(tmp_path):
    env = environment(tmp_path, "")
    batch = ["scripts/slurm/train.sbatch", "small", "run=a b"]
    process, path = scripts(tmp_path, batch, VENV=env, **SLURM)
    assert process.wait() == 0, process.communicate()
    srun = next(line for line in path.read_text().splitlines() if line.startswith("srun "))
    assert "--cpus-per-task=32" in srun.split(), "it does not inherit the job's"
    assert path.read_text().splitlines()[-1] == (
        "torchrun --nnodes 2 --node_rank 1 --master_addr one --master_port 25678 "
        "--nproc_per_node gpu -m vaswani train small run=a b"
    )


def test_slurm_queues_again_when_time_is_up(tmp_path):
    env = environment(tmp_path, 'srun() { echo begun >>"$SAID"; sleep 5; }\n')
    process, path = scripts(tmp_path, ["scripts/slurm/train.sbatch", "small"], VENV=env, **SLURM)
    while not (path.exists() and "begun" in path.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    process.wait()
    assert path.read_text().splitlines()[-1] == "scontrol requeue 45678"
