"""Which forms of the computations are quick on which processor, in one table.

Nothing is computed here: each choice is between forms that are equal to one readable form.
Nothing is timed at run time: sums in another order have other last digits, so a resumed run would
no longer equal the uninterrupted one exactly. The same machine always computes in the same way.

==============================  =======  =======  ============  ============
where                           fp32     fp32 dW  product rows  softmax rows
==============================  =======  =======  ============  ============
AMD CPU with AVX-512            oneDNN   oneDNN   512           64
the same, family 25 (Zen 4)     oneDNN   torch's  512           64
CPU with AMX                    torch's  torch's  2,048         64
AMD CPU with AVX2 alone         torch's  torch's  512           64
any other CPU (not measured)    torch's  torch's  512           64
GPU (not measured)              torch's  torch's  8,192         1,024
==============================  =======  =======  ============  ============

fp32 is the library for float32 products; dW = gᵀ x, a weight's gradient, has a column of its own.

- AMD: MKL, torch's choice, uses half the width of the units: 100 GFLOP/s per core, oneDNN 220.
- Family 25: the units themselves are half as wide. x Wᵀ and g W: oneDNN 96 to 110 GFLOP/s, MKL 82
  to 99; gᵀ x: 68 to 100 and 90 to 98. An update takes 0.96 (small model) and 0.92 (tiny) of the
  time that it takes with oneDNN for all (one thread, alternating, medians of 16 and 20 updates).
- AVX2 alone (Zen 3, by hand, 12 and 4 updates each in turn): for the loss's logits (D = 128) oneDNN
  reaches 65 to 75 GFLOP/s, MKL 51. But an update with oneDNN for every x Wᵀ takes 0.96 (tiny) and
  1.01 (base) of the time, for g W as well 0.97 and 1.03, for all 1.10 (tiny): not worth a choice.
- AMX: products in bf16 are so quick that adding up one [V, D] gradient for each 512 rows would
  cost as much; calculated, not measured.
- GPU: each kernel launch takes time, and memory is large.

Product rows are how many of the loss's tokens have their logits computed at a time, softmax rows
how many of those go through the softmax at a time and stay in the cache. Measured by hand on an AMD
CPU in bf16, one thread while another process kept the second core busy: the loss of 1,900 tokens
with V = 9,712 and D = 256 takes 188, 179, 177 and 178 ms with 256, 512, 1,024 and 2,048 product
rows, of which 512 need the least memory without being slower; the softmax of 512 rows takes 5.1,
4.6, 4.4 and 4.4 ms with 16, 32, 64 and 128 at a time. `make bench BENCH="loss --full"` measures the
same for V = 37,000 and D = 512.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch


class Choices(NamedTuple):
    """One line of the table."""

    fp32_by_onednn: bool
    """float32 products by oneDNN, which torch includes, and not by the library torch uses"""
    product_rows: int
    softmax_rows: int
    weight_gradients_by_onednn: bool = False
    """also the float32 products that give the gradients of weights"""


AMD_FAMILY_25 = Choices(fp32_by_onednn=True, product_rows=512, softmax_rows=64)
AMD_AVX512 = AMD_FAMILY_25._replace(weight_gradients_by_onednn=True)
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
    if not ("AuthenticAMD" in facts and avx512 and has_onednn):
        return OTHER_CPU
    return AMD_FAMILY_25 if re.search(r"cpu family\s*: 25\b", facts) else AMD_AVX512
