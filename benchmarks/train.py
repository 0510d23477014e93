"""Training speed: fairseq's trainer with fairseq's model and with ours, on the same batches."""

import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.machine import peak_flops, precisions, switch_cudnn_attention_off
from benchmarks.systems import (
    FAIRSEQ_FLAGS,
    KEEPS_MEMORY,
    REFERENCES,
    TRAINED,
    TRAINED_ON_GPU,
    TUNED,
    VASWANI_FLAGS,
    measurable_systems,
    precision_of,
    size_flags,
)
from benchmarks.table import Row, median_and_range, speed_rows
from benchmarks.worker import Worker, log_progress
from vaswani.common.environment import peak_megabytes


class Training:
    """A training run in this process that does updates on request.

    Args:
        data: a data-bin with a training part
        flags: those of fairseq-train for the system under test
        device: ``cpu`` or ``cuda``
        autocast: run the model's forward under bf16 autocast, as our own precision switch does
        cudnn_attention: let torch choose cuDNN for attention (:mod:`benchmarks.systems`)
    """

    def __init__(
        self,
        data: str,
        flags: list[str],
        device: str,
        autocast: bool = False,
        cudnn_attention: bool = True,
    ) -> None:
        import torch

        from vaswani.configuration.plugin import load_plugin

        load_plugin()
        if not cudnn_attention:
            switch_cudnn_attention_off()
        self.device = device
        self.trainer = make_trainer([data, *flags, *(["--cpu"] if device == "cpu" else [])])
        if autocast:
            forward = self.trainer._model.forward

            def under_autocast(*args: Any, **kwargs: Any) -> Any:
                with torch.autocast(device, dtype=torch.bfloat16):
                    return forward(*args, **kwargs)

            self.trainer._model.forward = under_autocast
        self.epoch = self.trainer.get_train_iterator(epoch=1, load_dataset=True)
        self.batches = iter(())
        self.seen = [0, 0, 0]  # source tokens, target tokens, sentences
        self.positions = 0  # of the target, pads included

    def updates(self, count: int) -> dict[str, Any]:
        """Do ``count`` updates and measure them.

        Returns:
            seconds of wall-clock and of processor time, target tokens, and each update's loss in
                bits per token; None for an update that ``--fp16`` skipped.
        """
        samples = [[self.next_batch()] for _ in range(count)]
        tokens = sum(sample[0]["ntokens"] for sample in samples)
        source = sum(int(sample[0]["net_input"]["src_lengths"].sum()) for sample in samples)
        sentences = sum(sample[0]["nsentences"] for sample in samples)
        self.positions += sum(sample[0]["target"].numel() for sample in samples)
        self.seen = [a + b for a, b in zip(self.seen, (source, tokens, sentences), strict=True)]
        self.synchronise()
        start = time.perf_counter()
        processor = time.process_time()
        losses = [self.update(sample) for sample in samples]
        self.synchronise()
        return {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - processor,
            "tokens": int(tokens),
            "losses": losses,
        }

    def update(self, sample: Any) -> float | None:
        """Do one update, and return its loss: None if ``--fp16`` found its loss scale too large.

        fairseq's trainer would return None too where memory is short, were it not told to raise.
        """
        logged = self.trainer.train_step(sample, raise_oom=True)
        return float(logged["loss"]) if logged else None

    def warm_up(self, count: int) -> float:
        """Do ``count`` updates that are not measured, and as many again while ``--fp16`` skips one.

        Returns:
            The seconds of the last ``count``.
        """
        result = self.updates(count)
        while None in result["losses"]:
            result = self.updates(count)
        self.seen = [0, 0, 0]
        self.positions = 0
        return float(result["seconds"])

    def next_batch(self) -> Any:
        """Return the next batch; after the last one of an epoch, the next epoch's first."""
        sample: Any
        for sample in self.batches:
            return sample
        self.batches = self.epoch.next_epoch_itr(shuffle=True)
        return next(self.batches)

    def synchronise(self) -> None:
        """Wait until the GPU has finished."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def flops(self) -> float:
        """Return the operations of the measured updates (:mod:`vaswani.planning.arithmetic`)."""
        from argparse import Namespace

        from omegaconf import OmegaConf

        from vaswani.planning.arithmetic import sizes_of, training_flops

        config = self.trainer.cfg.model
        if isinstance(config, Namespace):  # fairseq's own model, which has no dataclass
            config = OmegaConf.create({k: v for k, v in vars(config).items() if type(v) is int})
        sizes = sizes_of(config, len(self.trainer.task.target_dictionary))
        source, target, sentences = self.seen
        lengths = (source / sentences, target / sentences)
        return training_flops(sizes, 1, source, target, lengths)

    def real_share(self) -> float:
        """Return the share of the target's positions that are not padding."""
        return self.seen[1] / self.positions

    def save_for_fairseq(self, arguments: list[str], path: str) -> None:
        """Save the weights as a checkpoint of the fairseq model that ``arguments`` define."""
        from vaswani.packing.convert import to_fairseq

        other = make_trainer([*arguments, *(["--cpu"] if self.device == "cpu" else [])])
        weights = to_fairseq(self.trainer.model.state_dict())
        # the missing keys are tables and, in official fairseq, copies of weights for a fast path
        left_over = other.model.load_state_dict(weights, strict=False).unexpected_keys
        if left_over:
            raise RuntimeError(f"fairseq's model has no {', '.join(left_over)}")
        other.consolidate_optimizer()
        other.save_checkpoint(path, {})

    def peak_megabytes(self) -> float:
        """Return the peak memory: see :func:`vaswani.common.environment.peak_megabytes`."""
        return peak_megabytes(self.device)


