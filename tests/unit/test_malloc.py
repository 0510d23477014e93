"""Freed memory stays with the process, unless somebody else decides that."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import resource, sys, torch
from transformer_plugin.fast.malloc import keep_freed_memory
asked = keep_freed_memory() if sys.argv[1] == "keep" else False
for _ in range(20):
    torch.ones(12_000_000)  # 48 MB, taken and given back
print(asked, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def run(mode, **variables):
    """Whether glibc was asked, and how many pages the system had to clear."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC", "GLIBC"))}
    environment.update(PYTHONPATH=str(ROOT), **variables)
    command = [sys.executable, "-c", FAULTS, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    asked, faults = done.stdout.split()
    return asked == "True", int(faults)


def huge_pages():
    """Whether the system clears 2 MB at a time, so that faults are few either way."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.is_file() and "[always]" in setting.read_text(encoding="utf-8")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
@pytest.mark.skipif(huge_pages(), reason="pages are huge: faults tell nothing")
def test_pages_are_cleared_once():
    """20 tensors of 11,719 pages: all of them are new without us, one of them with us."""
    asked, faults = run("keep")
    _, faults_without = run("leave")
    assert asked
    assert faults_without - faults > 15 * 11_700


def test_settings_of_the_user_stay():
    """Somebody who tunes his allocator is not overruled."""
    asked, _ = run("keep", MALLOC_ARENA_MAX="2")
    assert not asked
