"""Decoding speed: the same weights, the same sentences, beam 4, in fairseq's model and in ours."""

import math
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from benchmarks.decoding import CTranslate2, Decoding, Sentences, Translated, converted
from benchmarks.systems import OURS, THEIRS, size_flags
from benchmarks.table import Row, compare, markdown
from benchmarks.train import Training
from benchmarks.worker import Worker, say

SYSTEMS: Dict[str, Dict[str, str]] = {
    "fairseq": {"task": "translation", "model": "fairseq"},
    "ours, fairseq's generator": {"task": "translation", "model": "ours"},
    "ours": {"task": "vaswani_translation", "model": "ours"},
    "ours, bf16": {"task": "vaswani_translation", "model": "ours", "precision": "bf16"},
}
"""The first is what the others are compared with."""


class Configuration(NamedTuple):
    """How a machine's cores are used: threads of each worker, and workers."""

    threads: int
    workers: int

    def __str__(self) -> str:
        return f"{self.threads} × {self.workers}"


def configurations(device: str, cores: int) -> List[Configuration]:
    """What is tried: all cores on one batch, one core alone, and a worker a core. A GPU has one."""
    tried = [Configuration(cores, 1), Configuration(1, 1), Configuration(1, cores)]
    return list(dict.fromkeys(tried if device == "cpu" else tried[:1]))


