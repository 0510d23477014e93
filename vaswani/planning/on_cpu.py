"""How fast this machine's CPU trains an experiment: measured in a few updates of the training."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.progress import clock
from vaswani.common.usage import peak_megabytes
from vaswani.experiment.run_record import STATISTICS, statistics

#: operations after which the measurement ends: about ten seconds of two cores; never fewer than
#: three updates, since the first does not count, nor more than thirty
OPERATIONS, FEWEST, MOST = 5e11, 3, 30
#: changes to the experiment: nothing is saved, each batch is an update and is logged
MEASURED = (
    "checkpoint.no_save=true",
    "checkpoint.restore_file=checkpoint_last.pt",
    "checkpoint.finetune_from_model=null",
    "dataset.disable_validation=true",
    "common.cpu=true",
    "common.log_interval=1",
    "optimization.max_epoch=0",
    "optimization.stop_time_hours=0",
    "optimization.update_freq=[1]",
)


def measure(path: Path, overrides: Sequence[str], flops: float) -> Tuple[Dict[str, Any], float]:
    """Train a few updates in a folder that is then removed.

    Returns:
        The updates, and the most memory that the process held, for the plan; and target tokens per
        second.

    Args:
        path: the experiment
        overrides: changes to it
        flops: operations of one update of a single batch

    Raises:
        UserError: the training was refused or failed; its sentence.
    """
    updates = max(FEWEST, min(MOST, round(OPERATIONS / flops)))
    print(f"measuring {updates} updates on this machine", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run = f"run={folder}/run"
        changes = [*overrides, *MEASURED, f"optimization.max_update={updates}", run]
        command = [sys.executable, "-m", "vaswani", "train", str(path), *changes]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UserError(f"the speed could not be measured: {last}")
        lines = [one for one in statistics(Path(folder) / "run" / STATISTICS) if "wpb" in one]
    memory = round(peak_megabytes() * 2**20)
    return {"measured_updates": updates, "memory_bytes": memory}, speed(lines)


def speed(lines: List[Dict[str, Any]]) -> float:
    """Target tokens per second from the end of the first update on.

    Args:
        lines: of train.jsonl, one for each update, with its target tokens (``wpb``)
    """
    updates = [line for line in lines if line["tag"] == "train_inner"]
    seconds = updates[-1]["time"] - updates[0]["time"]
    return float(sum(line["wpb"] for line in updates[1:]) / max(seconds, 1e-3))


def rows(plan: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Memory, time and operations in the plan's table."""
    speed, measured, flops = (plan[k] for k in ("tokens_per_second", "measured_updates", "flops"))
    time = "not known: there is no data to measure with ('vaswani prepare' makes it)"
    operations = f"{flops:.1e} by the model's arithmetic, {flops / plan['updates']:.1e} per update"
    if speed is not None:
        how = f", measured here just now in {measured} updates" if measured else ""
        time = f"{clock(plan['seconds'])} at {speed:,.0f} target tokens/s{how}"
        training = plan["seconds"] - plan["save_seconds"]
        operations += f": {flops / training / 1e9:.1f} GFLOP/s"
    table = [("time", time), ("operations", operations)]
    if measured:
        used = f"{plan['memory_bytes'] / 1e9:.1f} GB of {plan['memory_gb']:.1f}"
        table.insert(0, ("memory", f"{used}, measured in {measured} updates"))
    return table


def title(plan: Dict[str, Any]) -> str:
    """What the plan is for."""
    return f"{plan['experiment']} on this machine's CPU, {cores()} cores"
