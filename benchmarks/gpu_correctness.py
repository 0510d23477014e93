"""Whether a device computes what it should: a training is resumed, and a model translates."""

import lzma
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.machine import precisions
from benchmarks.table import Row
from benchmarks.worker import Worker, WorkerError, seconds_left

EXAMPLES = Path(__file__).parents[1] / "examples"
DEMO_TEXT = EXAMPLES / "demo_text" / "test.en.xz"
DEMO_MODEL = EXAMPLES.parent / "models" / "demo_en_de"


def compare_resumed(device: str, updates: int, folder: Path) -> Row:
    """Train the demo's model twice, once stopped and continued, once without a stop, and compare.

    Args:
        folder: for the two runs

    Raises:
        WorkerError: a command failed.
        subprocess.TimeoutExpired: a command was not done by the deadline.
    """
    middle = updates // 2
    changes = ["model.precision=bf16", "distributed_training.distributed_world_size=1"]
    changes.append(f"checkpoint.save_interval_updates={middle}")
    if device == "cpu":
        changes.append("common.cpu=true")
    resumed, whole = folder / "resumed", folder / "whole"
    patience = seconds_left()
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(train_demo, changes, whole, [updates], patience)
        train_demo(changes, resumed, [middle, updates], patience)
        beside.result()
    difference = largest_difference(resumed, whole)
    return {
        "updates": updates,
        "stopped at": middle,
        "largest difference of a weight": difference,
    }


def train_demo(
    changes: Sequence[str], run: Path, ends: Sequence[int], patience: float | None
) -> None:
    """Train with one command for each of ``ends``, the update after which it ends."""
    for end in ends:
        words = ["train", "demo_en_de", *changes, f"run={run}", f"optimization.max_update={end}"]
        command = [sys.executable, "-m", "vaswani", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise WorkerError(f"'vaswani train' failed: {lines[-1]}")


def largest_difference(run: Path, other: Path) -> float:
    """Return the largest difference of any parameter between two runs' last checkpoints."""
    from transformer_plugin.checkpoints import load_checkpoint

    last = Path("checkpoints") / "checkpoint_last.pt"
    weights = load_checkpoint(run / last)["model"]
    other_weights = load_checkpoint(other / last)["model"]
    return max(float((weights[name] - other_weights[name]).abs().max()) for name in weights)


def compare_translations(device: str, count: int) -> list[Row]:
    """Count the sentences of the demo's test that a device translates as the CPU does."""
    with lzma.open(DEMO_TEXT, "rt", encoding="utf-8") as stream:
        lines = stream.read().splitlines()[:count]
    usable = [name for name in ("fp32", "bf16") if name in precisions(device)]
    on_cpu = start_translator("cpu", "fp32")
    on_device = [start_translator(device, precision) for precision in usable]
    for worker in (on_cpu, *on_device):
        worker.answer()
    expected = on_cpu.ask("translate", lines)
    rows = []
    for precision, worker in zip(usable, on_device, strict=True):
        translations = worker.ask("translate", lines)
        equal = sum(a == b for a, b in zip(expected, translations, strict=True))
        row = {"device": device, "precision": precision, "sentences": len(lines)}
        rows.append({**row, "equal to the CPU's": equal})
    return rows


def start_translator(device: str, precision: str) -> Worker:
    """Start a process with the packed model of the demo."""
    return Worker(Translation, {"device": device, "precision": precision}, wait=False)


class Translation:
    """The demo's packed model in this process."""

    def __init__(self, device: str, precision: str) -> None:
        from vaswani.decoding.translator import Translator

        self.translator = Translator.from_pretrained(DEMO_MODEL, precision, device)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the translation of each line."""
        return [translation.text for translation in self.translator.translate(lines)]