def make_trainer(arguments: list[str]) -> Any:
    """Build fairseq's trainer as ``fairseq-train`` would from these arguments."""
    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    from transformer_plugin.compat.scope import is_plugin_model
    from vaswani_transformer.fast import malloc

    parser = options.get_training_parser()
    # else fairseq counts on all GPUs that it sees
    alone = ["--distributed-world-size", "1"]
    args = options.parse_args_and_arch(parser, input_args=[*arguments, *alone])
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(config.common.seed)
    task = tasks.setup_task(config.task)
    model = task.build_model(config.model)
    if is_plugin_model(type(model)):
        malloc.keep_freed_memory()  # as fairseq-train does
    return Trainer(config, task, model, task.build_criterion(config.criterion))


WORKLOADS = {"small": (2048, 4, 5), "base": (4096, 1, 3), "tiny": (4096, 4, 5), "big": (1024, 1, 3)}
"""Max-tokens on a CPU, updates in a round, and rounds, by size."""


def run(
    device: str, full: bool, data: str, threads: int, sizes: Sequence[str] = ()
) -> dict[str, Any]:
    """Train every system at each of ``sizes`` (default: small and base, ``full``: all)."""
    peaks = dict.fromkeys(precisions(device), 0.0)
    rows: list[Row] = []
    for size in sizes or (tuple(WORKLOADS) if full else ("small", "base")):
        max_tokens, updates, rounds = WORKLOADS[size]
        if device == "cuda":
            max_tokens, updates = max(4 * max_tokens, 8192), 10
        for precision, peak in peaks.items():  # each time, as the machine may have been busy
            peaks[precision] = max(peak, peak_flops(device, precision, threads))
        systems = {**TRAINED, **(TRAINED_ON_GPU if device == "cuda" else {})}
        for group in groups(measurable_systems(systems, device), size):
            flags = [*size_flags(size), "--max-tokens", str(max_tokens), "--lr", "5e-4"]
            flags += ["--num-workers", "0" if device == "cpu" else "2"]
            work = f"{size}, {max_tokens:,} max-tokens"
            for row in measure_systems(group, flags, updates, rounds, device, data, threads):
                rows.append({"work": work, **row})
    for row in rows:
        peak = peaks[precision_of(row["system"])]
        row["MFU"] = f"{100 * row['MFU'] / peak:.0f} %"
    if full:
        rows += sweep(device, data, threads)
    return {"rows": rows, "peak_flops": peaks}


def groups(systems: dict[str, Any], size: str) -> list[dict[str, Any]]:
    """Return the groups of systems that take turns.

    All systems are one group. Only if more than four train the big model, for which 24 GB is too
    little, those with glibc tuned are a group of their own.
    """
    if size != "big" or len(systems) <= 4:
        return [systems]
    tuned = {name: system for name, system in systems.items() if name.endswith(TUNED)}
    return [{name: system for name, system in systems.items() if name not in tuned}, tuned]


