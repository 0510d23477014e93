"""What the processor has, and what follows from it for speed, in one table.

Nothing is computed here: each choice is between forms that are equal to one readable form.
Nothing is timed at run time: sums in another order have other last digits, and a resumed run would
no longer be exactly the unbroken one. The same machine always computes in the same way.

=======================  =========  ============  ============  =================================
where                    fp32       product rows  softmax rows  because
=======================  =========  ============  ============  =================================
AMD CPU with AVX-512     oneDNN     512           64            MKL uses half of its vector width:
                                                                100 GFLOP/s a core, oneDNN 230
CPU with AMX             torch's    2,048         64            bf16 products are so quick that
                                                                adding up one [V, D] gradient for
                                                                each 512 rows would cost as much;
                                                                by arithmetic, not measured
any other CPU            torch's    512           64            not measured
GPU                      torch's    8,192         1,024         each launch costs, and memory is
                                                                large; not measured
=======================  =========  ============  ============  =================================

Product rows are the tokens of the loss whose logits are computed at a time, softmax rows those of
them that go through the softmax at a time and stay in the cache. Measured by hand on an AMD CPU in
bf16, one thread while another process kept the second core busy: the loss of 1,900 tokens with
V = 9,712 and D = 256 takes 188, 179, 177 and 178 ms with 256, 512, 1,024 and 2,048 product rows, of
which 512 need the least memory without being slower; the softmax of 512 rows takes 5.1, 4.6, 4.4
and 4.4 ms with 16, 32, 64 and 128 at a time. `make bench BENCH="loss --full"` measures the same for
V = 37,000 and D = 512.
"""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch


class Choices(NamedTuple):
    """One line of the table."""

    fp32_by_onednn: bool
    """float32 products by oneDNN, which is in torch too, and not by the library torch takes"""
    product_rows: int
    softmax_rows: int


AMD_AVX512 = Choices(fp32_by_onednn=True, product_rows=512, softmax_rows=64)
AMX = Choices(fp32_by_onednn=False, product_rows=2048, softmax_rows=64)
OTHER_CPU = Choices(fp32_by_onednn=False, product_rows=512, softmax_rows=64)
GPU = Choices(fp32_by_onednn=False, product_rows=8192, softmax_rows=1024)


@lru_cache(maxsize=None)
def choices_for(device_type: str) -> Choices:
    """The line for ``cpu`` (this machine's) or for any other type of device."""
    if device_type != "cpu":
        return GPU
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return OTHER_CPU
    if "amx_bf16" in facts:
        return AMX
    avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    has_onednn = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return AMD_AVX512 if "AuthenticAMD" in facts and avx512 and has_onednn else OTHER_CPU
