"""CPU time and memory used by this process and those it has waited for."""

import resource
import sys
from pathlib import Path

_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def cpu_seconds() -> float:
    """CPU time of this process and those it has waited for."""
    used = [resource.getrusage(who) for who in _WHO]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_megabytes(device: str = "cpu") -> float:
    """The most memory that this process, or a process it has waited for, ever held.

    For ``cuda``: the GPU's memory.
    """
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    own, children = (resource.getrusage(who).ru_maxrss for who in _WHO)
    status = Path("/proc/self/status")
    if status.is_file():  # Linux: ru_maxrss would include what our parent held when it started us
        own = int(status.read_text().partition("VmHWM:")[2].split()[0])
    return max(own, children) / (1 << 20 if sys.platform == "darwin" else 1 << 10)
