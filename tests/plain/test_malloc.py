"""Freed memory stays with the process and few of oneDNN's programs do, unless the user decides."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from vaswani_transformer.fast.malloc import keep_freed_memory

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import resource, torch
from vaswani_transformer.fast.malloc import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(6):
        torch.ones(12_000_000)  # 48 MB, taken and given back
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
without = faults()
kept = keep_freed_memory()
for _ in range(3):
    faults()  # torch 2.2 takes a few rounds until its blocks lie together
print(kept, without - faults())
"""


def run(code: str, **environment: str) -> str:
    own = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_", "ONEDNN"))}
    own.update(environment, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    return done.stdout


def huge_pages() -> bool:
    """Whether the system clears 2 MB at a time, so that faults are few either way."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.is_file() and "[always]" in setting.read_text(encoding="utf-8")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is done where a GPU computes")
@pytest.mark.skipif(huge_pages(), reason="pages are huge: faults tell nothing")
def test_pages_are_cleared_once() -> None:
    """6 tensors of 11,719 pages: all of them are new without us, few with us."""
    asked, saved = run(FAULTS).split()
    assert asked == "True" and int(saved) > 4 * 11_700


def test_settings_of_the_user_stay(monkeypatch: Any) -> None:
    """Somebody who tunes his allocator is not overruled."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()
