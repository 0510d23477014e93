"""Freed memory stays with the process and few of oneDNN's programs do, unless the user decides."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.tasks.translation import TranslationConfig

from tests import models
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from transformer_plugin.fast.malloc import CAPACITY, PROGRAMS, keep_freed_memory

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
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    asked, saved = done.stdout.split()
    assert asked == "True" and int(saved) > 4 * 11_700


TWICE = """
import torch
from transformer_plugin.fast.malloc import keep_fewer_programs
keep_fewer_programs()
for rows in 2 * list(range(1, 202)):
    torch.ops.mkldnn._linear_pointwise(torch.ones(rows, 8), torch.ones(8, 8), None, "none", [], "")
"""


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN"
)
@pytest.mark.parametrize(
    "given, made",
    [({}, 402), ({"DNNL_PRIMITIVE_CACHE_CAPACITY": "1024"}, 201)],
)
def test_onednn_keeps_fewer_programs(given, made, monkeypatch):
    """Of 201 shapes in turn, the one that is needed next has just been dropped."""
    monkeypatch.delenv(CAPACITY, raising=False)
    done = subprocess.run(
        [sys.executable, "-c", TWICE],
        cwd=ROOT,
        env={**os.environ, **given, "ONEDNN_VERBOSE": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("create:cache_miss") == made


@pytest.mark.parametrize("precision, set_to", [("bf16", PROGRAMS), ("fp32", None)])
def test_training_in_bf16_on_a_cpu_keeps_fewer_programs(precision, set_to, monkeypatch):
    """Set before the first product; in fp32 there are few shapes (linear.py)."""
    monkeypatch.setenv(CAPACITY, "1")  # so that it is restored
    monkeypatch.delenv(CAPACITY)
    model = models.small_model(precision=precision)
    words = models.dictionary()
    CheckedTranslationTask(TranslationConfig(), words, words).begin_epoch(1, model)
    assert os.environ.get(CAPACITY) == set_to


def test_settings_of_the_user_stay(monkeypatch):
    """Somebody who tunes his allocator is not overruled."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()
