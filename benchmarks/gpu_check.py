"""What one GPU does with our model and fairseq's, in one command of some minutes.

    make gpu-check                                     or: python -m benchmarks.gpu_check
    python -m benchmarks.gpu_check --device cpu        each stage with tiny sizes: a trial, on a CPU

It trains base with 8,192 and 25,000 max-tokens and big with 25,000, in fp32, TF32, fp16 and bf16,
ours also with --compile: ms an update, real target tokens per second, memory, kernels, how busy the
GPU was, MFU. Then it decodes 1, 32 and 128 sentences at a time. It resumes a training, and compares
translations with the CPU's.

Each figure is printed when it is known, and RESULTS/HARDWARE_DATE_gpu_check.json and .md are
written again. A stage that fails or is late is named, and the rest goes on. On an H100 with 16 slow
cores, what comes before the first timing took three minutes.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import decode
from benchmarks.gpu_correctness import compare_resumed, compare_translations
from benchmarks.gpu_record import BenchmarkRecord
from benchmarks.gpu_training import (
    AS_IT_COMES,
    SYSTEMS,
    TRIAL,
    TimedTraining,
    product_precision,
    row_of,
)
from benchmarks.joined_text import join_sentences
from benchmarks.run import MULTI30K, RESULTS, demo_data, record_name
from benchmarks.systems import measurable_systems, precision_of, size_flags
from benchmarks.worker import Worker, deadline, log_progress
from vaswani.common.environment import machine

TEXT = """
--data takes any data-bin with a joint dictionary and the parts train and test; long sentences are
better. Without it, Multi30k is used if 'vaswani prepare' made it, else the demo's text: 60,000
pairs, each joined from 1 to 5 of its sentences, and 32,000 types, nearly all of which never occur.
The record of 2026-11-26 on an H200, which was made by hand, has 60,000 pairs of Canadian statutes,
27 words a sentence, and 31,000 types.
"""


Systems = dict[str, dict[str, Any]]


class Scale(NamedTuple):
    """How much is done on a device. Times are in seconds."""

    workloads: dict[str, dict[int, Systems]]
    """Size of the model → max-tokens → the systems that train."""
    updates: int
    """Of a round, at most."""
    compiling_updates: int
    peak_products: int
    """How many products of each size the peak is the best of."""
    pairs: dict[str, int]
    """Of the joined text, by part."""
    vocabulary: int
    decoding_size: str
    decoding_updates: int
    decoded: tuple[str, ...]
    """Systems of :mod:`benchmarks.decode`."""
    decoding_batches: dict[int, int]
    """Sentences at a time → sentences in all."""
    resumed_updates: int
    translated: int
    """Sentences."""
    patience: int
    """How many times the deadlines are allowed."""


ON_GPU = Scale(
    workloads={
        "base": {8192: SYSTEMS, 25000: {**SYSTEMS, **AS_IT_COMES}},
        "big": {25000: SYSTEMS},
    },
    updates=8,
    compiling_updates=16,  # a graph may hold for lengths that are multiples of 8 alone
    peak_products=20,
    pairs={"train": 60000, "test": 200},
    vocabulary=32000,
    decoding_size="base",
    decoding_updates=150,
    decoded=("fairseq", "fairseq --fp16", "ours", "ours, bf16"),
    decoding_batches={1: 4, 32: 64, 128: 128},
    resumed_updates=200,
    translated=500,
    patience=1,
)
ON_CPU = Scale(
    workloads={"trial": {256: TRIAL, 512: TRIAL}},
    updates=1,
    compiling_updates=1,
    peak_products=1,
    pairs={"train": 300, "test": 4},
    vocabulary=1000,
    decoding_size="trial",
    decoding_updates=2,
    decoded=("fairseq", "ours"),
    decoding_batches={1: 1, 4: 4},
    resumed_updates=4,
    translated=4,
    patience=4,  # a trial, on busy cores too
)
ROUNDS, DECODING_ROUNDS = 3, 2
DEADLINES = {
    "starting": 90,
    "compiling": 150,
    "measuring": 60,
    "resuming": 120,
    "translating": 60,
    "training to decode": 90,
    "decoding": 60,
}
"""Seconds for each stage; a measurement is one system's with one batch size."""


