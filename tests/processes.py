"""Starts commands in separate processes, waits for them, or kills them and their children.

Also reads the loss of every update from their checkpoints, since logs round it to 3 digits.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import forks
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.training.launch import free_port

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 250  # seconds for any command, after which its processes are killed: pytest waits 300
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TWO = [*TORCHRUN, "--standalone", "--local-addr", "127.0.0.1", "--nproc_per_node", "2"]
VASWANI = ["-m", "vaswani", "train", "small"]


def begin(command: list[str], folder: Path, **environ: str) -> "subprocess.Popen[str]":
    """Start a command in ``folder``."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children(pid: int) -> list[int]:
    """Return the descendants of a process; torchrun's are not in its process group."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *children(child)]
    return found


def kill(process: "subprocess.Popen[str]") -> None:
    """Send SIGKILL to the command and everything it started."""
    for pid in [process.pid, *children(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def finish(*processes: "subprocess.Popen[str]") -> list[str]:
    """Return the output of commands running side by side; kill one that hangs, and fail."""
    message = []
    try:
        for process in processes:
            message.append(process.communicate(timeout=PATIENCE)[0])
    finally:
        for process in processes:
            if process.poll() is None:
                kill(process)
    return message


def to_the_end(command: list[str], folder: Path) -> str:
    """Run a command that must succeed, and return its output."""
    process = begin(command, folder)
    message = finish(process)[0]
    assert process.returncode == 0, message
    return message


def two_forks(folder: Path, *arguments: str) -> None:
    """Run ``vaswani ARGUMENTS`` in two forks of this process, with the variables of torchrun.

    Both must succeed. torchrun itself starts processes anew, which import torch and fairseq for
    longer than the tests train.
    """
    command = [str(forks.BIN / "vaswani"), *arguments]
    variables = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    variables["MASTER_PORT"] = str(free_port())
    log = folder / "forks.log"
    with open(os.devnull) as nothing, open(log, "w", encoding="utf-8") as output:
        streams = [nothing.fileno(), output.fileno(), output.fileno()]
        processes = []
        for rank in ("0", "1"):
            of_rank = {**variables, "RANK": rank, "LOCAL_RANK": rank}
            processes.append(forks.start(command, folder, of_rank, streams))
    assert forks.codes_of(*processes) == [0, 0], log.read_text(encoding="utf-8")


def until_saved(process: "subprocess.Popen[str]", checkpoints: Path, pattern: str) -> None:
    """Wait until a running command has saved a checkpoint with such a name."""
    until = time.monotonic() + PATIENCE
    while not list(checkpoints.glob(pattern)):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def killed_in_epoch_two(command: list[str], folder: Path, checkpoints: Path) -> int:
    """Run until a checkpoint of epoch 2, then SIGKILL; return the number of saved updates."""
    process = begin(command, folder)
    try:
        until_saved(process, checkpoints, "checkpoint_2_*.pt")
    finally:
        kill(process)
    state = load_checkpoint(checkpoints / "checkpoint_last.pt")
    assert state["extra_state"]["train_iterator"]["epoch"] >= 2
    return state["optimizer_history"][-1]["num_updates"]


def losses(checkpoints: Path) -> dict[int, float]:
    """Return update → its unrounded loss, from the meters that fairseq saves."""
    found = {}
    for path in checkpoints.glob("checkpoint*_*.pt"):
        if path.stem.split("_")[-1].isdecimal():
            state = load_checkpoint(path)
            meters = {name: kept for _, name, _, kept in state["extra_state"]["metrics"]["train"]}
            found[state["optimizer_history"][-1]["num_updates"]] = float(meters["loss"]["val"])
    return found


def leave_after(other: Path) -> None:
    """End this gloo process abruptly, once the other one's result is there too.

    An orderly end may hang or abort in gloo's threads (seen with torch 2.2).
    """
    for _ in range(600):
        if other.exists():
            break
        time.sleep(0.1)
    os._exit(0)
