"""Where other programs keep the cores busy, OpenMP's threads wait for each other only briefly.

A thread that is done waits for the others in a busy loop, on a core that one of them may need: two
threads on two busy cores are then many times slower than one. libgomp, which torch comes with,
reads GOMP_SPINCOUNT when it is loaded: so this imports nothing that loads it.
"""

import os
import sys
import time
from pathlib import Path
from typing import Callable, MutableMapping, Optional, Tuple

from vaswani.common.environment import cores

#: a choice of the user's, which stays
CHOSEN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
#: turns of the loop before a thread sleeps; libgomp has 300,000
SPIN_COUNT = "1000"
#: seconds over which the cores are watched
WATCHED = 0.2


def wait_briefly(
    environ: MutableMapping[str, str], idle: Optional[Callable[[], Optional[float]]] = None
) -> str:
    """Shorten the busy loop if no core is idle and there is more than one thread.

    Args:
        environ: the process's environment
        idle: measures idle cores (``idle_cores``)

    Returns:
        What was done, in words; empty if nothing was.
    """
    if any(environ.get(name) for name in CHOSEN) or "torch" in sys.modules:
        return ""
    threads = environ.get("OMP_NUM_THREADS", "").split(",")[0] or str(cores())
    if threads == "1":
        return ""
    idle_now = (idle or idle_cores)()
    if idle_now is None or idle_now >= 0.5:
        return ""
    environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    return f"no core is idle, so threads wait for each other briefly (GOMP_SPINCOUNT={SPIN_COUNT})"


def idle_cores(stat: Path = Path("/proc/stat")) -> Optional[float]:
    """How many usable cores nobody used for a moment; None where the system does not say."""
    before = idle_and_all(stat)
    time.sleep(WATCHED)
    after = idle_and_all(stat)
    if before is None or after is None or after[1] <= before[1]:
        return None
    return cores() * (after[0] - before[0]) / (after[1] - before[1])


def idle_and_all(stat: Path) -> Optional[Tuple[int, int]]:
    """Clock ticks since the system started, summed over the usable cores: idle ones, and all."""
    idle = total = 0
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
        own_cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for line in lines:
            name, *ticks = line.split()
            if name in own_cores:  # user nice system idle iowait irq softirq steal …
                idle += int(ticks[3]) + int(ticks[4])
                total += sum(map(int, ticks[:8]))
    except (OSError, ValueError, IndexError):
        return None
    return idle, total
