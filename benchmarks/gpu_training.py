"""Systems that train on one GPU: each waits in its process for its turn, and says what it took."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.machine import peak_flops
from benchmarks.systems import FAIRSEQ_FLAGS, TRAINED, TRAINED_ON_GPU, VASWANI_FLAGS, precision_of
from benchmarks.table import Row, median_and_range
from benchmarks.train import Training, last_loss

TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
"""torch's own switch, from outside."""

WITHOUT_CUDNN: dict[str, dict[str, Any]] = {
    "fairseq": {**TRAINED["fairseq"], "cudnn_attention": False},
    "fairseq, TF32": {**TRAINED["fairseq"], "cudnn_attention": False, "environment": TF32},
    "fairseq --fp16": TRAINED_ON_GPU["fairseq --fp16"],
}
"""fairseq's model at its best; the fastest of these is what the others are compared with."""

AS_IT_COMES: dict[str, dict[str, Any]] = {
    "fairseq --fp16, as it comes": {"flags": [*FAIRSEQ_FLAGS, "--fp16"]},
}
"""With cuDNN, if torch chooses it."""

SYSTEMS: dict[str, dict[str, Any]] = {
    **WITHOUT_CUDNN,
    "ours": TRAINED["ours"],
    "ours, TF32": {**TRAINED["ours"], "environment": TF32},
    "ours --fp16": TRAINED_ON_GPU["ours --fp16"],
    "ours, bf16": TRAINED["ours, bf16"],
    "ours, bf16, --compile": {"flags": [*VASWANI_FLAGS, "--precision", "bf16", "--compile"]},
}

TRIAL: dict[str, dict[str, Any]] = {
    "fairseq": WITHOUT_CUDNN["fairseq"],
    "ours": TRAINED["ours"],
    "ours, --compile": {"flags": [*VASWANI_FLAGS, "--compile"]},
}
"""One of each kind, for a CPU."""

ROUND_SECONDS, LEAST_UPDATES = 1.0, 2
USER_SCOPE = 7
"""Of a range that ``record_function`` marks, in torch's profiles."""


class Profile(NamedTuple):
    """The kernels of one update (on a CPU: operators)."""

    kernels: float
    milliseconds: float
    by_name: dict[str, float]
    """Milliseconds, the longest first."""


class TimedTraining(Training):
    """A training that shares a device with others which wait while it is measured."""

    def warm_up_and_wait(self, updates: int) -> None:
        """Train for some updates, so that layers are compiled, and release the memory."""
        self.warm_up(updates)
        self.release_memory()

    def time_updates(self, max_tokens: int, most_updates: int, rounds: int) -> dict[str, Any]:
        """Time rounds of updates, and measure their memory and kernels.

        Args:
            max_tokens: of a batch, padding included
            most_updates: in a round; fewer are done if they would take more than a second
        """
        self.train_with(max_tokens)
        self.warm_up(2)
        seconds = self.warm_up(2) / 2
        updates = max(LEAST_UPDATES, min(most_updates, round(ROUND_SECONDS / seconds)))
        measured = [self.updates(updates) for _ in range(rounds)]
        figures = {
            "updates": updates,
            "rounds": measured,
            "flops": self.flops(),
            "real_share": self.real_share(),
            "peak_megabytes": self.peak_megabytes(),
            "profile": self.profile(LEAST_UPDATES)._asdict(),
        }
        self.release_memory()
        return figures

    def train_with(self, max_tokens: int) -> None:
        """Switch to batches of another size, from the first one."""
        self.trainer.cfg.dataset.max_tokens = max_tokens
        self.epoch = self.trainer.get_train_iterator(
            epoch=1, load_dataset=False, disable_iterator_cache=True
        )
        self.batches = iter(())

    def profile(self, updates: int) -> Profile:
        """Return the kernels of an update: means over some updates."""
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self.device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities) as profiled:
            self.updates(updates)
        return kernels_of(profiled.key_averages(), self.device, updates)

    def release_memory(self) -> None:
        """Release the GPU memory that torch keeps for later."""
        if self.device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def fastest(self, precision: str, times: int) -> float:
        """Measure :func:`benchmarks.machine.peak_flops` with this process's settings of torch."""
        import torch

        return peak_flops(self.device, precision, torch.get_num_threads(), times)