class Check:
    """The stages, in order, and what they share.

    Args:
        data: the data-bin to train on and to decode
        folder: for what is made on the way
    """

    def __init__(
        self, scale: Scale, device: str, data: str, record: BenchmarkRecord, folder: Path
    ) -> None:
        self.scale = scale
        self.device = device
        self.data = data
        self.record = record
        self.folder = folder
        self.peaks: dict[str, float] = {}

    def run(self) -> None:
        """Compile in processes while results are checked; then time each system alone."""
        compiling = {size: self.start(size, compiled=True) for size in self.scale.workloads}
        for workers in compiling.values():
            for worker in workers.values():
                worker.tell("warm_up_and_wait", self.scale.compiling_updates)
        self.check_results()
        checkpoint = self.train_to_decode()
        for size in compiling:
            started = self.wait_for_all(size, "starting", compiling[size])
            compiling[size] = self.wait_for_all(size, "compiling", started)
        for size in self.scale.workloads:
            workers = self.wait_for_all(size, "starting", self.start(size, compiled=False))
            self.measure_training(size, {**workers, **compiling[size]})
        if checkpoint:
            self.measure_decoding(checkpoint)

    def deadline(self, stage: str) -> AbstractContextManager[None]:
        """Return the deadline of a stage in :data:`DEADLINES`, counted from now."""
        return deadline(DEADLINES[stage] * self.scale.patience)

    def check_results(self) -> None:
        """Compare a resumed training with a whole one, and translations with the CPU's."""
        with self.record.stage("resuming", "the demo"), self.deadline("resuming"):
            updates = self.scale.resumed_updates
            row = compare_resumed(self.device, updates, self.folder)
            self.record.add("resuming", row)
        with self.record.stage("translating", "the demo"), self.deadline("translating"):
            for row in compare_translations(self.device, self.scale.translated):
                self.record.add("translating", row)

    # ---- training -----------------------------------------------------------------------------

    def start(self, size: str, compiled: bool) -> dict[str, Worker]:
        """Start the processes of the systems with ``--compile``, or of the others."""
        batches = self.scale.workloads[size]
        flags = [*size_flags(size), "--max-tokens", str(min(batches)), "--lr", "5e-4"]
        flags += ["--num-workers", "0"]  # batches are made before the clock starts
        systems: Systems = {}
        for systems_of_batch in batches.values():
            systems.update(measurable_systems(systems_of_batch, self.device))
        workers = {}
        for name, system in systems.items():
            if ("--compile" in system["flags"]) != compiled:
                continue
            options = {
                "data": self.data,
                "flags": [*system["flags"], *flags],
                "device": self.device,
                "cudnn_attention": system.get("cudnn_attention", True),
            }
            environment = {"OMP_NUM_THREADS": "1", **system.get("environment", {})}
            workers[name] = Worker(TimedTraining, options, environment, wait=False)
        return workers

    def wait_for_all(self, size: str, stage: str, workers: dict[str, Worker]) -> dict[str, Worker]:
        """Wait for an answer of all workers, and return those that did not fail."""
        successful = {}
        with self.deadline(stage):
            for name, worker in workers.items():
                with self.record.stage(f"training, {size}", f"{name}, {stage}"):
                    worker.answer()
                    successful[name] = worker
        return successful

    def measure_training(self, size: str, workers: dict[str, Worker]) -> None:
        """Time the systems one after the other, with each number of max-tokens."""
        for max_tokens, systems in self.scale.workloads[size].items():
            section = f"training, {size}, {max_tokens:,} max-tokens"
            arguments = (max_tokens, self.scale.updates, ROUNDS)
            for name in systems:
                if name not in workers:
                    continue
                with self.record.stage(section, name), self.deadline("measuring"):
                    figures = workers[name].ask("time_updates", *arguments)
                    row = row_of(name, figures, self.peak(name, workers[name]))
                    self.record.add(section, row, figures)
        for worker in workers.values():
            worker.end()

    def peak(self, name: str, worker: Worker) -> float:
        """Return operations per second of the fastest product in a system's precision."""
        precision = product_precision(name)
        if precision not in self.peaks:
            arguments = (precision_of(name), self.scale.peak_products)
            self.peaks[precision] = worker.ask("fastest", *arguments)
            teraflops = self.peaks[precision] / 1e12
            self.record.note(f"fastest square product in {precision}: {teraflops:.3g} TFLOP/s")
        return self.peaks[precision]

    # ---- decoding -----------------------------------------------------------------------------

    def train_to_decode(self) -> str | None:
        """Return a checkpoint of fairseq's model after a few updates; None if that failed."""
        with self.record.stage("decoding", "training"), self.deadline("training to decode"):
            arguments = (self.scale.decoding_size, self.scale.decoding_updates)
            return decode.train_checkpoint(self.folder, self.data, self.device, 1, *arguments)
        return None

    def measure_decoding(self, checkpoint: str) -> None:
        """Measure our beam search and fairseq's with the same weights."""
        how = decode.Configuration(threads=1, workers=1)
        teams = self.start_decoding(checkpoint, how)
        for size, count in self.scale.decoding_batches.items():
            what = f"{size} sentences at a time"
            with self.record.stage("decoding", what), self.deadline("decoding"):
                for team in teams.values():
                    team.translate(how, size, min(size, count))  # the first time is slow
                best = dict.fromkeys(teams, how)
                for row in decode.compare_systems(teams, best, size, count, DECODING_ROUNDS):
                    self.record.add("decoding", row)
        for team in teams.values():
            team.end()

    def start_decoding(self, checkpoint: str, how: decode.Configuration) -> dict[str, decode.Team]:
        """Start the processes that translate, and return those that started."""
        systems = {name: decode.SYSTEMS[name] for name in self.scale.decoded}
        most = max(self.scale.decoding_batches.values())
        teams = decode.start_teams(systems, self.device, self.data, checkpoint, most, [how])
        successful = {}
        with self.deadline("starting"):
            for name, team in teams.items():
                with self.record.stage("decoding", f"{name}, starting"):
                    team.wait()
                    team.translate(how, 1, 1)
                    successful[name] = team
        return successful


