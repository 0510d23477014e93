"""Who trains together, and on what: from how processes start to fairseq's ``distributed_training``.

fairseq guesses this section from the environment, and without GPUs it guesses wrong: it divides by
their number, or lets each torchrun process train on its own into the same folder. So the launcher's
settings are written out here, and nothing is left to guess.

Three ways to start: ``vaswani train`` alone (one process per visible GPU, or one on the CPU);
torchrun, which gives each process its five variables; fairseq's own settings by hand
(``distributed_training.distributed_init_method=tcp://HOST:PORT`` and the rank of each process).
"""

import contextlib
import importlib.util
import multiprocessing
import os
import re
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from omegaconf import DictConfig
from torch.multiprocessing import ProcessExitedException

from transformer_plugin.config import ConfigError, PluginError
from vaswani.common import signals
from vaswani.common.errors import NO_MEMORY, UserError
from vaswani.common.find import DOCS
from vaswani_transformer.precision import product_precision, tf32

T = TypeVar("T")

#: how processes were started, as a run records it
ONE, PER_GPU, TORCHRUN, BY_HAND = "one process", "one process per GPU", "torchrun", "by hand"
#: nccl needs GPUs, and fairseq's default wrapper asks for a device number, which a CPU lacks
ON_CPU = {"distributed_backend": "gloo", "ddp_backend": "legacy_ddp"}
#: seconds that spawned processes are given to end by themselves
GRACE = 60.0
#: packages that fairseq does without, or ends without a word, where they are missing: one of them
NEEDED = {
    ("checkpoint", "write_checkpoints_asynchronously"): ["iopath"],
    ("common", "aim_repo"): ["aim"],
    ("common", "azureml_logging"): ["azureml"],
    ("common", "tensorboard_logdir"): ["tensorboard", "tensorboardX"],
    ("common", "wandb_project"): ["wandb"],
}
#: the end of a traceback whose error is a class of this project: its package, and the message
_PROJECT_ERROR = re.compile(
    r"^(vaswani|transformer_plugin)[\w.]*Error: (.+)", re.MULTILINE | re.DOTALL
)


class Launch(NamedTuple):
    """One process's place: how it was started, its rank among all, and fairseq's section."""

    kind: str
    rank: int
    world_size: int
    section: dict[str, object]


def check_machine(config: DictConfig) -> None:
    """Raise UserError for an option that needs a device or package that is not here."""
    if config.common.tpu:
        raise UserError("common.tpu: 'vaswani train' uses GPUs, or the CPU: leave out common.tpu")
    if config.common.fp16 and on_cpu(config):
        raise UserError(
            "common.fp16 needs a GPU: leave it out, or, for a model of this plugin, give "
            "model.precision=bf16 instead"
        )
    sharded = config.distributed_training.ddp_backend == "fully_sharded"
    if sharded and importlib.util.find_spec("fairscale") is None:
        raise UserError(
            "distributed_training.ddp_backend=fully_sharded needs the package 'fairscale', which "
            "is not installed: leave out this option, and give model.checkpoint_activations=true "
            "if memory is short"
        )
    for (section, key), packages in NEEDED.items():
        is_set = config[section].get(key)
        if is_set and not any(map(importlib.util.find_spec, packages)):
            raise UserError(
                f"{section}.{key} needs the package '{packages[0]}', which is not installed: "
                f"pip install {packages[0]}, or leave out this option"
            )


def find_launch(config: DictConfig, environ: Mapping[str, str], gpus: int) -> Launch:
    """Determine the launch from the configuration, the environment and the number of GPUs.

    Raises:
        UserError: more processes were asked for than there are GPUs.
    """
    settings = config.distributed_training
    if settings.distributed_init_method:  # as given; without a GPU, with the two that work there
        section = {} if gpus else {**ON_CPU, "distributed_no_spawn": True}
        rank = settings.distributed_rank or 0
        return Launch(BY_HAND, rank, settings.distributed_world_size, section)
    if environ.get("RANK"):
        return from_torchrun(environ, gpus)
    return from_this_machine(settings, gpus)


def from_torchrun(environ: Mapping[str, str], gpus: int) -> Launch:
    """Return the launch that torchrun's variables describe."""
    rank, world_size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    section = {
        "distributed_init_method": "env://",
        "distributed_world_size": world_size,
        "distributed_rank": rank,
        "distributed_no_spawn": True,
        "device_id": int(environ["LOCAL_RANK"]),
        **({} if gpus else ON_CPU),
    }
    return Launch(TORCHRUN, rank, world_size, section)


