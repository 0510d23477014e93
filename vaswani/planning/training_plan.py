"""What a training will take on given hardware: batch, memory, time, operations, disk.

The batch is the experiment's (task.batch_tokens; without it, what the experiment gives on one GPU),
divided among the GPUs by what fits into their memory.
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.find import find_config
from vaswani.common.options import last_of_each
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.planning import arithmetic, batching
from vaswani.planning.hardware import Hardware
from vaswani.training.launch import gpus_to_use
from vaswani.training.run_record import split_run

GB = 1e9


@dataclass(frozen=True)
class Disk:
    """What a training takes of the disk."""

    checkpoint_bytes: int
    #: the most that there are at a time
    checkpoints: int
    #: of all checkpoints, one that is being written, and an average
    needed_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Plan:
    """What a training takes."""

    experiment: str
    #: 0: the CPU
    gpus: int
    #: of each GPU
    memory_gb: float | None
    #: the data-bin; None: there is none yet
    data: Path | None
    vocabulary: int
    parameters: int
    batch: batching.Batch
    updates: int
    precision: str
    #: on each GPU
    memory_bytes: float
    #: of the training
    flops: float
    #: target tokens, if the speed is known
    tokens_per_second: float | None
    disk: Disk
    #: that trains so
    command: str


def training_plan(experiment: str, overrides: Sequence[str], hardware: Hardware) -> Plan:
    """Plan a training on given hardware.

    Args:
        experiment: its name, or its YAML file
        overrides: changes to it, as for 'vaswani train'
        hardware: what it would run on

    Raises:
        UserError: the experiment or data is invalid, or the hardware too small or too large for it.
    """
    path = find_config(experiment)
    config = read_configuration(path, split_run(overrides)[1])
    if not config.dataset.max_tokens or config.optimization.max_update <= 0:
        raise UserError(f"{path}: a plan needs dataset.max_tokens and optimization.max_update")
    text = batching.training_text(config)
    sizes = arithmetic.sizes_of(config.model, len(text.task.target_dictionary))
    parameters = batching.count_parameters(config, text.task)
    gpus = hardware.gpus or gpus_to_use(config)
    use = batching.memory_use(config, gpus)
    memory = None
    most = int(config.dataset.max_tokens)
    if gpus:
        memory = hardware.memory or (16.0 if hardware.gpus else batching.gpu_memory(gpus))
        most = batching.most_tokens(sizes, parameters, memory, use)
    batch = batching.choose_batch(config, text, max(1, gpus), most, keep=True)
    updates = config.optimization.max_update
    changes = [
        f"dataset.max_tokens={batch.max_tokens}",
        f"optimization.update_freq=[{batch.update_freq}]",
    ]
    first = "" if text.folder else f"{shlex.join(['vaswani', 'prepare', experiment])} && "
    words = ["vaswani", "train", experiment, *last_of_each([*overrides, *changes])]
    return Plan(
        experiment=path.stem,
        gpus=gpus,
        memory_gb=memory,
        data=text.folder,
        vocabulary=sizes.vocabulary,
        parameters=parameters,
        batch=batch,
        updates=updates,
        precision="fp32" if use.product_bytes == 4 else "16 bits",
        memory_bytes=arithmetic.memory_bytes(sizes, parameters, batch.max_tokens, use),
        flops=arithmetic.training_flops(
            sizes, updates, batch.source_tokens, batch.target_tokens, text.lengths
        ),
        tokens_per_second=hardware.tokens_per_second,
        disk=disk(config.checkpoint, parameters, updates, batch),
        command=first + shlex.join(words),
    )


# ---- disk ----------------------------------------------------------------------------------------


def disk(checkpoint: Any, parameters: int, updates: int, batch: batching.Batch) -> Disk:
    """Return the number of checkpoint files at most, and their bytes with an average.

    The last and the best checkpoint are counted, though they may be links to others. One more is
    written aside before it replaces another.
    """
    epochs = checkpoint.save_interval * (batch.updates_per_epoch or 0)
    count = 2
    for interval, limit in (
        (checkpoint.save_interval_updates, checkpoint.keep_interval_updates),
        (0 if checkpoint.no_epoch_checkpoints else epochs, checkpoint.keep_last_epochs),
    ):
        if interval > 0:
            written = updates // interval
            count += min(written, limit) if limit > 0 else written
    size = parameters * arithmetic.SAVED_PER_PARAMETER
    return Disk(
        checkpoint_bytes=size,
        checkpoints=count,
        needed_bytes=(count + 1) * size + 4 * parameters,
        free_bytes=shutil.disk_usage(Path()).free,
    )


# ---- the table ------------------------------------------------------------------------------


def table(plan: Plan) -> str:
    """Return the plan as lines of ``name  value``, the command last."""
    gpus = plan.gpus
    batch = plan.batch
    updates = f"{plan.updates:,}"
    padded = batch.max_tokens * batch.update_freq * max(1, gpus)
    source = "estimated from WMT14's mean lengths: there is no data yet"
    if plan.data:
        source = f"measured on {plan.data}"
        updates += f", {batch.updates_per_epoch:,} per epoch"
    if batch.left_out:
        updates += f"; {batch.left_out:,} sentences are too long for a batch and are left out"
    rows = [
        ("max tokens", f"{batch.max_tokens:,} per {'GPU and ' * bool(gpus)}batch"),
        ("update freq", f"{batch.update_freq:,}: {padded:,} padded tokens per update"),
        (
            "real tokens",
            f"{batch.source_tokens:,.0f} source and {batch.target_tokens:,.0f} target per "
            f"update, {source}",
        ),
        ("updates", updates),
    ]
    machine = "this machine's CPU"
    if gpus:
        machine = f"{gpus} GPUs of {plan.memory_gb:g} GB"
        memory = f"about {plan.memory_bytes / GB:.1f} GB of {plan.memory_gb:g} per GPU"
        rows.append(("memory", f"{memory} (an estimate for {plan.precision})"))
    rows += time_rows(plan)
    needed, free = plan.disk.needed_bytes, plan.disk.free_bytes
    disk = f"{needed / GB:.1f} GB of {free / GB:,.1f} GB free here"
    disk += ", which is too little" if free < needed else ""
    count = f"{plan.disk.checkpoints} checkpoints of {plan.disk.checkpoint_bytes / GB:.2f}"
    rows.append(("disk", f"{disk}: {count}, one being written, and an average"))
    lines = [f"  {name:<13}{value}" for name, value in rows]
    head = f"{plan.experiment} on {machine}"
    return "\n".join([head, *lines, "", f"next: {plan.command}"])


def time_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of the time, in hours if the speed is known, and of the operations."""
    own, speed = plan.flops, plan.tokens_per_second
    time = "not known: give --tokens-per-second"
    operations = f"{own:.1e} by the model's arithmetic, {own / plan.updates:.1e} per update"
    if speed:
        seconds = plan.updates * plan.batch.target_tokens / speed
        time = f"{seconds / 3600:,.1f} hours at {speed:,.0f} target tokens/s"
        if plan.gpus:
            operations += f": {own / seconds / plan.gpus / 1e12:.1f} TFLOP/s per GPU"
    return [("time", time), ("operations", operations)]
