"""Freed memory stays with the process, unless somebody else decides that."""

import platform
import subprocess
from pathlib import Path

import pytest

from tests.preloaded import python
from transformer_plugin.fast.malloc import keep_freed_memory

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import resource, torch
from transformer_plugin.fast.malloc import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(6):
        torch.ones(12_000_000)  # 48 MB, taken and given back
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
without = faults()
print(keep_freed_memory(), without - faults())
"""


def huge_pages():
    """Whether the system clears 2 MB at a time, so that faults are few either way."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.is_file() and "[always]" in setting.read_text(encoding="utf-8")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
@pytest.mark.skipif(huge_pages(), reason="pages are huge: faults tell nothing")
def test_pages_are_cleared_once(monkeypatch):
    """6 tensors of 11,719 pages: all of them are new without us, one of them with us."""
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    command = [python(), "-c", FAULTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    asked, saved = done.stdout.split()
    assert asked == "True" and int(saved) > 4 * 11_700


def test_settings_of_the_user_stay(monkeypatch):
    """Somebody who tunes his allocator is not overruled."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()
