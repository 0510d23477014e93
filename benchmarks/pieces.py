"""What each quick form saves: an update and decoding as they are, and with one form changed.

    python -m benchmarks.run pieces --rounds 5
    python -m benchmarks.run pieces --piece "without FastDropout"       may be repeated

The model has 3+3 layers of width 256. The systems take turns, on the same batches, each in a
process of its own. A form pays if the time without it is longer: the columns ``to all`` are times
with the change, relative to those without. Where the processor's table (fast/processor.py) has no
products by oneDNN, "with oneDNN products" shows what they would save.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.systems import VASWANI_FLAGS, size_flags
from benchmarks.table import Row, median_and_range
from benchmarks.train import Training
from benchmarks.worker import Worker, log_progress

PIECES = (
    "without FastLinear",
    "without FastDropout",
    "without fused attention",
    "without loss from features",
    "without keep_freed_memory",
    "with oneDNN products",
    "with oneDNN products, not in blocks",
)
AS_IT_IS = "–"
UPDATES, SENTENCES = 2, 16
"""Of each system in a round."""


def choose(**choices: Any) -> None:
    """Replace some choices for this processor (fast/processor.py) in this process."""
    from vaswani_transformer.fast import chunked_loss, linear, processor

    forced = processor.choices_for("cpu")._replace(**choices)
    chunked_loss.choices_for = lambda device_type: forced  # type: ignore[assignment]
    linear.choices_for = lambda device_type: forced  # type: ignore[assignment]


def change(piece: str) -> None:
    """Change one of ``PIECES`` in this process, or nothing for ``AS_IT_IS``."""
    from torch import nn

    from transformer_plugin import criterion
    from vaswani_transformer import fast
    from vaswani_transformer.attention import CrossAttention, SelfAttention
    from vaswani_transformer.fast import linear, malloc

    if piece == "without loss from features":
        criterion.computes_losses = lambda model: False
    if piece.startswith("with oneDNN products"):
        choose(fp32_by_onednn=True, packed_from=0)
    if piece == "with oneDNN products, not in blocks":
        linear.ROWS = 1
    if piece == "without keep_freed_memory":
        malloc.keep_freed_memory = lambda: False  # type: ignore[assignment]
    names = {
        "without FastLinear": [nn.Linear],
        "without FastDropout": [nn.Dropout],
        "without fused attention": [SelfAttention, CrossAttention],
    }
    for kind in names.get(piece, []):
        del fast.FAST[kind]


class WithPieceChanged(Training):
    """A training and a search with one piece changed, on request."""

    def __init__(self, piece: str, **options: Any) -> None:
        from vaswani.configuration.plugin import load_plugin

        load_plugin()
        change(piece)
        super().__init__(**options)

    def decode(self, sentences: int) -> dict[str, float]:
        """Time a beam search of 4 for sources of 20 random words, to 40 words each."""
        import copy

        import torch

        from transformer_plugin.generator import VaswaniSequenceGenerator
        from vaswani_transformer.fast.linear import pack_weights

        model = copy.deepcopy(self.trainer.model).eval()
        words = self.trainer.task.target_dictionary
        pack_weights(model)  # as in `vaswani generate`
        search: dict[str, Any] = {"beam_size": 4, "min_len": 39, "max_len_a": 0, "max_len_b": 39}
        generator = VaswaniSequenceGenerator([model], words, **search)
        numbers = torch.Generator().manual_seed(1)
        source = torch.randint(4, len(words), (sentences, 20), generator=numbers)
        sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(1).sum(1)}}
        start = time.perf_counter()
        processor = time.process_time()
        with torch.no_grad():
            generator.generate([model], sample)
        return {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - processor,
        }


def run(device: str, data: str, rounds: int = 8, pieces: Sequence[str] = PIECES) -> dict[str, Any]:
    """Measure each piece, and return one row for each."""
    flags = [*VASWANI_FLAGS, *size_flags("small"), "--max-tokens", "2048", "--lr", "5e-4"]
    options = {"data": data, "flags": [*flags, "--num-workers", "0"], "device": device}
    one_thread = {"OMP_NUM_THREADS": "1"}
    systems = {}
    for piece in (AS_IT_IS, *pieces):
        systems[piece] = Worker(WithPieceChanged, {"piece": piece, **options}, one_thread)
    times: dict[str, dict[str, list[float]]] = {}
    for piece in systems:
        times[piece] = {"train": [], "decode": []}
    for worker in systems.values():
        worker.ask("warm_up", UPDATES)
        worker.ask("decode", SENTENCES)
    for number in range(1, rounds + 1):
        for piece, worker in systems.items():
            updates = worker.ask("updates", UPDATES)
            translations = worker.ask("decode", SENTENCES)
            times[piece]["train"].append(updates["processor_seconds"] / UPDATES)
            times[piece]["decode"].append(translations["processor_seconds"])
            log_progress(f"round {number} of {rounds}, {piece}")
    rows: list[Row] = []
    for piece, seconds in times.items():
        row: Row = {"change": piece}
        for work, label in (("train", "an update"), ("decode", f"{SENTENCES} sentences")):
            pairs = zip(seconds[work], times[AS_IT_IS][work], strict=True)
            ratios = [changed / unchanged for changed, unchanged in pairs]
            row[f"{label}, ms"] = round(1000 * statistics.median(seconds[work]), 1)
            row[f"{label}, to all"] = median_and_range(ratios)
        rows.append(row)
        row["peak MB"] = systems[piece].ask("peak_megabytes")
    for worker in systems.values():
        worker.end()
    units = units_in_use()
    note = f"Processor time; one thread; 3+3 layers of width 256; torch's units: {units}."
    return {"rows": rows, "notes": [note]}


def units_in_use() -> str:
    """Return the instruction set of torch's own loops; ATEN_CPU_CAPABILITY may lower it."""
    import torch

    units: str = torch.backends.cpu.get_cpu_capability()
    return units
