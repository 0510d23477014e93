"""Table 1: what a layer costs, and how far apart it leaves two words (section 4).

Letters: n words, d width, k words that a convolution sees, r words that restricted attention sees.

The formulas stand beside what is counted and measured on the layers themselves: multiplications by
torch's counter, the steps that must wait for each other by the graph that the gradient walks, the
path between the first word and the last by the gradient of one with respect to the other.
"""

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

#: of the convolution and of restricted attention, as in the figures for this table
K, R = 3, 16
#: words and widths whose time and memory are measured
LENGTHS, WIDTHS = (16, 64, 256, 1024, 2048), (64, 256, 1024)
#: a measurement that took as long is not repeated
ENOUGH_SECONDS = 0.5
#: words for counting, and for the steps and the paths
COUNTED, SHORT, LONG = 64, 32, 64

Function = Callable[..., Any]
"""A layer: [1, n, d] → [1, n, d]; in a stack it is told its ``level``, from 0."""


class Formula(NamedTuple):
    """A row of the table as the paper prints it, and the multiplications behind the first entry."""

    complexity: str
    sequential: str
    path: str
    multiplications: Callable[[int, int], int]


@dataclass(frozen=True)
class Layer:
    """A kind of layer.

    Attributes:
        name: as in the table
        make: d → the function; ``countable`` asks for a form whose multiplications torch counts
        formula: the paper's
        whole: n, d → all multiplications, those of the projections and gates too
        inside: whether the path between two words runs through one layer, from word to word
    """

    name: str
    make: Callable[[int, bool], Function]
    formula: Formula
    whole: Callable[[int, int], int]
    inside: bool = False


# ---- the layers ------------------------------------------------------------------------------


def self_attention(d: int, countable: bool) -> Function:
    """The plugin's, with one head: heads change no number of multiplications."""
    from transformer_plugin.attention import SelfAttention
    from transformer_plugin.model import make_readable

    layer = SelfAttention(d, 1, implementation="readable" if countable else "auto")
    if countable:
        make_readable(layer)
    return lambda x, level=0: layer(x)[0]


def restricted_attention(d: int, countable: bool) -> Function:
    """Self-attention to r words around each one (section 4), without computing the others."""
    import torch
    import torch.nn.functional as F

    from transformer_plugin.attention import SelfAttention
    from transformer_plugin.model import make_readable

    layer = SelfAttention(d, 1)
    if countable:
        make_readable(layer)

    def function(x: Any, level: int = 0) -> Any:
        query, key, value = layer.qkv_proj(x)[0].chunk(3, dim=-1)
        before = (R - 1) // 2
        places = torch.arange(len(query))[:, None] + torch.arange(R) - before  # [n, r]
        outside = (places < 0) | (places >= len(query))
        near = places.clamp(0, len(query) - 1)
        scores = (key[near] @ query[:, :, None])[:, :, 0] / d**0.5  # [n, r]
        weights = F.softmax(scores.masked_fill(outside, float("-inf")), dim=-1)
        return layer.out_proj((weights[:, None] @ value[near])[None, :, 0])

    return function


def recurrent(kind: str) -> Callable[[int, bool], Function]:
    """torch's layer of this kind; one cell after the other where multiplications are counted."""

    def make(d: int, countable: bool) -> Function:
        import torch

        if not countable:
            layer = getattr(torch.nn, kind)(d, d, batch_first=True)
            return lambda x, level=0: layer(x)[0]
        cell = getattr(torch.nn, f"{kind}Cell")(d, d)

        def function(x: Any, level: int = 0) -> Any:
            state, outputs = None, []
            for word in x.unbind(1):
                state = cell(word, state)
                outputs.append(state[0] if kind == "LSTM" else state)
            return torch.stack(outputs, dim=1)

        return function

    return make


