"""Decoding speed: the same weights, the same sentences, beam 4, in fairseq's model and in ours."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.decoding import CTranslate2, Decoding, Sentences, Translated, convert_to_ctranslate2
from benchmarks.systems import (
    FAIRSEQ_FLAGS,
    KEEPS_MEMORY,
    REFERENCES,
    TUNED,
    VASWANI_FLAGS,
    measurable_systems,
    size_flags,
)
from benchmarks.table import Row, markdown, speed_rows
from benchmarks.train import Training
from benchmarks.worker import Worker, log_progress

SYSTEMS: dict[str, dict[str, str]] = {
    "fairseq": {"task": "translation", "model": "fairseq"},
    f"fairseq{TUNED}": {"task": "translation", "model": "fairseq"},
    "ours, fairseq's generator": {"task": "translation", "model": "ours"},
    "fairseq --fp16": {"task": "translation", "model": "fairseq", "precision": "fp16"},
    "ours": {"task": "vaswani_translation", "model": "ours"},
    "ours, bf16": {"task": "vaswani_translation", "model": "ours", "precision": "bf16"},
}
"""All are compared with fairseq's, both ways."""


class Configuration(NamedTuple):
    """How a machine's cores are used: threads of each worker, and workers."""

    threads: int
    workers: int

    def __str__(self) -> str:
        return f"{self.threads} × {self.workers}"


def configurations(device: str, cores: int) -> list[Configuration]:
    """Return the ways to use the cores: all on one batch, one alone, one worker per core."""
    all_cores = Configuration(cores, 1)
    if device != "cpu":
        return [all_cores]
    ways = [all_cores, Configuration(1, 1), Configuration(1, cores)]
    return list(dict.fromkeys(ways))


class Team:
    """fairseq's model or ours in several processes, which translate shares of the same batches.

    Args:
        make, options: see :class:`benchmarks.worker.Worker`
        cores: how many processes, and the most threads that one may use
        variables: of each process
    """

    def __init__(
        self,
        make: Callable[..., Any],
        options: dict[str, Any],
        cores: int,
        variables: Mapping[str, str] = {},
    ) -> None:
        environment = {"OMP_NUM_THREADS": str(cores), **variables}
        self.workers = [Worker(make, options, environment, wait=False) for _ in range(cores)]

    def wait(self) -> None:
        """Wait until the processes have started, before they are asked for anything else."""
        for worker in self.workers:
            worker.answer()

    def translate(self, how: Configuration, size: int, count: int) -> dict[str, Any]:
        """Translate on all workers at once, as :func:`all_at_once` returns it."""
        workers = self.workers[: how.workers]
        for share, worker in enumerate(workers):
            worker.tell("prepare", size, count, how.threads, share, how.workers)
        return all_at_once(workers)

    def peak_megabytes(self, how: Configuration) -> float:
        """Return the peak memory of the processes at work, in MB, summed."""
        return sum(worker.ask("peak_megabytes") for worker in self.workers[: how.workers])

    def end(self) -> None:
        """End the processes of this system."""
        for worker in self.workers:
            worker.end()


class Peer:
    """CTranslate2, which has its own workers: one process for each configuration.

    Args:
        options: of :class:`benchmarks.decoding.CTranslate2`
        ways: the configurations
        reader: a process that has the sentences
    """

    def __init__(self, options: dict[str, Any], ways: list[Configuration], reader: Worker) -> None:
        self.reader = reader
        words, eos = reader.ask("target_words")
        options = {**options, "words": words, "eos": eos}
        self.workers = {}
        for how in ways:
            environment = {"OMP_NUM_THREADS": str(how.threads)}
            self.workers[how] = Worker(CTranslate2, {**options, **how._asdict()}, environment)

    def translate(self, how: Configuration, size: int, count: int) -> dict[str, Any]:
        """Translate on one worker, as :func:`all_at_once` returns it."""
        self.workers[how].tell("prepare", size, self.reader.ask("texts", count))
        return all_at_once([self.workers[how]])

    def peak_megabytes(self, how: Configuration) -> float:
        """Return the peak memory of the process at work, in MB."""
        return float(self.workers[how].ask("peak_megabytes"))

    def end(self) -> None:
        """End the processes of this system."""
        for worker in self.workers.values():
            worker.end()