def measure_systems(
    systems: dict[str, Any],
    flags: list[str],
    updates: int,
    rounds: int,
    device: str,
    data: str,
    threads: int,
) -> list[Row]:
    """Train all systems on the same batches, a few updates in turn, and return one row for each.

    The column MFU still holds operations per second; :func:`run` turns it into a share.
    """
    workers = {}
    for name, system in systems.items():
        options = {
            "data": data,
            "flags": [*system["flags"], *flags],
            "device": device,
            "autocast": system.get("autocast", False),
            "cudnn_attention": system.get("cudnn_attention", True),
        }
        environment = {"OMP_NUM_THREADS": str(threads), **system.get("environment", {})}
        workers[name] = Worker(Training, options, environment)
    for worker in workers.values():
        worker.ask("warm_up", 2)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for number in range(rounds):
        for name, worker in workers.items():
            results[name].append(worker.ask("updates", updates))
            log_progress(f"train: round {number + 1} of {rounds}, {name}")
    rows = speed_rows(results, REFERENCES)
    for row in rows:
        worker = workers[row["system"]]
        measurements = results[row["system"]]
        last = measurements[-1]
        seconds = sum(measurement["seconds"] for measurement in measurements)
        row["s/update"] = last["seconds"] / updates
        row["peak MB"] = worker.ask("peak_megabytes")
        row["MFU"] = worker.ask("flops") / seconds
        row["real tokens"] = f"{100 * worker.ask('real_share'):.0f} %"
        row["loss"] = last_loss(last["losses"])
        worker.end()
    return rows


def last_loss(losses: Sequence[float | None]) -> float | None:
    """Return the loss of the last update that was not skipped."""
    finished = [loss for loss in losses if loss is not None]
    return round(finished[-1], 3) if finished else None


def speed_of(result: dict[str, Any]) -> float:
    """Return the tokens per second of measured updates."""
    speed: float = result["tokens"] / result["seconds"]
    return speed


def sweep(device: str, data: str, threads: int) -> list[Row]:
    """Measure fairseq's ``small`` with other settings, to find its fastest, beside ours.

    On a CPU glibc is tuned for both. Ours is in bf16 if the device has units for it, and keeps one
    setting; the ratio is that of tokens per second, round by round.
    """
    small = [*size_flags("small"), "--lr", "5e-4", "--max-tokens"]
    precision = precisions(device)[-1]
    variables = KEEPS_MEMORY if device == "cpu" else {}
    tuned = TUNED if device == "cpu" else ""
    ours = Worker(
        Training,
        {
            "data": data,
            "flags": [
                *VASWANI_FLAGS,
                *small,
                "2048",
                "--num-workers",
                "0",
                "--precision",
                precision,
            ],
            "device": device,
        },
        {"OMP_NUM_THREADS": str(threads), **variables},
    )
    ours.ask("warm_up", 3)
    rows: list[Row] = []
    settings = product((1024, 2048, 4096, 8192), (0, 1), sorted({1, threads}))
    for max_tokens, loaders, their_threads in settings:
        flags = [*FAIRSEQ_FLAGS, *small, str(max_tokens), "--num-workers", str(loaders)]
        worker = Worker(
            Training,
            {"data": data, "flags": flags, "device": device},
            {"OMP_NUM_THREADS": str(their_threads), **variables},
        )
        worker.ask("warm_up", 2)
        pairs = [(worker.ask("updates", 2), ours.ask("updates", 2)) for _ in range(3)]
        worker.end()
        their_speeds = [speed_of(theirs) for theirs, _ in pairs]
        ratios = [speed_of(own) / speed_of(theirs) for theirs, own in pairs]
        row: Row = {"work": f"small, {max_tokens:,} max-tokens"}
        row["system"] = f"fairseq, {their_threads} threads, {loaders} loaders{tuned}"
        row["tokens/s"] = median_and_range(their_speeds)
        row[f"ours, {precision}, 2,048 max-tokens, relative to it"] = median_and_range(ratios)
        rows.append(row)
        log_progress(f"sweep: {row['system']}, {max_tokens}")
    ours.end()
    return rows