def kernels_of(events: Sequence[Any], device: str, updates: int) -> Profile:
    """Return the profile of one update from recorded events.

    A GPU's part of it also has ranges, which contain kernels ("forward", "Optimizer.step#…"), and
    copies and fills of memory, which compute nothing.

    Args:
        events: sums by name, of the host and of the device
        updates: how many were profiled
    """
    ranges = {event.key for event in events if event.scope == USER_SCOPE}
    kernels: dict[str, float] = {}
    count = 0
    for event in events:
        # torch 2.2 does not mark a range's part on the GPU, which has the same name
        is_range = getattr(event, "is_user_annotation", event.key in ranges)
        on_device = event.device_type.name == device.upper()
        if not on_device or is_range or event.key.startswith(("Memcpy", "Memset")):
            continue
        milliseconds = device_microseconds(event, device) / 1000 / updates
        kernels[event.key] = kernels.get(event.key, 0.0) + milliseconds
        count += event.count
    names = sorted(kernels, key=lambda name: -kernels[name])
    longest_first = {name: kernels[name] for name in names}
    return Profile(count / updates, sum(kernels.values()), longest_first)


def device_microseconds(event: Any, device: str) -> float:
    """Return the microseconds of a kernel; on a CPU, of an operator without those that it calls."""
    if device == "cpu":
        return float(event.self_cpu_time_total)
    if hasattr(event, "self_device_time_total"):
        return float(event.self_device_time_total)
    return float(event.self_cuda_time_total)  # torch 2.2


def row_of(system: str, figures: dict[str, Any], peak: float) -> Row:
    """Return a row of the record from the result of :meth:`TimedTraining.time_updates`.

    Speeds are medians, as ``--compile`` may still compile in one of the rounds: 1,250 ms an update
    beside 70 were seen on an H100.

    Args:
        peak: operations per second of the fastest product in the system's precision
    """
    rounds, updates = figures["rounds"], figures["updates"]
    milliseconds = [1000 * times["seconds"] / updates for times in rounds]
    seconds_of_update = statistics.median(milliseconds) / 1000
    flops_of_update = figures["flops"] / (updates * len(rounds))
    losses = [loss for times in rounds for loss in times["losses"]]
    busy = figures["profile"]["milliseconds"] / 1000 / seconds_of_update
    row = {
        "system": system,
        "ms/update": median_and_range(milliseconds),
        "tokens/s": statistics.median(times["tokens"] / times["seconds"] for times in rounds),
        "real tokens": percent(figures["real_share"]),
        "GB reserved": round(figures["peak_megabytes"] / 1024, 1),
        "kernels": round(figures["profile"]["kernels"]),
        "busy": percent(busy),
        "MFU": percent(flops_of_update / seconds_of_update / peak),
        "loss": last_loss(losses),
    }
    if None in losses:
        row["skipped updates"] = losses.count(None)
    return row


def percent(share: float) -> str:
    """Format a share as a percentage: ``62 %``."""
    return f"{100 * share:.0f} %"


def compare_with_fairseq(rows: list[Row]) -> list[Row]:
    """Add a column to the rows: tokens per second relative to the fastest of fairseq's."""
    speeds = [row["tokens/s"] for row in rows if row["system"] in WITHOUT_CUDNN]
    if not speeds:
        return rows
    return [{**row, "to fairseq's best": row["tokens/s"] / max(speeds)} for row in rows]


def product_precision(system: str) -> str:
    """Return the precision of a system's products, TF32 included: each has a peak of its own."""
    return "TF32" if "TF32" in system else precision_of(system)