def all_at_once(workers: list[Worker]) -> dict[str, Any]:
    """Translate on all processes at once, after each has prepared its sentences.

    Returns:
        Seconds from the first start to the last end, target tokens, hypotheses in order.
    """
    for worker in workers:
        worker.answer()
    for worker in workers:
        worker.tell("translate")
    parts: list[Translated] = [worker.answer() for worker in workers]
    hypotheses: dict[int, list[int]] = {}
    for part in parts:
        hypotheses.update(part.hypotheses)
    return {
        "seconds": max(part.ended for part in parts) - min(part.begun for part in parts),
        "tokens": sum(len(words) for words in hypotheses.values()),
        "hypotheses": [hypotheses[number] for number in sorted(hypotheses)],
    }


def run(device: str, full: bool, data: str, cores: int, checkpoint: str) -> dict[str, Any]:
    """Measure tokens per second by batch size, and how many hypotheses equal fairseq's.

    Returns:
        the rows, those of the first round, notes and the checkpoint
    """
    count = 1000 if full else 200
    ways = configurations(device, cores)
    teams = start_systems(device, data, checkpoint, count, ways)
    rows: list[Row] = []
    swept_rows: list[Row] = []
    for size, sentences in ((1, 20), (32, count), (128, count), (count, count)):
        batches = math.ceil(sentences / size)
        busy = [how for how in ways if how.workers <= batches]
        best, speeds = sweep(teams, busy, size, sentences)
        swept_rows += speeds
        rows += compare_systems(teams, best, size, sentences, rounds=3)
    for team in teams.values():
        team.end()
    note = (
        "Cores: threads × processes (for CTranslate2, its own workers). Each system uses what was "
        "fastest for it in one round beforehand; tokens/s in that round:\n\n" + markdown(swept_rows)
    )
    return {"rows": rows, "sweep": swept_rows, "notes": [note], "checkpoint": checkpoint}


def start_teams(
    systems: dict[str, dict[str, str]],
    device: str,
    data: str,
    checkpoint: str,
    count: int,
    ways: list[Configuration],
) -> dict[str, Team]:
    """Start the processes of fairseq's model and ours; :meth:`Team.wait` waits for them."""
    common = {"checkpoint": checkpoint, "data": data, "device": device, "sentences": count}
    most = max(how.workers for how in ways)
    teams = {}
    for name, options in measurable_systems(systems, device).items():
        variables = KEEPS_MEMORY if name.endswith(TUNED) else {}
        teams[name] = Team(Decoding, {**common, **options}, most, variables)
    return teams


def start_systems(
    device: str,
    data: str,
    checkpoint: str,
    count: int,
    ways: list[Configuration],
) -> dict[str, Any]:
    """Start the processes of all systems, with CTranslate2 if it is installed."""
    teams: dict[str, Any] = start_teams(SYSTEMS, device, data, checkpoint, count, ways)
    for team in teams.values():
        team.wait()
    try:
        folder = str(convert_to_ctranslate2(Path(checkpoint), data))
        for precision in ("float32", "int8"):
            options = {"folder": folder, "device": device, "precision": precision}
            reader = teams["fairseq"].workers[0]
            teams[f"CTranslate2 {precision}"] = Peer(options, ways, reader)
    except ImportError:
        log_progress("CTranslate2 is not installed, so it is left out: pip install ctranslate2")
    return teams


