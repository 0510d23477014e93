"""How much memory there is, and how a CPU training takes it: freed blocks stay with the process."""

import ctypes
import os
import platform
from functools import lru_cache
from pathlib import Path

import torch

# numbers of glibc's mallopt (malloc.h)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


@lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Ask glibc not to give large freed blocks back to the system; returns whether it was asked.

    By default each tensor above 32 MB is mapped and unmapped every time, and the system clears its
    pages anew. Nothing is done where a GPU computes, outside glibc, or where the user has set
    MALLOC_… variables of his own.
    """
    tuned = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if torch.cuda.is_available() or tuned or platform.libc_ver()[0] != "glibc":
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**27}
    mallopt = ctypes.CDLL(None).mallopt
    answers = [mallopt(number, value) for number, value in settings.items()]
    return all(answers)


def machine_memory() -> int:
    """The memory that this process may have at most, in bytes: the machine's or its container's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit
        return machine