def convolution(dilated: bool) -> Callable[[int, bool], Function]:
    """A convolution over k words.

    ``dilated``: in a stack they are 1, k, k² … words apart, as far as there are words, then again.
    """

    def make(d: int, countable: bool) -> Function:
        import torch

        layer = torch.nn.Conv1d(d, d, K)

        def function(x: Any, level: int = 0) -> Any:
            apart = K ** (level % math.ceil(math.log(x.size(1), K))) if dilated else 1
            reach = apart * (K // 2)
            padded = torch.nn.functional.pad(x.transpose(1, 2), (reach, reach))
            return torch.nn.functional.conv1d(
                padded, layer.weight, layer.bias, dilation=apart
            ).transpose(1, 2)

        return function

    return make


ATTENTION = Formula("O(n² · d)", "O(1)", "O(1)", lambda n, d: 2 * n * n * d)
RECURRENT = Formula("O(n · d²)", "O(n)", "O(n)", lambda n, d: n * d * d)
CONVOLUTION = Formula("O(k · n · d²)", "O(1)", "O(logₖ(n))", lambda n, d: K * n * d * d)
CONTIGUOUS = CONVOLUTION._replace(path="O(n/k)")
RESTRICTED = Formula("O(r · n · d)", "O(1)", "O(n/r)", lambda n, d: 2 * R * n * d)


def cells(products: int) -> Callable[[int, int], int]:
    """A cell's d × d matrices: half of them for its input, half for its state."""
    return lambda n, d: products * n * d * d


LAYERS = (
    Layer("self-attention", self_attention, ATTENTION, lambda n, d: 4 * n * d * d + 2 * n * n * d),
    Layer("RNN", recurrent("RNN"), RECURRENT, cells(2), inside=True),
    Layer("GRU", recurrent("GRU"), RECURRENT, cells(6), inside=True),
    Layer("LSTM", recurrent("LSTM"), RECURRENT, cells(8), inside=True),
    Layer("convolution", convolution(False), CONTIGUOUS, CONTIGUOUS.multiplications),
    Layer("convolution, dilated", convolution(True), CONVOLUTION, CONVOLUTION.multiplications),
    Layer(
        "self-attention (restricted)",
        restricted_attention,
        RESTRICTED,
        lambda n, d: 4 * n * d * d + 2 * R * n * d,
    ),
)


# ---- measured --------------------------------------------------------------------------------


def counted(layer: Layer, n: int, d: int) -> int:
    """Multiplications in matrix products and convolutions, by torch's counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    function, x = layer.make(d, True), torch.randn(1, n, d)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        function(x)
    return int(counter.get_total_flops()) // 2  # a multiplication and an addition


def sequential_steps(layer: Layer, n: int, d: int = 8) -> int:
    """The longest chain of operations in which each needs the result of the one before."""
    import torch

    result = layer.make(d, True)(torch.randn(1, n, d, requires_grad=True))
    lengths: Dict[Any, int] = {None: 0}
    waiting = [result.grad_fn]
    while waiting:  # depth first, without recursion: a chain has thousands of operations
        node = waiting[-1]
        before = [needed for needed, _ in node.next_functions]
        unknown = [needed for needed in before if needed not in lengths]
        if unknown:
            waiting += unknown
        else:
            lengths[node] = 1 + max((lengths[needed] for needed in before), default=0)
            waiting.pop()
    return lengths[result.grad_fn]


def longest_path(layer: Layer, n: int, d: int = 8) -> int:
    """What lies between the first word and the last, by the gradient of the last one's output.

    Returns:
        The layers that a stack needs until the gradient reaches the first word; for a recurrent
        layer, which needs one, the words of that layer that the gradient comes through.
    """
    import torch

    torch.manual_seed(1)
    first = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    torch.set_default_dtype(torch.float64)  # a small gradient must not become zero
    try:
        function = layer.make(d, True)
        x = first
        for level in range(n):
            x = function(x, level=level)
            (gradient,) = torch.autograd.grad(x[0, -1].sum(), first, retain_graph=True)
            reached = gradient[0].abs().sum(-1) > 0  # [n]
            if reached[0]:
                return int(reached.sum()) if layer.inside else level + 1
    finally:
        torch.set_default_dtype(torch.float32)
    raise AssertionError(f"{layer.name}: the first word does not reach the last")


class Cost(NamedTuple):
    """Of one layer, forward and backward: seconds, and bytes held for the backward pass."""

    seconds: float
    held_bytes: int


def cost(layer: Layer, n: int, d: int, repeats: int = 3) -> Cost:
    """Median time of forward and backward on one sentence, and what is held in between."""
    import torch

    function, x = layer.make(d, False), torch.randn(1, n, d, requires_grad=True)
    held: Dict[int, int] = {}

    def hold(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        result = function(x)
    result.sum().backward()  # also warms up
    seconds: List[float] = []
    while len(seconds) < repeats and sum(seconds) < ENOUGH_SECONDS:
        start = time.perf_counter()
        function(x).sum().backward()
        seconds.append(time.perf_counter() - start)
    return Cost(statistics.median(seconds), sum(held.values()))


def crossing(layer: Layer, other: Layer, d: int) -> float:
    """From how many words on ``layer`` takes more multiplications than ``other``, all counted.

    Both are linear or quadratic in n without a constant: two counts of each give the coefficients.

    Returns:
        n; 0 if it always takes more, infinity if never.
    """

    def coefficients(which: Layer) -> Tuple[float, float]:
        one, two = counted(which, SHORT, d) / SHORT, counted(which, LONG, d) / LONG
        squared = (two - one) / (LONG - SHORT)
        return one - squared * SHORT, squared

    (linear, squared), (other_linear, other_squared) = map(coefficients, (layer, other))
    if squared <= other_squared:
        return 0.0 if linear > other_linear else float("inf")
    return max(0.0, (other_linear - linear) / (squared - other_squared))


def measure(progress: Callable[[str], Any] = lambda _: None) -> Dict[str, Any]:
    """The whole table as JSON-able values: ``rows`` in the order of ``LAYERS``, ``crossings``."""
    rows: List[Dict[str, Any]] = []
    for layer in LAYERS:
        progress(layer.name)
        costs = {f"{n}x{d}": cost(layer, n, d)._asdict() for d in WIDTHS for n in LENGTHS}
        d = WIDTHS[0]
        rows.append(
            {
                "layer": layer.name,
                "paper": layer.formula._asdict() | {"multiplications": None},
                "multiplications": {
                    "n": COUNTED,
                    "d": d,
                    "formula": layer.formula.multiplications(COUNTED, d),
                    "whole": layer.whole(COUNTED, d),
                    "counted": counted(layer, COUNTED, d),
                },
                "sequential": {str(n): sequential_steps(layer, n) for n in (SHORT, LONG)},
                "path": {str(n): longest_path(layer, n) for n in (SHORT, LONG)},
                "cost": costs,
            }
        )
    attention = LAYERS[0]
    crossings = {
        other.name: {str(d): crossing(attention, other, d) for d in WIDTHS} for other in LAYERS[1:]
    }
    return {"k": K, "r": R, "rows": rows, "crossings": crossings}