def from_this_machine(section: DictConfig, gpus: int) -> Launch:
    """Return fairseq's launch of one process for each GPU; on a CPU, of one process."""
    world_size = section.distributed_world_size  # fairseq's default: the GPUs it sees, at least 1
    # the second also defaults to the number of GPUs: if both are equal, nobody asked for more
    if not gpus and world_size == section.distributed_num_procs:
        world_size = 1
    if world_size > max(1, gpus):
        raise UserError(
            f"distributed_training.distributed_world_size is {world_size}, but this machine has "
            f"{gpus} visible GPUs: to use several machines, or several processes on a CPU, start "
            f"with torchrun ({DOCS / 'training.md'})"
        )
    if world_size == 1:
        return Launch(ONE, 0, 1, {"distributed_world_size": 1, "distributed_rank": 0})
    own_section = {
        "distributed_init_method": f"tcp://127.0.0.1:{free_port()}",
        "distributed_world_size": world_size,
        "distributed_num_procs": world_size,
        "distributed_rank": 0,
        "distributed_no_spawn": False,
    }
    return Launch(PER_GPU, 0, world_size, own_section)


def free_port() -> int:
    """Return a free port on this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def all_gather(value: T) -> list[T]:
    """Gather each process's value, by rank, in every process, and wait for all of them.

    Needs fairseq's process group if there are several processes.
    """
    if not torch.distributed.is_initialized():
        return [value]
    values = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def check_agreement(rank: int, sees_run: bool, files: Mapping[str, str], folder: Path) -> None:
    """Raise ConfigError, in every process, unless all see the same run and the same data.

    Args:
        rank: this process's
        sees_run: whether this process sees the same run folder as process 0
        files: the hashes of the data, by name, as this process sees them
        folder: the run's
    """
    # all learn of it, so that none waits for a process that has gone
    reports = all_gather((f"{rank}, on {socket.gethostname()},", sees_run, files))
    first = reports[0][2]
    problem = None
    for who, sees_it, theirs in reports:
        differ = [n for n in sorted({*theirs, *first}) if theirs.get(n) != first.get(n)]
        if not sees_it:
            problem = f"does not see the {folder} of process 0: all must share one folder"
        elif differ:
            problem = f"has a different {differ[0]} from process 0: all need the same data"
        if problem:
            if torch.distributed.is_initialized():  # else its threads may outlive the interpreter,
                torch.distributed.destroy_process_group()  # which then aborts: exit code -6
            raise ConfigError(f"process {who} {problem}")


def end_processes() -> None:
    """End the processes that fairseq spawned, if any are left, and wait until they have ended.

    fairseq joins them, and multiprocessing again as the interpreter exits: a signal to this process
    alone would leave them training. SIGINT is what they save at (``signals.StopRequest``).
    """
    processes = multiprocessing.active_children()
    until = time.monotonic() + GRACE
    try:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGINT)
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
    finally:  # also if this process is told again
        for process in processes:
            process.kill()
            process.join()


def error_of_process(failure: Exception) -> Exception:
    """Return the error to show when one of the processes that fairseq spawned has failed.

    ``failure`` is torch's: ProcessRaisedException, whose text is the traceback of that process, or
    ProcessExitedException, if it was killed. A traceback that ends in a UserError or a PluginError
    becomes that error, one for lack of memory its last line; any other stays as it is. torch has
    stopped the other processes by then.
    """
    if isinstance(failure, ProcessExitedException):
        return UserError(f"the training lost a process ({failure}){signals.continue_hint()}")
    last = str(failure).strip().splitlines()[-1]
    if any(words in last for words in NO_MEMORY):
        return RuntimeError(last)
    ended = _PROJECT_ERROR.search(str(failure))
    if not ended:
        return failure
    kind = UserError if ended.group(1) == "vaswani" else PluginError
    return kind(ended.group(2).strip())


# ---- on what ------------------------------------------------------------------------------------


def on_cpu(config: DictConfig) -> bool:
    """Return whether fairseq uses the CPU: ``common.cpu``, or CUDA cannot be used."""
    return bool(config.common.cpu) or not torch.cuda.is_available()


def gpus_to_use(config: DictConfig) -> int:
    """Return the number of usable GPUs on this machine; torch also counts unusable ones."""
    return 0 if on_cpu(config) else torch.cuda.device_count()


def precision_of(config: DictConfig) -> str:
    """Return the precision of products: ``fp32``, ``bf16`` or ``fp16`` (or fairseq's ``amp``).

    The model's bf16 is fp32 where the device has no units for it.
    """
    for name in ("fp16", "bf16", "amp"):
        if config.common.get(name):
            return name
    chosen = getattr(config.model, "precision", None)
    return product_precision(str(chosen), "cpu" if on_cpu(config) else "cuda")


def devices_in_words(config: DictConfig) -> str:
    """Describe the devices: ``on the CPU in fp32``, ``on NVIDIA H100 in bf16, 8 processes``."""
    names = {torch.cuda.get_device_name(number): number for number in range(gpus_to_use(config))}
    precision = precision_of(config)
    processes = config.distributed_training.distributed_world_size
    if names and precision == "fp32" and tf32():
        precision = "TF32"
    where = f"on {', '.join(names) or 'the CPU'} in {precision}"
    return f"{where}, {processes} processes" if processes > 1 else where
