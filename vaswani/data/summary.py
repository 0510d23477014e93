"""Reports on a finished stage: counts beside the expected ones, time, memory."""

import sys
from typing import Any, Tuple

from vaswani.common.usage import peak_megabytes
from vaswani.data.clean import Report
from vaswani.data.steps import Job
from vaswani.experiment.find import DOCS


def tell(job: Job, name: str, report: Any, spent: Tuple[float, float]) -> None:
    """Say what a stage did: counts by set, beside the expected ones, pairs per second, memory.

    ``spent``: elapsed seconds, and CPU seconds of all processors together.
    """
    counts = {k: Report(**v) for k, v in (report or {}).items() if isinstance(v, dict)}
    seen = sum(found.seen for found in counts.values())
    cost = f"{spent[0]:.0f} s" + (f", {seen / max(spent[0], 1e-3):,.0f} pairs/s" if seen else "")
    cost += f"; {spent[1]:.0f} s of CPU; largest process {peak_megabytes():,.0f} MB"
    print(f"{job.folder / name}: made ({cost})", file=sys.stderr)
    for split, found in counts.items():
        expected = (job.recipe.expected or {}).get(f"{name}/{split}")
        beside = ""
        if expected and job.recipe.limit is None:
            off = abs(found.kept - expected) > expected / 100
            see = f": more than 1 % off, see {DOCS / 'wmt14-data.md'}" if off else ""
            beside = f" (expected {expected:,}{see})"
        print(f"  {split}: {found.summary()}{beside}", file=sys.stderr)
    for key, value in (report or {}).items():
        if not isinstance(value, dict):
            print(f"  {key}: {value:,}", file=sys.stderr)


def show_dropped(name: str, report: Any, examples: int) -> None:
    """Print examples of the pairs that a stage left out, ``examples`` for each reason."""
    for split, found in (report or {}).items():
        for reason, shown in found["examples"].items() if isinstance(found, dict) else ():
            for place, source, target in shown[:examples]:
                print(f"{name}/{split}, {reason}: {place}\n    {source}\n    {target}")
