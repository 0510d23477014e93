"""What one GPU does with our model and fairseq's, in one command of about ten minutes.

    make gpu-check                                     or: python -m benchmarks.gpu_check
    python -m benchmarks.gpu_check --device cpu        the same on a CPU, with tiny sizes: a trial

It measures training (fp32, TF32, bf16, fp16, --compile: tokens per second, MFU, peak memory, and
which kernels take the time) and decoding (1, 32, 128 sentences at a time), and resumes a training.
What fails is named, and the rest goes on. It writes RESULTS/HARDWARE_DATE_gpu_check.json and .md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import decode
from benchmarks.machine import machine, peak_flops, precisions
from benchmarks.run import RESULTS, data_to_use, physical_cores, record_name
from benchmarks.systems import (
    OURS,
    TRAINED,
    TRAINED_ON_GPU,
    TUNED,
    measurable,
    precision_of,
    size_flags,
)
from benchmarks.table import Row, compare, markdown
from benchmarks.train import Training
from benchmarks.worker import Worker, WorkerError, log_progress
from vaswani.common.files import atomic_write

#: torch's own switch, from outside
TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
SYSTEMS: dict[str, dict[str, Any]] = {
    **{name: system for name, system in TRAINED.items() if not name.endswith(TUNED)},
    **TRAINED_ON_GPU,
    "fairseq, TF32": {**TRAINED["fairseq"], "environment": TF32},
    "ours, TF32": {**TRAINED["ours"], "environment": TF32},
    "ours, --compile": {"flags": [*OURS, "--compile"]},
    "ours, bf16, --compile": {"flags": [*OURS, "--precision", "bf16", "--compile"]},
}
#: device → the model's size, its --max-tokens, updates a round, updates of the model to decode with
#: and its size, sentences to decode
WORK = {"cuda": ("base", 8192, 20, 500, "small", 500), "cpu": ("tiny", 512, 2, 4, "tiny", 2)}
ROUNDS, KERNELS = 3, 12


class Checked(Training):
    """A training that also says where its time goes."""

    def kernels(self) -> dict[str, float]:
        """The kernels (on a CPU: operators) that take most of an update, with milliseconds."""
        from torch.profiler import ProfilerActivity, profile

        on_gpu = self.device == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as profiled:
            self.updates(1)
        events = profiled.key_averages()
        time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        if not hasattr(events[0], time):
            time = "self_cuda_time_total"  # torch 2.2
        kind = self.device.upper()
        taken = {e.key: getattr(e, time) / 1000 for e in events if e.device_type.name == kind}
        longest = sorted(taken, key=lambda key: -taken[key])[:KERNELS]
        return {key: round(taken[key], 3) for key in longest}

    def fastest(self, precision: str, threads: int) -> float:
        """:func:`benchmarks.machine.peak_flops`, with this process's settings of torch."""
        return peak_flops(self.device, precision, threads)


def training(device: str, data: str, threads: int, folder: Path) -> dict[str, Any]:
    """Every system, one after the other, so that a GPU has to hold one alone."""
    size, max_tokens, updates, *_ = WORK[device]
    flags = [*size_flags(size), "--max-tokens", str(max_tokens), "--lr", "5e-4"]
    flags += ["--num-workers", "0" if device == "cpu" else "2"]
    peaks: dict[str, float] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    more: dict[str, Row] = {}
    failed: dict[str, str] = {}
    for name, system in measurable(SYSTEMS, device).items():
        if device == "cpu" and "--compile" in system["flags"]:
            continue  # compiling takes minutes there
        environment = {"OMP_NUM_THREADS": str(threads), **system.get("environment", {})}
        computed_in = "TF32" if "environment" in system else precision_of(name)
        try:
            options = {"data": data, "flags": [*system["flags"], *flags], "device": device}
            options["autocast"] = system.get("autocast", False)
            worker = Worker(Checked, options, environment)
            worker.ask("warm_up", updates)
            rounds = [worker.ask("updates", updates) for _ in range(ROUNDS)]
            speed = worker.ask("flops") / sum(one["seconds"] for one in rounds)
            if computed_in not in peaks:
                peaks[computed_in] = worker.ask("fastest", precision_of(name), threads)
            more[name] = {
                "MFU": f"{100 * speed / peaks[computed_in]:.0f} %",
                "peak MB": worker.ask("peak_megabytes"),
                "loss": round(rounds[-1]["losses"][-1], 3),
                "kernels": worker.ask("kernels"),
            }
            found[name] = rounds
            worker.end()
            log_progress(f"training: {name} done")
        except WorkerError as error:
            failed[name] = str(error).strip().splitlines()[-1]
            log_progress(f"training: {name} failed: {failed[name]}")
    rows = [{**row, **more[row["system"]]} for row in compare(found)] if found else []
    kernels = {row["system"]: row.pop("kernels") for row in rows}
    work = f"{size}, {max_tokens:,} max-tokens"
    figures = {"rows": rows, "peak_flops": peaks, "kernels": kernels}
    return {"work": work, "failed": failed, **figures}


