"""What batches of many shapes cost where oneDNN multiplies in fp32: memory and time of training.

    python -m benchmarks.shapes --rounds 6 --updates 50      memory: enough updates to settle
    python -m benchmarks.shapes --rounds 12 --updates 2      speed: on an idle machine

3+3 layers of width 256, 8,000 types, batches of 4,416 padded tokens, one thread; random words in
sentences as long as Multi30k's. The systems take turns, on the same batches, each in a process of
its own. oneDNN is used as on AMD processors with AVX-512, whatever the processor: on others, only
the ratio of its two lines says something. The log of every round goes to stdout, the table last.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.systems import VASWANI_FLAGS, size_flags
from benchmarks.table import markdown, speed_rows
from benchmarks.train import Training
from benchmarks.worker import Worker
from vaswani.common.environment import machine

TYPES = 8000
PAIRS = 29_000
MAX_TOKENS = "4416"
SYSTEMS: dict[str, dict[str, Any]] = {
    "torch's own products": {"by_onednn": False},
    "oneDNN, every number of rows": {"by_onednn": True, "rows": 1},
    "oneDNN, rows in whole blocks": {"by_onednn": True},
}


class Forced(Training):
    """A training whose products are computed by one library, whatever the processor.

    Args:
        by_onednn: by oneDNN, or all by torch's own
        rows: the block, instead of ``vaswani_transformer.fast.linear.ROWS``
        options: of the training
    """

    def __init__(self, by_onednn: bool, rows: int = 0, **options: Any) -> None:
        from vaswani_transformer.fast import chunked_loss, linear, processor

        choices = processor.AMD_AVX512 if by_onednn else processor.OTHER_CPU
        modules: list[Any] = [chunked_loss, linear]
        for module in modules:
            module.choices_for = lambda device_type: choices
        linear.ROWS = rows or linear.ROWS
        super().__init__(**options)


def make_data(folder: Path) -> str:
    """Write a data-bin of random words: log-normal lengths, words by Zipf's distribution."""
    rng = random.Random(1)
    words = [f"w{number}" for number in range(TYPES)]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(TYPES)))
    with (folder / "train.en").open("w") as source, (folder / "train.de").open("w") as target:
        for _ in range(PAIRS):
            length = max(3, int(rng.lognormvariate(2.6, 0.38)))
            other = max(3, int(length * rng.lognormvariate(0, 0.15)))
            for stream, count in ((source, length), (target, other)):
                print(*rng.choices(words, cum_weights=weights, k=count), file=stream)
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "-s", "en", "-t", "de"]
    command += ["--trainpref", str(folder / "train"), "--joined-dictionary"]
    command += ["--destdir", str(folder / "bin")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return str(folder / "bin")


def time_systems(data: str, rounds: int, updates: int) -> list[dict[str, Any]]:
    """Measure each system, and return one row for each."""
    flags = [*VASWANI_FLAGS, *size_flags("small"), "--max-tokens", MAX_TOKENS, "--lr", "5e-4"]
    options = {"data": data, "flags": [*flags, "--num-workers", "0"], "device": "cpu"}
    one_thread = {"OMP_NUM_THREADS": "1"}
    workers = {}
    for name, system in SYSTEMS.items():
        workers[name] = Worker(Forced, {**system, **options}, one_thread)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.ask("warm_up", 2)
    for number in range(1, rounds + 1):
        for name, worker in workers.items():
            result = worker.ask("updates", updates)
            results[name].append(result)
            log = {
                "system": name,
                "updates": 2 + number * updates,
                "peak_mb": round(worker.ask("peak_megabytes")),
                "seconds": result["seconds"],
                "processor_seconds": result["processor_seconds"],
                "loss": result["losses"][-1],
            }
            print(json.dumps(log), flush=True)
    rows = speed_rows(results)
    for row in rows:
        row["peak MB"] = workers[row["system"]].ask("peak_megabytes")
        workers[row["system"]].end()
    return rows


def main() -> None:
    """Measure the systems and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=50, help="of each system in a round")
    args = parser.parse_args()
    print(json.dumps(machine("cpu")), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(markdown(time_systems(make_data(Path(folder)), args.rounds, args.updates)))


if __name__ == "__main__":
    main()
