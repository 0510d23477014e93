"""What follows from the processor: the line of the table, from what the system says of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from vaswani_transformer.fast.processor import (
    AMD_AVX2,
    AMD_AVX512,
    AMD_FAMILY_25,
    AMX,
    GPU,
    OTHER_CPU,
    Choices,
    choices_for,
)

AMD = "vendor_id : AuthenticAMD\ncpu family\t: %d\nmodel\t\t: 25\nflags : avx2 avx512f avx512_bf16"


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """Forget the machine's own answer before and after a test."""
    choices_for.cache_clear()
    yield
    choices_for.cache_clear()


@pytest.mark.parametrize(
    "facts, capability, expected",
    [
        (AMD % 26, "AVX512", AMD_AVX512),
        (AMD % 25, "AVX512", AMD_FAMILY_25),
        (AMD % 25, "AVX2", AMD_AVX2),
        (AMD % 25, "DEFAULT", OTHER_CPU),
        ("vendor_id : GenuineIntel\nflags : avx512f avx512_bf16 amx_bf16 amx_tile", "AVX512", AMX),
        ("vendor_id : GenuineIntel\nflags : avx512f avx512_bf16", "AVX512", OTHER_CPU),
        ("CPU implementer : 0x41", "DEFAULT", OTHER_CPU),
    ],
)
def test_a_cpu_has_the_line_of_its_vendor_and_units(
    facts: str, capability: str, expected: Choices, monkeypatch: Any
) -> None:
    """By vendor and units, as /proc/cpuinfo and torch report them."""
    monkeypatch.setattr(Path, "read_text", lambda *args, **kwargs: facts)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    if expected.packed_from is not None and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        expected = OTHER_CPU
    assert choices_for("cpu") is expected


def test_other_systems_and_devices_have_lines_of_their_own(monkeypatch: Any) -> None:
    """A system without /proc keeps torch's own product; a GPU never has the CPU's line."""

    def missing(*args: Any, **kwargs: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert choices_for("cpu") is OTHER_CPU
    assert choices_for("cuda") is choices_for("meta") is GPU


def test_zen_4_trains_with_torchs_products_and_decodes_with_onednns() -> None:
    """oneDNN trained no faster there, in more memory; packed for decoding it is quicker."""
    assert not AMD_FAMILY_25.fp32_by_onednn
    assert AMD_FAMILY_25.packed_from == 0
