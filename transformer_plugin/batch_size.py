"""The number of tokens per update, and the settings that give an intended number (section 5.1).

fairseq's ``--max-tokens`` limits sentences × the longer side, padding included, on each GPU; the
paper counts real tokens across all GPUs.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairseq.data import EpochBatchIterator

TOLERANCE = 0.1
"""Relative difference from ``batch_tokens`` above which training warns."""


@dataclass(frozen=True)
class Batching:
    """One epoch: batches, sentences in them, and their real tokens (EOS included, pads not)."""

    batches: int
    sentences: int
    source_tokens: int
    target_tokens: int

    def updates(self, accumulated: int, gpus: int) -> int:
        """Return the updates per epoch, of ``accumulated`` batches on each GPU.

        The last update may have fewer batches.
        """
        return math.ceil(math.ceil(self.batches / gpus) / accumulated)

    def tokens_per_update(self, accumulated: int, gpus: int) -> tuple[float, float]:
        """Return the mean numbers of real source and target tokens per update."""
        updates = self.updates(accumulated, gpus)
        return self.source_tokens / updates, self.target_tokens / updates


def measure_batches(iterator: EpochBatchIterator, dataset: Any) -> Batching:
    """Count sentences and tokens in fairseq's batches, by the lengths in the data set's index."""
    batches = iterator.frozen_batches
    chosen = np.concatenate([np.asarray(batch) for batch in batches])
    source, target = dataset.src_sizes[chosen].sum(), dataset.tgt_sizes[chosen].sum()
    return Batching(len(batches), len(chosen), int(source), int(target))


def rebatch(bounds: dict[str, int], accumulated: int, ratio: float) -> tuple[dict[str, int], int]:
    """Return limits of a batch, and batches to accumulate, for ``ratio`` times the tokens.

    ``bounds`` are ``max_tokens``, ``batch_size`` or both. They grow by 5 % at most, since memory
    may not allow more; ``max_tokens`` is rounded to a multiple of 8.
    """
    freq = max(1, math.ceil(accumulated * ratio / 1.05))
    new = {}
    for name, value in bounds.items():
        step = 8 if name == "max_tokens" else 1
        new[name] = max(step, round(value * accumulated * ratio / freq / step) * step)
    return new, freq


def batch_warning(
    wanted: int | None, have: float, bounds: dict[str, int], accumulated: int
) -> str | None:
    """Return the warning if updates have ``have`` target tokens instead of ``wanted``, or None."""
    if not wanted or abs(have - wanted) <= TOLERANCE * wanted:
        return None
    new, freq = rebatch(bounds, accumulated, wanted / have)
    changes = [f"dataset.{name}={value}" for name, value in new.items()]
    return (
        f"an update sees {have:,.0f} target tokens on average, not {wanted:,} (task.batch_tokens): "
        f"give {' '.join(changes)} optimization.update_freq=[{freq}] to get that many here"
    )
