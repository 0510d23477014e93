"""The paper's base model beside fairseq's own, at the paper's size and batch, on one GPU.

    python -m benchmarks.paper_size --text FOLDER --data DIR/data-bin      makes data-bin, then all
    python -m benchmarks.paper_size --data DIR/data-bin --parts speed      at most 3 minutes
    python -m benchmarks.paper_size --data DIR/data-bin --parts training   at most 9.5 minutes
    python -m benchmarks.paper_size --text FOLDER --data DIR/data-bin --device cpu    a tiny trial

FOLDER holds {train,valid}.{en,fr}, plain or .xz. The first 240,000 training pairs are taken; the
joint BPE has 32,000 merges. Both models get the same data-bin, batches of 25,000 max-tokens in one
pass, schedule (equation 3) and seeds. RESULTS/HARDWARE_DATE_paper_size.json and .md are written
again with each figure, the picture at the end. A system that fails or is late is named, and the
rest goes on. **Nothing of this has been measured on a GPU yet.**

1. speed (120 s to start and compile, 60 s to measure): fairseq --fp16, ours in bf16, ours --fp16,
   ours in bf16 with --compile and lengths in multiples of 8, one after the other, twice. fairseq's
   model is without cuDNN's attention, which makes it faster. Nothing else may run on the machine.
2. training (470 s): ours in bf16 and fairseq's with --fp16, two seeds each, side by side, as many
   updates each as the time allows; the loss of every 100 updates. Then the average of the last five
   models, 100 updates apart: its loss (30 of the seconds) and its BLEU with beam 4 (50 s more) on
   the validation set.
3. decoding, after 2 (60 s): greedy and beam 4 on 500 sentences with both averages of seed 1, one
   after the other, twice.

The warm-up has 2,000 updates, not 4,000: some 1,500 updates fit into the time, and their rate then
comes near the paper's peak of 0.0007.

**Expected**, written on 2026-11-28 before any run on a GPU:

1. On an H200, as measured by hand on 2026-11-26: fairseq 60 to 66 ms per update, ours in bf16 1.2
   times as fast, ours --fp16 1.3, compiled 1.4 (then a prototype). On an H100 with a slow
   processor, the limit there: 1.1 to 1.4 for all three, compiled the fastest.
2. No difference between the systems. With the same seed their losses of the last 100 updates differ
   by less than 0.05 bits per token and BLEU by less than 1.0, in either direction, as two seeds of
   one system do. Two seeds cannot show a difference. If ours is worse by more, the first suspects
   are bf16 beside fp16 with fp32 master weights, and positions from 0 instead of 2.
3. Ours translates 1.3 to 1.5 times as many tokens per second with beam 4, and at least 1.2 times as
   many greedily.

**On a machine without a network**: run the first command elsewhere; without a GPU it makes data-bin
and stops. Carry data-bin (some 30 MB), the checkout, and the packages that the machine lacks, as
wheels unpacked into one folder: fairseq-fixed, hydra-core, omegaconf, antlr4-python3-runtime,
bitarray, sacremoses, subword-nmt, sacrebleu. There, with PYTHONPATH=PACKAGES:CHECKOUT,
run the two parts as two commands with limits of 200 and 600 s.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_record import BenchmarkRecord
from benchmarks.gpu_training import product_precision, row_of
from benchmarks.paper_scale import ON_CPU, ON_GPU, Scale
from benchmarks.paper_training import PaperTraining
from benchmarks.run import RESULTS, record_name
from benchmarks.systems import SIZES, precision_of, size_flags
from benchmarks.worker import Worker, deadline, log_progress
from vaswani.common.environment import machine

LEGEND = """Medians (least–most) of rounds. *tokens/s*: real target tokens. *GB reserved*: by torch,
at most. fairseq's model is without cuDNN's attention. *nll*: bits per token, without label
smoothing. *BLEU*: of words, as multi-bleu.perl computes it."""
PARTS = ("speed", "training")
SEEDS = (1, 2)
BEAMS = (1, 4)
PASSES = 2


class PaperSize:
    """The parts, and what they share.

    Args:
        data: the data-bin
    """

    def __init__(self, scale: Scale, device: str, data: str, record: BenchmarkRecord) -> None:
        self.scale = scale
        self.device = device
        self.data = data
        self.record = record
        self.peaks: dict[str, float] = {}

    def start(self, flags: Sequence[str], seed: int = 1) -> Worker:
        """Start a process that trains a system."""
        scale = self.scale
        width = SIZES[scale.size]["embed_dim"]
        words = [*flags, *size_flags(scale.size), "--max-tokens", str(scale.max_tokens)]
        words += ["--lr-scheduler", "vaswani_inverse_sqrt", "--warmup-updates", str(scale.warmup)]
        # fairseq's model has no such option for the schedule to read
        words += ["--d-model", str(width), "--seed", str(seed), "--num-workers", "0"]
        options = {
            "data": self.data,
            "flags": words,
            "device": self.device,
            "cudnn_attention": False,
        }
        return Worker(PaperTraining, options, {"OMP_NUM_THREADS": "1"}, wait=False)

    # ---- speed --------------------------------------------------------------------------------

    def measure_speed(self) -> None:
        """Time the systems one after the other, all of them twice."""
        scale = self.scale
        starting = {name: self.start(flags) for name, flags in scale.speed_systems.items()}
        workers = {}
        with deadline(scale.compiling_seconds):
            for name, worker in starting.items():
                with self.record.stage("speed", f"{name}, starting"):
                    worker.answer()
                    worker.ask("warm_up_and_wait", scale.compiling_updates)
                    workers[name] = worker
        with deadline(scale.measuring_seconds):
            for number in range(1, PASSES + 1):
                for name, worker in workers.items():
                    with self.record.stage("speed", f"{name}, pass {number}"):
                        self.measure_pass(name, worker, number)
        for worker in starting.values():
            worker.end()

    def measure_pass(self, name: str, worker: Worker, number: int) -> None:
        """Time rounds of a system's updates, and record them."""
        scale = self.scale
        precision = product_precision(name)
        if precision not in self.peaks:
            arguments = (precision_of(name), scale.products)
            self.peaks[precision] = worker.ask("fastest", *arguments)
        figures = worker.ask("time_updates", scale.max_tokens, scale.updates, scale.rounds)
        row = row_of(name, figures, self.peaks[precision])
        self.record.section("speed").measured[f"{name}, pass {number}"] = figures
        self.record.add("speed", {"pass": number, **row})

    # ---- training, and decoding with its models -------------------------------------------------

    def train(self) -> None:
        """Train side by side, then average, validate and translate."""
        scale = self.scale
        workers = {}
        for system, flags in scale.trained_systems.items():
            for seed in SEEDS:
                workers[system, seed] = self.start(flags, seed)
        end = time.monotonic() + scale.training_seconds
        with deadline(scale.training_seconds):
            self.keep_successful(workers, "starting")
            curves = self.train_side_by_side(workers, end - scale.averaging_seconds)
            for worker in workers.values():
                worker.tell("finish")
            for key, average in self.keep_successful(workers, "averaging").items():
                self.add_training(key, curves[key], average)
        if curves:
            picture(curves, self.record.path.with_name(f"{self.record.path.name}.png"))
        with deadline(scale.scoring_seconds):
            for worker in workers.values():
                arguments = (BEAMS[-1], scale.scored_sentences, scale.sentences_at_a_time)
                worker.tell("translate", *arguments)
            for (system, seed), done in self.keep_successful(workers, "translating").items():
                self.record.add("BLEU", {"system": system, "seed": seed, "BLEU": done["BLEU"]})
        with deadline(scale.decoding_seconds):
            self.measure_decoding(workers)
        for worker in workers.values():
            worker.end()

    def keep_successful(self, workers: dict[Any, Worker], what: str) -> dict[Any, Any]:
        """Wait for an answer of each worker, and remove a worker that failed from ``workers``."""
        answers = {}
        for key, worker in workers.items():
            with self.record.stage("training", f"{key[0]}, seed {key[1]}, {what}"):
                answers[key] = worker.answer()
        for key in set(workers) - set(answers):
            workers.pop(key).end()
        return answers

    def train_side_by_side(self, workers: dict[Any, Worker], end: float) -> dict[Any, Any]:
        """Train all systems in turn, for equal numbers of updates, until the time is over.

        The losses are recorded after each step, so that they survive a failure of a later one.

        Returns:
            system and seed → what :meth:`PaperTraining.advance` returned for each step
        """
        curves: dict[Any, list[dict[str, Any]]] = {key: [] for key in workers}
        recorded = self.record.section("training").curves
        took = 0.0
        while workers and time.monotonic() + 1.2 * took < end:
            begun = time.monotonic()
            for worker in workers.values():
                worker.tell("advance", self.scale.interval)
            steps = self.keep_successful(workers, "training")
            for (system, seed), step in steps.items():
                curves[system, seed].append(step)
                recorded[f"{system}, seed {seed}"] = curves[system, seed]
            took = time.monotonic() - begun
            losses = [f"{name} {curve[-1]['nll']:.3f}" for name, curve in recorded.items()]
            self.record.show(f"training: {took:.1f} s, {', '.join(losses)}")
        for key in [key for key in workers if not curves[key]]:
            workers.pop(key).end()
        return {key: curve for key, curve in curves.items() if curve}

    def add_training(
        self, key: tuple[str, int], curve: list[dict[str, Any]], average: dict[str, Any]
    ) -> None:
        """Record the figures of a training."""
        system, seed = key
        row = {
            "system": system,
            "seed": seed,
            "updates": curve[-1]["updates"],
            "target tokens": sum(step["tokens"] for step in curve),
            "skipped batches": curve[-1]["skipped"],
            "last rate": round(curve[-1]["rate"], 6),
            "training nll": f"{curve[-1]['nll']:.3f}",
            "averaged": average["averaged"],
            "validation nll": f"{average['nll']:.3f}",
        }
        self.record.add("training", row)

    def measure_decoding(self, workers: dict[Any, Worker]) -> None:
        """Time both systems' averages of the first seed, one after the other."""
        first = {system: worker for (system, seed), worker in workers.items() if seed == SEEDS[0]}
        count, size = self.scale.timed_sentences, self.scale.sentences_at_a_time
        for worker in first.values():
            with self.record.stage("decoding", "warming up"):
                worker.ask("translate", 1, size, size)
        for beam in BEAMS:
            for number in range(PASSES):
                for system, worker in first.items():
                    with self.record.stage("decoding", f"{system}, beam {beam}"):
                        done = worker.ask("translate", beam, count, size)
                        row = {
                            "beam": beam,
                            "pass": number + 1,
                            "system": system,
                            "seconds": round(done["seconds"], 2),
                            "tokens/s": done["tokens"] / done["seconds"],
                            "BLEU": done["BLEU"],
                        }
                        self.record.add("decoding", row)


