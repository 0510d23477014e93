"""What each quick form saves: an update and decoding with all of them, and without each one.

    python -m benchmarks.run pieces         3+3 layers of width 256, one thread

The systems take turns, on the same batches, each in a process of its own. A piece pays if the time
without it is longer: the last columns are times without it, relative to those with all.
"""

import statistics
import time
from typing import Any

from benchmarks.systems import VASWANI_FLAGS, size_flags
from benchmarks.table import Row, median_and_range
from benchmarks.train import Training
from benchmarks.worker import Worker, log_progress

PIECES = ("FastLinear", "FastDropout", "fused attention", "loss from features", "keep_freed_memory")


def leave_out(piece: str) -> None:
    """Take one of ``PIECES`` out of this process; "" leaves all of them in."""
    from torch import nn

    from transformer_plugin import criterion
    from vaswani_transformer import fast
    from vaswani_transformer.attention import CrossAttention, SelfAttention
    from vaswani_transformer.fast import malloc

    if piece == "loss from features":
        criterion.computes_losses = lambda model: False
    if piece == "keep_freed_memory":
        malloc.keep_freed_memory = lambda: False  # type: ignore[assignment]
    names = {
        "FastLinear": [nn.Linear],
        "FastDropout": [nn.Dropout],
        "fused attention": [SelfAttention, CrossAttention],
    }
    for kind in names.get(piece, []):
        del fast.FAST[kind]


class WithoutPiece(Training):
    """A training and a search without one piece, on request."""

    def __init__(self, piece: str, **options: Any) -> None:
        from vaswani.configuration.plugin import load_plugin

        load_plugin()
        leave_out(piece)
        super().__init__(**options)

    def decode(self, sentences: int) -> dict[str, float]:
        """Seconds of a beam search of 4 for sources of 20 random words, to 40 words each."""
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


def run(device: str, data: str, rounds: int = 8) -> dict[str, Any]:
    """One row for each piece."""
    flags = [*VASWANI_FLAGS, *size_flags("small"), "--max-tokens", "2048", "--lr", "5e-4"]
    options = {"data": data, "flags": [*flags, "--num-workers", "0"], "device": device}
    one_thread = {"OMP_NUM_THREADS": "1"}
    systems = {}
    for piece in ("", *PIECES):
        systems[piece] = Worker(WithoutPiece, {"piece": piece, **options}, one_thread)
    times: dict[str, dict[str, list[float]]] = {}
    for piece in systems:
        times[piece] = {"train": [], "decode": []}
    for worker in systems.values():
        worker.ask("warm_up", 4)
        worker.ask("decode", 16)
    for number in range(1, rounds + 1):
        for piece, worker in systems.items():
            updates = worker.ask("updates", 4)
            translations = worker.ask("decode", 16)
            times[piece]["train"].append(updates["processor_seconds"] / 4)
            times[piece]["decode"].append(translations["processor_seconds"])
            log_progress(f"round {number} of {rounds}, without {piece or 'nothing'}")
    rows: list[Row] = []
    for piece, own in times.items():
        row: Row = {"without": piece or "–"}
        for work, label in (("train", "an update"), ("decode", "16 sentences")):
            ratios = [a / b for a, b in zip(own[work], times[""][work], strict=True)]
            row[f"{label}, ms"] = round(1000 * statistics.median(own[work]), 1)
            row[f"{label}, to all"] = median_and_range(ratios)
        rows.append(row)
    for worker in systems.values():
        worker.end()
    return {"rows": rows, "notes": ["Processor time; one thread; 3+3 layers of width 256."]}
