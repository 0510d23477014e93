"""Decoding speed: the same weights, the same sentences, beam 4, in fairseq's model and in ours."""

import math
from pathlib import Path
from typing import Any, Dict, List, Tuple

from benchmarks.decoding import CTranslate2, Decoding, Sentences, converted
from benchmarks.systems import OURS, THEIRS, size_flags
from benchmarks.table import Row, compare
from benchmarks.train import Training
from benchmarks.worker import Worker, say

SYSTEMS: Dict[str, Dict[str, str]] = {
    "fairseq": {"task": "translation", "model": "fairseq"},
    "ours, fairseq's generator": {"task": "translation", "model": "ours"},
    "ours": {"task": "vaswani_translation", "model": "ours"},
    "ours, bf16": {"task": "vaswani_translation", "model": "ours", "precision": "bf16"},
}
"""The first is what the others are compared with."""


def run(device: str, full: bool, data: str, threads: int, checkpoint: str) -> Dict[str, Any]:
    """Rows of tokens a second by batch size, and how many hypotheses are fairseq's."""
    count = 1000 if full else 200
    environment = {"OMP_NUM_THREADS": str(threads)}
    common = {"checkpoint": checkpoint, "data": data, "device": device, "sentences": count}
    workers = {
        name: Worker(Decoding, {**common, **options}, environment)
        for name, options in SYSTEMS.items()
    }
    try:
        folder = str(converted(Path(checkpoint), data))
        for precision in ("float32", "int8"):
            options = {"folder": folder, "data": data, "checkpoint": checkpoint}
            options.update(device=device, precision=precision, threads=threads)
            workers[f"CTranslate2 {precision}"] = Worker(CTranslate2, options, environment)
    except ImportError:
        say("CTranslate2 is not installed and left out: pip install ctranslate2")
    rows: List[Row] = []
    for size, of in ((1, 20), (32, count), (128, count), (count, count)):
        rows += translated(workers, size, of, rounds=3)
    for worker in workers.values():
        worker.end()
    return {"rows": rows, "checkpoint": checkpoint}


def translated(workers: Dict[str, Worker], size: int, count: int, rounds: int) -> List[Row]:
    """One row for each system at one batch size."""
    found: Dict[str, List[Dict[str, Any]]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.ask("translate", size, size)
    for number in range(rounds):
        for name, worker in workers.items():
            found[name].append(worker.ask("translate", size, count))
            say(f"decode, batch {size}: round {number + 1} of {rounds}, {name}")
    rows = compare(found)
    reference = found["fairseq"][0]["hypotheses"]
    for row in rows:
        mine = found[row["system"]][0]["hypotheses"]
        share, gap = agreement(mine, reference, workers["fairseq"])
        row["ms/sentence"] = 1000 * found[row["system"]][-1]["seconds"] / count
        row["identical"] = f"{100 * share:.1f} %"
        row["largest score gap"] = gap
        row["peak MB"] = workers[row["system"]].ask("peak_megabytes")
    return [{"batch": size, "sentences": count, **row} for row in rows]


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
