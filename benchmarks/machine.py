"""What a figure depends on besides the code: the machine, its versions, its own peak."""

import time
from typing import Any, Callable, Dict

from vaswani.environment import environment


def machine(device: str) -> Dict[str, Any]:
    """The environment, as runs record it, and the device."""
    return {**environment(), "device": device}


def peak_flops(device: str, precision: str, size: int = 2048, times: int = 20) -> float:
    """Operations a second of the machine's best square matrix product: what MFU is a share of.

    The best of ``times`` runs on an idle machine, not the data sheet's figure.
    """
    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    best = min(seconds(lambda: left @ right, device) for _ in range(times))
    return 2 * size**3 / best


def seconds(work: Callable[[], Any], device: str) -> float:
    """How long ``work`` takes, the GPU's part included."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