def picture(curves: dict[tuple[str, int], list[dict[str, Any]]], path: Path) -> None:
    """Draw the losses of all trainings."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = list(dict.fromkeys(system for system, _ in curves))
    colours = {system: f"C{number}" for number, system in enumerate(systems)}
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (system, seed), curve in curves.items():
        axes.plot(
            [step["updates"] for step in curve],
            [step["nll"] for step in curve],
            color=colours[system],
            linestyle="-" if seed == SEEDS[0] else "--",
            label=f"{system}, seed {seed}",
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("training loss, bits per token")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def prepare(text: Path, data: Path, scale: Scale) -> int:
    """Make the data-bin from text unless it is complete; return the code of 'vaswani prepare'."""
    from vaswani import cli

    if data.name != "data-bin":
        raise SystemExit(f"--data {data}: with --text its name has to be data-bin")
    words = ["prepare", "--source-lang", "en", "--target-lang", "fr"]
    words += ["--train", str(text / "train"), "--valid", str(text / "valid")]
    words += ["--bpe", str(scale.merges), "--limit", str(scale.pairs)]
    return cli.main([*words, "--out", str(data.parent), "--if-missing"])


def parser() -> argparse.ArgumentParser:
    """Return the parser: the device, the data, the parts, and the folder for the record."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.paper_size",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    options.add_argument("--data", metavar="DATA-BIN", required=True, help="to train on")
    options.add_argument("--text", metavar="FOLDER", help="to make the data-bin from, if missing")
    options.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="(all)")
    options.add_argument("--out", metavar="DIR", default=str(RESULTS), help="(benchmarks/results)")
    return options