class Team:
    """A system in one or more processes, which translate shares of the same batches at once.

    Args:
        make, options: see :class:`benchmarks.worker.Worker`
        how: threads of each process; and how many processes, unless the system has its own workers
    """

    def __init__(self, make: Callable[..., Any], options: Dict[str, Any], how: Configuration):
        self.deals_itself = make is CTranslate2
        if self.deals_itself:
            options = {**options, **how._asdict()}
        environment = {"OMP_NUM_THREADS": str(how.threads)}
        count = 1 if self.deals_itself else how.workers
        self.workers = [Worker(make, options, environment) for _ in range(count)]

    def translate(self, size: int, count: int) -> Dict[str, Any]:
        """Seconds from the first begin to the last end, target tokens, hypotheses in order."""
        for number, worker in enumerate(self.workers):
            share = () if self.deals_itself else (number, len(self.workers))
            worker.tell("prepare", size, count, *share)
        for worker in self.workers:
            worker.answer()
        for worker in self.workers:
            worker.tell("translate")
        parts: List[Translated] = [worker.answer() for worker in self.workers]
        found = {number: words for part in parts for number, words in part.hypotheses.items()}
        return {
            "seconds": max(p.ended for p in parts) - min(p.begun for p in parts),
            "tokens": sum(len(words) for words in found.values()),
            "hypotheses": [found[number] for number in sorted(found)],
        }

    def peak_megabytes(self) -> float:
        """Of all its processes together."""
        return sum(worker.ask("peak_megabytes") for worker in self.workers)

    def end(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.end()


Teams = Dict[str, Dict[Configuration, Any]]
"""System → how its cores are used → its processes."""


def run(device: str, full: bool, data: str, cores: int, checkpoint: str) -> Dict[str, Any]:
    """Rows of tokens a second by batch size, and how many hypotheses are fairseq's."""
    count = 1000 if full else 200
    tried = configurations(device, cores)
    teams = started(device, data, checkpoint, count, tried)
    rows: List[Row] = []
    sweep: List[Row] = []
    for size, of in ((1, 20), (32, count), (128, count), (count, count)):
        fitting = [how for how in tried if how.workers <= math.ceil(of / size)]
        best, speeds = swept(teams, fitting, size, of)
        sweep += speeds
        rows += translated(teams, best, size, of, rounds=3)
    for team in (team for teams_of in teams.values() for team in teams_of.values()):
        team.end()
    note = (
        "Each system has the cores used as is best for it, threads × processes (CTranslate2's own "
        "workers); as here in one round before, tokens/s:\n\n" + markdown(sweep)
    )
    return {"rows": rows, "sweep": sweep, "notes": [note], "checkpoint": checkpoint}


def started(
    device: str, data: str, checkpoint: str, count: int, tried: List[Configuration]
) -> Teams:
    """The processes of all systems."""
    common = {"checkpoint": checkpoint, "data": data, "device": device}
    systems: Dict[str, Tuple[Callable[..., Any], Dict[str, Any]]] = {
        name: (Decoding, {**common, "sentences": count, **options})
        for name, options in SYSTEMS.items()
    }
    try:
        folder = str(converted(Path(checkpoint), data))
        for precision in ("float32", "int8"):
            options = {**common, "folder": folder, "precision": precision}
            systems[f"CTranslate2 {precision}"] = (CTranslate2, options)
    except ImportError:
        say("CTranslate2 is not installed and left out: pip install ctranslate2")
    return {
        name: {how: Team(make, options, how) for how in tried}
        for name, (make, options) in systems.items()
    }


def swept(
    teams: Teams, tried: List[Configuration], size: int, count: int
) -> Tuple[Dict[str, Configuration], List[Row]]:
    """The best use of the cores for each system by one round at one batch size; all speeds."""
    best, rows = {}, []
    for name, team_of in teams.items():
        speed = {}
        for how in tried:
            team_of[how].translate(size, size)  # the first one is slow
            found = team_of[how].translate(size, count)
            speed[how] = found["tokens"] / found["seconds"]
            say(f"decode, batch {size}: {name}, {how}: {speed[how]:,.0f} tokens/s")
        best[name] = max(speed, key=lambda how: speed[how])
        figures = {str(how): value for how, value in speed.items()}
        rows.append({"batch": size, "system": name, **figures})
    return best, rows


def translated(
    teams: Teams, best: Dict[str, Configuration], size: int, count: int, rounds: int
) -> List[Row]:
    """One row for each system at one batch size."""
    found: Dict[str, List[Dict[str, Any]]] = {name: [] for name in teams}
    for number in range(rounds):
        for name, how in best.items():
            found[name].append(teams[name][how].translate(size, count))
            say(f"decode, batch {size}: round {number + 1} of {rounds}, {name}")
    rows = compare(found)
    reference = found["fairseq"][0]["hypotheses"]
    scorer = next(iter(teams["fairseq"].values())).workers[0]
    for row in rows:
        name = row["system"]
        share, gap = agreement(found[name][0]["hypotheses"], reference, scorer)
        row["ms/sentence"] = 1000 * found[name][-1]["seconds"] / count
        row["identical"] = f"{100 * share:.1f} %"
        row["largest score gap"] = gap
        row["peak MB"] = teams[name][best[name]].peak_megabytes()
    return [
        {
            "batch": size,
            "sentences": count,
            "system": row.pop("system"),
            "cores": str(best[name]),
            **row,
        }
        for name, row in zip(best, rows, strict=True)
    ]


UPDATES = 500


def trained(folder: Path, data: str, device: str, threads: int) -> str:
    """A checkpoint of fairseq's ``transformer``, size ``small``, made once.

    It is trained as ours, which takes minutes and not half an hour, and then becomes fairseq's.
    """
    path = folder / "checkpoint.pt"
    if not path.is_file():
        say(f"training the model to decode with, once ({UPDATES} updates): {path}")
        folder.mkdir(parents=True, exist_ok=True)
        schedule = ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "200", "--lr", "1e-3"]
        flags = [*size_flags("small"), *schedule, "--max-tokens", "2048", "--dropout", "0"]
        flags += ["--num-workers", "0"]
        same = ["--sinusoid-layout", "fairseq", "--layer-norm-eps", "1e-5"]
        options = {"data": data, "device": device}
        environment = {"OMP_NUM_THREADS": str(threads)}
        ours = [*OURS, *flags, *same, "--precision", "bf16"]
        worker = Worker(Training, {**options, "flags": ours}, environment)
        for done in range(0, UPDATES, 50):
            loss = worker.ask("updates", 50)["losses"][-1]
            say(f"{done + 50} updates, loss {loss:.2f}")
        worker.ask("save_for_fairseq", [data, *THEIRS, *flags], str(path))
        worker.end()
    return str(path)


def agreement(ours: Sentences, theirs: Sentences, scorer: Any) -> Tuple[float, float]:
    """The share of identical hypotheses, and the largest score gap of the others (0 if none)."""
    other = [n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    share = 1 - len(other) / len(ours)
    if not other:
        return share, 0.0
    mine = scorer.ask("scores", other, [ours[n] for n in other])
    its = scorer.ask("scores", other, [theirs[n] for n in other])
    gaps = [abs(a - b) for a, b in zip(mine, its, strict=True)]
    return share, max(gaps, default=math.nan)
