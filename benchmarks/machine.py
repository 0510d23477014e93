"""What a figure depends on besides the code: the precisions of a machine, and its peak."""

import time
from collections.abc import Callable
from typing import Any


def precisions(device: str) -> list[str]:
    """Return ``fp32``, on a GPU ``fp16``, and ``bf16`` if the device has units for it.

    fairseq's model under autocast takes many times as long where bf16 is emulated, and ours
    computes in fp32 there: neither would say anything about bf16.
    """
    from vaswani_transformer.precision import has_bf16_units

    halves = ["fp16"] if device == "cuda" else []
    return ["fp32", *halves, *(["bf16"] if has_bf16_units(device) else [])]


def switch_cudnn_attention_off() -> None:
    """Stop torch in this process from choosing cuDNN for attention; 2.2 never chooses it."""
    import torch

    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)


def peak_flops(device: str, precision: str, threads: int, times: int = 20) -> float:
    """Return the operations per second of the machine's fastest square matrix product.

    MFU is a share of it. It is the best of ``times`` runs at each of several sizes; on a CPU, by
    the faster of torch's libraries. It is not the data sheet's figure, and is right only on an idle
    machine.
    """
    import torch

    from vaswani_transformer.fast.linear import onednn
    from vaswani_transformer.fast.processor import choices_for

    torch.set_num_threads(threads)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    by_onednn = precision == "fp32" and choices_for(device).fp32_by_onednn
    product = onednn if by_onednn else torch.matmul
    best = 0.0
    for size in (1024, 2048, *([8192] if device == "cuda" else [])):
        left = torch.randn(size, size, device=device).to(dtype)
        right = torch.randn(size, size, device=device).to(dtype)
        for _ in range(times):
            best = max(best, 2 * size**3 / seconds(product, device, left, right))
    return best


def seconds(work: Callable[..., Any], device: str, *arguments: Any) -> float:
    """Return the seconds that ``work`` takes, including the GPU's part."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
