"""What a model asks of torch while it runs: softmaxes, wide products, and random numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

RANDOM = ("native_dropout", "bernoulli", "bernoulli_", "rand", "rand_like", "uniform_")
SOFTMAX = ("_softmax", "_safe_softmax")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution")


@dataclass(frozen=True)
class Event:
    """A softmax, or a product with d_ff numbers for each word: the feed-forward network's first."""

    operand: Tensor
    """the scores of a softmax; of a product, what it gives"""
    result: Tensor
    is_softmax: bool
    module: nn.Module | None
    """the innermost module whose forward caused it"""


class Trace(TorchDispatchMode):
    """Keeps the events, and the shape of every draw of random numbers.

    Args:
        wide: d_ff, if its products are events too
        replay: what the events are to give instead of what they would
    """

    def __init__(self, wide: int | None = None, replay: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.wide = wide
        self.replay = replay
        self.running: list[nn.Module] = []
        self.events: list[Event] = []
        self.draws: list[tuple[int, ...]] = []

    @property
    def softmaxes(self) -> list[Tensor]:
        """The results of every softmax."""
        return [event.result.float() for event in self.events if event.is_softmax]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Newer torch would otherwise go through its compiler's switches at every operation."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        first = result[0] if isinstance(result, tuple) else result
        is_wide = name in PRODUCTS and self.wide in first.shape[1:]
        if name in RANDOM:
            self.draws.append(tuple(first.shape))
        elif name in SOFTMAX or is_wide:
            return self.event(args[0] if name in SOFTMAX else first, first, name in SOFTMAX)
        return result

    def module(self) -> nn.Module | None:
        """Return the innermost module that is running and has a part of its own."""
        own = [each for each in self.running if not isinstance(each, (nn.Softmax, nn.Dropout))]
        return own[-1] if own else None

    def enter(self, module: nn.Module, _: Any) -> None:
        """Note that a module's forward begins."""
        self.running.append(module)

    def leave(self, module: nn.Module, *_: Any) -> None:
        """Note that a module's forward has ended, and those in it that raised."""
        while self.running and self.running.pop() is not module:
            pass

    def event(self, operand: Tensor, result: Tensor, is_softmax: bool) -> Tensor:
        """Keep an event, and return what it is to give; copies, since the model may write there."""
        number = len(self.events)
        scores, weights = operand.detach().clone(), result.detach().clone()
        self.events.append(Event(scores, weights, is_softmax, self.module()))
        if self.replay is None or number >= len(self.replay):
            return result
        replacement = self.replay[number]
        return replacement.clone() if replacement.shape == result.shape else result


@contextmanager
def traced(wide: int | None = None, replay: Sequence[Tensor] | None = None) -> Iterator[Trace]:
    """A trace of the block; attention that is one kernel of torch's is computed in its parts."""
    kernels = torch.backends.cuda  # these switches count on CPUs, too
    before = kernels.flash_sdp_enabled(), kernels.mem_efficient_sdp_enabled()
    kernels.enable_flash_sdp(False)
    kernels.enable_mem_efficient_sdp(False)
    trace = Trace(wide, replay)
    entering = hooks.register_module_forward_pre_hook(trace.enter)
    leaving = hooks.register_module_forward_hook(trace.leave)
    try:
        with trace:
            yield trace
    finally:
        entering.remove()
        leaving.remove()
        kernels.enable_flash_sdp(before[0])
        kernels.enable_mem_efficient_sdp(before[1])
