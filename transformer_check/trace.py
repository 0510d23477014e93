"""Traces of what a model computes with torch: softmaxes, wide products and random numbers.

Shape letters: B batch, H heads, S source, T target.
"""

import math
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
QUOTIENTS = ("div", "div_")

EXPONENTS = {"exp": 1.0, "exp2": math.log(2)}
"""operation → the factor of its operand in a power of e"""
Layouts = dict[int, tuple[int, int]]
"""Number of dimensions of attention weights → their dimensions of queries and of keys."""


@dataclass(frozen=True)
class Event:
    """A softmax, or a product with d_ff elements per token: the feed-forward network's first."""

    operand: Tensor
    """the scores of a softmax, with queries and keys as the last two dimensions; of a product, its
    result"""
    result: Tensor
    is_softmax: bool
    module: nn.Module | None
    """the innermost module whose forward caused it"""
    over: int = -1
    """the dimension of the operand over which a softmax sums: -1 is that of keys"""


def place(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, the same for all its views."""
    return int(tensor.untyped_storage().data_ptr())


def single_number(value: Any) -> float | None:
    """Return a number, or the only element of a tensor; else None."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value.detach())
    return None


def to_front(tensor: Tensor, layouts: Layouts) -> Tensor:
    """Move the dimensions of queries and keys to the end."""
    where = layouts.get(tensor.dim())
    return tensor if where is None else tensor.movedim(where, (-2, -1))


def dimension_behind(dimension: int, dims: int, layouts: Layouts) -> int:
    """Return the index, from the end, of a dimension after :func:`to_front`."""
    queries, keys = layouts.get(dims, (dims - 2, dims - 1))
    order = [n for n in range(dims) if n not in (queries, keys)]
    return [*order, queries, keys].index(dimension % dims) - dims


class Exponentials:
    """Exponentials of tensors, by which a softmax written as exp(x) / exp(x).sum() is found."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Tensor, Tensor]] = {}
        """address of exp(x) → exp(x), and x"""

    def add(self, name: str, x: Tensor, result: Tensor) -> None:
        """Record the exponential of x, or the power of 2."""
        self.known[place(result)] = (result, EXPONENTS[name] * x.detach().clone())

    def exponents(self, name: str, args: Any) -> Tensor | None:
        """Return x, if the operation is exp(x) divided by its sums over one dimension."""
        if name not in QUOTIENTS or not isinstance(args[1], Tensor):
            return None
        exponential = self.known.get(place(args[0]))
        if (
            exponential is None
            or exponential[0].shape != args[0].shape
            or args[1].dim() != args[0].dim()
        ):
            return None
        return exponential[1] if summed_dimension(args[0], args[1]) is not None else None


class Trace(TorchDispatchMode):
    """Records the events, and the shape of every draw of random numbers.

    A softmax that is written as exp(x) / exp(x).sum() is an event, too.

    Args:
        wide: d_ff, if its products are events too
        replay: results that replace those of the events, in order
        layouts: which dimensions of attention weights are queries and keys; else the last two
    """

    def __init__(
        self,
        wide: int | None = None,
        replay: Sequence[Tensor] | None = None,
        layouts: Layouts | None = None,
    ) -> None:
        super().__init__()
        self.wide = wide
        self.replay = replay
        self.layouts = layouts or {}
        self.running: list[nn.Module] = []
        self.events: list[Event] = []
        self.reads: list[Tensor] = []
        """left operand of each product that sums over d_ff: the feed-forward network's second"""
        self.draws: list[tuple[int, ...]] = []
        self.rates: list[float] = []
        self.sigmoids: list[tuple[int, ...]] = []
        self.exponentials = Exponentials()

    @property
    def softmaxes(self) -> list[Tensor]:
        """The results of every softmax."""
        return [event.result.float() for event in self.events if event.is_softmax]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise newer torch runs its compiler's switches at every operation."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        exponents = self.exponentials.exponents(name, args)
        if name in PRODUCTS and self.wide is not None:
            self.read(name, args)
        result = func(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) else result
        if name in RANDOM:
            self.draws.append(tuple(first.shape))
            self.rates += rate_of(name, args)
        elif name in SOFTMAX:
            return self.softmax(args[0], first, int(args[1]))
        elif name in EXPONENTS:
            self.exponentials.add(name, args[0], first)
        elif exponents is not None:
            return self.softmax(exponents, first, summed_dimension(first, args[1]))
        elif name == "sigmoid":
            self.sigmoids.append(tuple(first.shape))
        elif name in PRODUCTS and self.wide in first.shape[1:]:
            numbers = first.detach().clone()
            return self.event(Event(numbers, numbers, False, self.module()), first)
        return result

    def read(self, name: str, args: Any) -> None:
        """Record the left operand of a product that sums over d_ff elements."""
        operand = args[1] if name in ("addmm", "baddbmm") else args[0]
        over = 1 if name == "convolution" else -1
        if operand.size(over) == self.wide:
            self.reads.append(operand.detach().clone())

    def softmax(
        self, scores: Tensor, result: Tensor, over: int | None, name: str = "softmax"
    ) -> Any:
        """Record a softmax, and return its result or its replacement."""
        dims = result.dim()
        scores = to_front(scores, self.layouts).detach().clone()
        weights = to_front(result, self.layouts).detach().clone()
        place_of_sum = dimension_behind(over or 0, dims, self.layouts)
        return self.event(Event(scores, weights, True, self.module(), place_of_sum), result)

    def module(self) -> nn.Module | None:
        """Return the innermost running module that is neither a softmax nor a dropout."""
        own = [each for each in self.running if not isinstance(each, (nn.Softmax, nn.Dropout))]
        return own[-1] if own else None

    def enter(self, module: nn.Module, _: Any) -> None:
        """Record that a module's forward begins."""
        self.running.append(module)

    def leave(self, module: nn.Module, *_: Any) -> None:
        """Record that a module's forward has ended, and those in it that raised."""
        while self.running and self.running.pop() is not module:
            pass

    def event(self, event: Event, result: Tensor) -> Tensor:
        """Record an event, and return its result or its replacement.

        The replacement is a copy, since the model may write into it.
        """
        number = len(self.events)
        self.events.append(event)
        if self.replay is None or number >= len(self.replay):
            return result
        replacement = self.replay[number]
        if replacement.shape != event.result.shape:
            return result
        where = self.layouts.get(result.dim()) if event.is_softmax else None
        if where is not None:
            replacement = replacement.movedim((-2, -1), where)
        return replacement.clone(memory_format=torch.contiguous_format)


def rate_of(name: str, args: Any) -> list[float]:
    """Return the rate of a dropout from the arguments of its draw; empty if they do not show it."""
    if name == "native_dropout":
        return [float(args[1])]
    if name in ("bernoulli", "bernoulli_") and len(args) > 1 and isinstance(args[1], float):
        return [1 - args[1]]
    return []


def summed_dimension(numbers: Tensor, sums: Tensor) -> int | None:
    """Return the only dimension in which the sums have size 1 and the numbers are larger."""
    pairs = zip(numbers.shape, sums.shape, strict=True)
    different = [n for n, (size, size_of_sums) in enumerate(pairs) if size != size_of_sums]
    return different[0] if len(different) == 1 and sums.shape[different[0]] == 1 else None


def layouts_of(softmaxes: list[Tensor], source: int, target: int) -> Layouts:
    """Return the dimensions of queries and keys, found in the weights of cross-attention.

    Args:
        softmaxes: attention weights of a run with one sentence
        source: S, which is the length of no other dimension
        target: T, likewise
    """
    layouts: Layouts = {}
    for weights in softmaxes:
        shape = list(weights.shape)
        if shape.count(source) == 1 and shape.count(target) == 1:
            layouts.setdefault(len(shape), (shape.index(target), shape.index(source)))
    return layouts


def set_fused_layers(enabled: bool) -> bool:
    """Set whether nn.MultiheadAttention may be one kernel, and return whether it was before.

    torch 2.2 has no such switch.
    """
    switch = getattr(torch.backends, "mha", None)
    if switch is None:
        return True
    before = bool(switch.get_fastpath_enabled())
    switch.set_fastpath_enabled(enabled)
    return before


@contextmanager
def trace_model(
    wide: int | None = None,
    replay: Sequence[Tensor] | None = None,
    layouts: Layouts | None = None,
) -> Iterator[Trace]:
    """Trace the context; fused attention kernels of torch are computed in their parts."""
    kernels = torch.backends.cuda  # these switches count on CPUs, too
    before = kernels.flash_sdp_enabled(), kernels.mem_efficient_sdp_enabled()
    fused_layers = set_fused_layers(False)
    kernels.enable_flash_sdp(False)
    kernels.enable_mem_efficient_sdp(False)
    trace = Trace(wide, replay, layouts)
    entering = hooks.register_module_forward_pre_hook(trace.enter)
    leaving = hooks.register_module_forward_hook(trace.leave)
    try:
        with trace:
            yield trace
    finally:
        entering.remove()
        leaving.remove()
        set_fused_layers(fused_layers)
        kernels.enable_flash_sdp(before[0])
        kernels.enable_mem_efficient_sdp(before[1])
