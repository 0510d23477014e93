"""What a figure depends on besides the code: the machine, its versions, its own peak."""

import time
from typing import Any, Callable, Dict

from vaswani.environment import environment


def machine(device: str) -> Dict[str, Any]:
    """The environment, as runs record it, and the device."""
    return {**environment(), "device": device}


def peak_flops(device: str, precision: str, threads: int, times: int = 20) -> float:
    """Operations a second of the machine's best square matrix product: what MFU is a share of.

    The best of ``times`` runs and of some sizes, by the quicker of torch's libraries on a CPU;
    not the data sheet's figure, and right only on an idle machine.
    """
    import torch

    from transformer_plugin.fast.linear import onednn
    from transformer_plugin.fast.processor import choices_for

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    by_onednn = precision == "fp32" and choices_for(device).fp32_by_onednn
    product = onednn if by_onednn else torch.matmul
    best = 0.0
    for size in (1024, 2048, *([8192] if device == "cuda" else [])):
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        for _ in range(times):
            best = max(best, 2 * size**3 / seconds(product, device, left, right))
    return best


def seconds(work: Callable[..., Any], device: str, *arguments: Any) -> float:
    """How long ``work`` takes, the GPU's part included."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
