"""What a model asks of torch while it runs: softmaxes, and the random numbers of dropout."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

RANDOM = ("native_dropout", "bernoulli", "bernoulli_", "rand", "rand_like", "uniform_")
SOFTMAX = ("_softmax", "_safe_softmax")


class Trace(TorchDispatchMode):
    """Keeps the results of every softmax, and the shape of every draw of random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.softmaxes: list[Tensor] = []
        self.draws: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        first = result[0] if isinstance(result, tuple) else result
        if name in SOFTMAX:
            self.softmaxes.append(first.detach().float())
        elif name in RANDOM:
            self.draws.append(tuple(first.shape))
        return result


@contextmanager
def traced() -> Iterator[Trace]:
    """A trace of the block; attention that is one kernel of torch's is computed in its parts."""
    kernels = torch.backends.cuda  # these switches count on CPUs, too
    before = kernels.flash_sdp_enabled(), kernels.mem_efficient_sdp_enabled()
    kernels.enable_flash_sdp(False)
    kernels.enable_mem_efficient_sdp(False)
    try:
        with Trace() as trace:
            yield trace
    finally:
        kernels.enable_flash_sdp(before[0])
        kernels.enable_mem_efficient_sdp(before[1])