def decoding(device: str, data: str, threads: int, folder: Path) -> dict[str, Any]:
    """Our beam search and fairseq's with the same weights, 1, 32 and 128 sentences at a time."""
    *_, updates, size, count = WORK[device]
    checkpoint = decode.train_checkpoint(folder, data, device, threads, size, updates)
    how = decode.Configuration(threads, 1)
    teams = decode.start_systems(device, data, checkpoint, count, [how], peers=False)
    rows: list[Row] = []
    for batch in (1, 32, 128):
        for team in teams.values():
            team.translate(how, batch, min(batch, count))  # the first time is slow
        of = min(count, 20 if batch == 1 else count)
        best = dict.fromkeys(teams, how)
        rows += decode.compare_systems(teams, best, batch, of, ROUNDS)
    for team in teams.values():
        team.end()
    return {"work": f"{size}, {updates} updates", "rows": rows}


def resuming(device: str, data: str, threads: int, folder: Path) -> dict[str, Any]:
    """200 updates, stopped in the middle and continued, beside 200 that were not stopped."""
    from transformer_plugin.checkpoints import load_checkpoint

    last = 200 if device == "cuda" else 4
    changes = [f"task.data={data}", f"checkpoint.save_interval_updates={last // 2}"]
    changes += ["model.precision=bf16", *(["common.cpu=true"] if device == "cpu" else [])]
    said: list[str] = []
    for run, until in (("resumed", last // 2), ("resumed", last), ("whole", last)):
        words = [f"optimization.max_update={until}", f"run={folder / run}"]
        command = [sys.executable, "-m", "vaswani", "train", "demo_en_de", *changes, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        if done.returncode:
            raise WorkerError(f"'vaswani train' failed: {lines[-1]}")
        said += [line for line in lines if line.startswith(("training ", "continuing "))]
    resumed, whole = (
        load_checkpoint(folder / run / "checkpoints" / "checkpoint_last.pt")["model"]
        for run in ("resumed", "whole")
    )
    largest = max(float((resumed[name] - whole[name]).abs().max()) for name in whole)
    row = {"updates": last, "stopped at": last // 2, "largest difference of a weight": largest}
    return {"work": "demo_en_de", "rows": [row], "said": said}


SECTIONS: dict[str, Callable[[str, str, int, Path], dict[str, Any]]] = {
    "training": training,
    "decoding": decoding,
    "resuming": resuming,
}


def report(facts: dict[str, Any], results: dict[str, Any]) -> str:
    """The record as Markdown."""
    name = facts["cpu"] if facts["device"] == "cpu" else ", ".join(facts["gpus"])
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    lines = [
        f"# gpu-check on {name}",
        "",
        f"{facts['time']}, commit `{facts['commit']}`, {versions}.",
    ]
    lines.append(f"Data: {facts['data']}. Medians (least–most); ratios are to fairseq.")
    for key, result in results.items():
        lines += ["", f"## {key}: {result.get('work', '')}", "", markdown(result["rows"]), ""]
        lines += [f"- failed: {what}: {why}" for what, why in result.get("failed", {}).items()]
        lines += [f"- `{line}`" for line in result.get("said", [])]
        for precision, flops in result.get("peak_flops", {}).items():
            lines.append(f"- fastest square product in {precision}: {flops / 1e9:,.0f} GFLOP/s")
        for system, taken in result.get("kernels", {}).items():
            longest = ", ".join(f"`{kernel}` {ms:g}" for kernel, ms in list(taken.items())[:4])
            lines.append(f"- {system}, ms of an update: {longest}")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Check, and write the record after each section."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    parser.add_argument("--data", metavar="DATA-BIN", help="(default: Multi30k's, else the demo's)")
    parser.add_argument("--out", metavar="DIR", default=str(RESULTS), help="(benchmarks/results)")
    args = parser.parse_args(argv)
    facts = machine(args.device)
    if args.device == "cuda" and not facts["gpus"]:
        print("torch can use no GPU here; a trial without one: --device cpu", file=sys.stderr)
        return 2
    started, data = time.monotonic(), str(Path(data_to_use(args.data)).resolve())
    threads = physical_cores() if args.device == "cuda" else 1  # a trial, on busy cores too
    facts.update(data=data, threads_used=threads, precisions=precisions(args.device))
    path = Path(args.out) / record_name(facts, ["gpu_check"])
    path.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for key, section in SECTIONS.items():
        try:
            with tempfile.TemporaryDirectory() as folder:
                results[key] = section(args.device, data, threads, Path(folder))
        except WorkerError as error:
            reason = str(error).strip().splitlines()[-1]
            results[key] = {"rows": [], "failed": {key: reason}}
        facts["seconds"] = round(time.monotonic() - started)
        with atomic_write(path.with_name(f"{path.name}.json")) as stream:
            json.dump({"machine": facts, "results": results}, stream, indent=1)
        with atomic_write(path.with_name(f"{path.name}.md")) as stream:
            stream.write(report(facts, results))
    print(report(facts, results))
    print(f"written to {path}.json and .md: please send the first", file=sys.stderr)
    return int(any(result.get("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