def parser() -> argparse.ArgumentParser:
    """Return the parser: the device, the data, and the folder for the record."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        epilog=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    options.add_argument("--data", metavar="DATA-BIN", help="to train on and to decode: see below")
    options.add_argument("--out", metavar="DIR", default=str(RESULTS), help="(benchmarks/results)")
    return options


def data_to_use(chosen: str | None, demo: str, scale: Scale, folder: Path) -> tuple[str, str]:
    """Return the data-bin, and how the record names it.

    Args:
        demo: the demo's data-bin
        folder: for the text that is joined from it
    """
    data = chosen or str(MULTI30K)
    if Path(data).is_dir() or chosen:
        return str(Path(data).resolve()), data
    joined = folder / "joined"
    join_sentences(Path(demo), joined, scale.pairs, scale.vocabulary)
    return str(joined), f"the demo's text, joined to {scale.pairs['train']:,} longer pairs"


def main(argv: Sequence[str]) -> int:
    """Run the check, and write the record."""
    args = parser().parse_args(argv)
    facts = machine(args.device)
    if args.device == "cuda" and not facts["gpus"]:
        print("torch can use no GPU here; a trial without one: --device cpu", file=sys.stderr)
        return 2
    scale = ON_GPU if args.device == "cuda" else ON_CPU
    path = Path(args.out) / record_name(facts, ["gpu_check"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data, facts["data"] = data_to_use(args.data, demo_data(), scale, Path(folder))
        facts["command"] = " ".join(["python -m benchmarks.gpu_check", *argv])
        record = BenchmarkRecord(facts, path)
        Check(scale, args.device, data, record, Path(folder)).run()
    print(record.report())
    log_progress(f"written to {path}.json and .md: please send the first")
    return int(record.has_failures())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