def main(argv: Sequence[str]) -> int:
    """Measure the parts that the arguments name, and write the record."""
    args = parser().parse_args(argv)
    scale = ON_GPU if args.device == "cuda" else ON_CPU
    data = Path(args.data)
    if args.text and prepare(Path(args.text), data, scale):
        return 1
    facts = machine(args.device)
    if args.device == "cuda" and not facts["gpus"]:
        print("torch can use no GPU here; a trial without one: --device cpu", file=sys.stderr)
        return 2
    facts["data"] = str(data)
    facts["command"] = " ".join(["python -m benchmarks.paper_size", *argv])
    path = Path(args.out) / record_name(facts, ["paper_size", *names_of(args.parts)])
    path.parent.mkdir(parents=True, exist_ok=True)
    record = BenchmarkRecord(facts, path, "The paper's size", LEGEND)
    parts = PaperSize(scale, args.device, str(data.resolve()), record)
    if "speed" in args.parts:
        parts.measure_speed()
    if "training" in args.parts:
        parts.train()
    print(record.report())
    log_progress(f"written to {path}.json and .md")
    return int(record.has_failures())


def names_of(parts: Sequence[str]) -> Sequence[str]:
    """Return the parts in a record's name: none if the record has all of them."""
    return [] if len(parts) == len(PARTS) else parts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
