"""Keeps freed memory in the process; results are the same as with the allocator's defaults.

The system then need not clear the memory's pages again.
"""

import ctypes
import os
import platform
from functools import lru_cache

import torch

# numbers of glibc's mallopt (malloc.h)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


@lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Tell glibc not to give large freed blocks back to the system; returns whether it will.

    By default each tensor above 32 MB is mapped and unmapped every time, and the system clears its
    pages again. Nothing is done where a GPU computes, outside glibc, or where the user has set
    MALLOC_… variables or GLIBC_TUNABLES.
    """
    tuned = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if torch.cuda.is_available() or tuned or platform.libc_ver()[0] != "glibc":
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**27}
    mallopt = ctypes.CDLL(None).mallopt
    answers = [mallopt(number, value) for number, value in settings.items()]
    return all(answers)