def sweep(
    teams: dict[str, Any], ways: list[Configuration], size: int, count: int
) -> tuple[dict[str, Configuration], list[Row]]:
    """Return each system's fastest configuration at one batch size in one round, and all speeds."""
    best = {}
    rows = []
    for name, team in teams.items():
        speed = {}
        for how in ways:
            team.translate(how, size, size * how.workers)  # the first time is slow
            result = team.translate(how, size, count)
            speed[how] = result["tokens"] / result["seconds"]
            log_progress(f"decode, batch {size}: {name}, {how}: {speed[how]:,.0f} tokens/s")
        best[name] = max(speed, key=lambda how: speed[how])
        figures = {str(how): value for how, value in speed.items()}
        rows.append({"batch": size, "system": name, **figures})
    return best, rows


def compare_systems(
    teams: dict[str, Any], best: dict[str, Configuration], size: int, count: int, rounds: int
) -> list[Row]:
    """Measure all systems at one batch size, and return one row for each."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in teams}
    for number in range(rounds):
        for name, how in best.items():
            results[name].append(teams[name].translate(how, size, count))
            log_progress(f"decode, batch {size}: round {number + 1} of {rounds}, {name}")
    rows = speed_rows(results, REFERENCES)
    reference = results["fairseq"][0]["hypotheses"]
    scorer = teams["fairseq"].workers[0]
    completed = []
    for row in rows:
        name = row.pop("system")
        share, gap = agreement(results[name][0]["hypotheses"], reference, scorer)
        row["ms/sentence"] = 1000 * results[name][-1]["seconds"] / count
        row["identical"] = f"{100 * share:.1f} %"
        row["largest score gap"] = gap
        row["peak MB"] = teams[name].peak_megabytes(best[name])
        first = {"batch": size, "sentences": count, "system": name, "cores": str(best[name])}
        completed.append({**first, **row})
    return completed


UPDATES = 500


def train_checkpoint(
    folder: Path, data: str, device: str, threads: int, size: str = "small", updates: int = UPDATES
) -> str:
    """Return a checkpoint of fairseq's ``transformer``, which is trained only once.

    Our model is trained for it, in minutes instead of half an hour, then converted to fairseq's.
    """
    path = folder / "checkpoint.pt"
    if not path.is_file():
        log_progress(f"training the model to decode with, once ({updates} updates): {path}")
        folder.mkdir(parents=True, exist_ok=True)
        schedule = ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "200", "--lr", "1e-3"]
        flags = [*size_flags(size), *schedule, "--max-tokens", "2048", "--dropout", "0"]
        flags += ["--num-workers", "0"]
        as_fairseqs = ["--sinusoid-layout", "fairseq", "--layer-norm-eps", "1e-5"]
        options = {"data": data, "device": device}
        environment = {"OMP_NUM_THREADS": str(threads)}
        ours = [*VASWANI_FLAGS, *flags, *as_fairseqs, "--precision", "bf16"]
        worker = Worker(Training, {**options, "flags": ours}, environment)
        for done in range(0, updates, 50):
            count = min(50, updates - done)
            loss = worker.ask("updates", count)["losses"][-1]
            log_progress(f"{done + count} updates, loss {loss:.2f}")
        worker.ask("save_for_fairseq", [data, *FAIRSEQ_FLAGS, *flags], str(path))
        worker.end()
    return str(path)


def agreement(ours: Sentences, theirs: Sentences, scorer: Any) -> tuple[float, float]:
    """Return the share of identical hypotheses, and the largest score gap of the others (0 if
    none).
    """
    different = [number for number in range(len(ours)) if ours[number] != theirs[number]]
    share = 1 - len(different) / len(ours)
    if not different:
        return share, 0.0
    our_scores = scorer.ask("scores", different, [ours[number] for number in different])
    their_scores = scorer.ask("scores", different, [theirs[number] for number in different])
    gaps = [abs(a - b) for a, b in zip(our_scores, their_scores, strict=True)]
    return share, max(gaps, default=math.nan)
