"""How a CPU training takes its memory: freed blocks stay with the process, plans do not pile up."""

import ctypes
import os
import platform
from functools import lru_cache

import torch

# numbers of glibc's mallopt (malloc.h)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


PLANS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
"""oneDNN keeps a plan, up to a megabyte of code, for each of so many shapes of product: 1,024,
which fairseq's batches exceed, so that most are of no use. With 64 a training is as quick."""


def keep_few_plans() -> None:
    """Bound oneDNN's plans, unless the user has; before the first product, or it has no effect."""
    os.environ.setdefault(PLANS, "64")


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
