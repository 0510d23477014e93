"""Table 1: what a layer costs, and how far apart it leaves two words (section 4).

Letters: n words, d width, k words that a convolution sees, r words that restricted attention sees.

The formulas stand beside what is counted and measured on the layers themselves: multiplications by
torch's counter, the steps that must wait for each other by the graph that the gradient walks, the
path between the first word and the last by the gradient of one with respect to the other.
"""

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vaswani.common.markdown import markdown_table
from vaswani.common.options import argument, option
from vaswani.common.outputs import FolderOutputs
from vaswani.reproduction.layers import LAYERS, K, Layer, R

#: words and widths whose time and memory are measured
LENGTHS, WIDTHS = (16, 64, 256, 1024, 2048), (64, 256, 1024)
#: words for counting, and for the steps and the paths
COUNTED, SHORT, LONG = 64, 32, 64

RECORD = "table1.json"
#: the columns of the paper's table
PAPER = ("complexity", "sequential", "path")

# ---- measured --------------------------------------------------------------------------------


def count_multiplications(layer: Layer, n: int, d: int) -> int:
    """Count the multiplications in matrix products and convolutions, by torch's counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    function = layer.make(d, True)
    x = torch.randn(1, n, d)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        function(x)
    return int(counter.get_total_flops()) // 2  # a multiplication and an addition


def sequential_steps(layer: Layer, n: int, d: int = 8) -> int:
    """Return the longest chain of operations in which each needs the result of the one before."""
    import torch

    result = layer.make(d, True)(torch.randn(1, n, d, requires_grad=True))
    lengths: dict[Any, int] = {None: 0}
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
    """Return the path length from the first word to the last, by the gradient of the last output.

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
    finally:
        torch.set_default_dtype(torch.float32)
    x = first
    levels = 0
    reached = torch.zeros(n, dtype=torch.bool)
    while not reached[0]:
        x = function(x, level=levels)
        levels += 1
        (gradient,) = torch.autograd.grad(x[0, -1].sum(), first, retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0  # [n]
    return int(reached.sum()) if layer.inside else levels


def cost(layer: Layer, n: int, d: int, repeats: int = 3) -> dict[str, float]:
    """Measure forward and backward on one sentence: median seconds, and bytes held in between."""
    import torch

    function = layer.make(d, False)
    x = torch.randn(1, n, d, requires_grad=True)
    held: dict[int, int] = {}

    def hold(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        result = function(x)
    result.sum().backward()  # also warms up
    seconds: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(x).sum().backward()
        seconds.append(time.perf_counter() - start)
    return {"seconds": statistics.median(seconds), "held_bytes": sum(held.values())}


def crossing(layer: Layer, other: Layer, d: int) -> float:
    """Return the length from which ``layer`` takes more multiplications than ``other``.

    Both are linear or quadratic in n without a constant: two counts of each give the coefficients.

    Returns:
        n words; 0 if it always takes more, infinity if never.
    """

    def coefficients(which: Layer) -> tuple[float, float]:
        short, long = (
            count_multiplications(which, SHORT, d) / SHORT,
            count_multiplications(which, LONG, d) / LONG,
        )
        squared = (long - short) / (LONG - SHORT)
        return short - squared * SHORT, squared

    (linear, squared), (other_linear, other_squared) = map(coefficients, (layer, other))
    if squared <= other_squared:
        return 0.0 if linear > other_linear else float("inf")
    return max(0.0, (other_linear - linear) / (squared - other_squared))


def measure_layers() -> dict[str, Any]:
    """Measure the whole table: JSON-able ``rows`` in the order of ``LAYERS``, and ``crossings``."""
    rows: list[dict[str, Any]] = []
    for layer in LAYERS:
        print(f"{layer.name} …", file=sys.stderr)
        costs = {f"{n}x{d}": cost(layer, n, d) for d in WIDTHS for n in LENGTHS}
        d = WIDTHS[0]
        rows.append(
            {
                "layer": layer.name,
                "paper": dict(zip(PAPER, layer.formula[:3], strict=True)),
                "multiplications": {
                    "n": COUNTED,
                    "d": d,
                    "formula": layer.formula.multiplications(COUNTED, d),
                    "counted": count_multiplications(layer, COUNTED, d),
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


# ---- shown -------------------------------------------------------------------------------------


def lines_of(measured: dict[str, Any]) -> list[str]:
    """Return the table in Markdown: the paper's columns, each beside what was counted or measured.

    The paper's columns are today's formulas: a record may be older than a correction of these.
    """
    rows = measured["rows"]
    formulas = {layer.name: layer.formula for layer in LAYERS}
    counted_at = rows[0]["multiplications"]
    n, d = LENGTHS[-1], WIDTHS[-1]
    columns = [
        "layer",
        "per layer, paper",
        f"multiplications, n {counted_at['n']}, d {counted_at['d']}: paper's term, all",
        "steps, paper",
        f"counted, n {SHORT} and {LONG}",
        "path, paper",
        f"measured, n {SHORT} and {LONG}",
        f"forward and backward, n {n}, d {d}",
    ]
    cells = []
    for row in rows:
        paper = formulas[row["layer"]]
        numbers = row["multiplications"]
        term = paper.multiplications(numbers["n"], numbers["d"])
        cost_there = row["cost"][f"{n}x{d}"]
        cells_of_row = [
            row["layer"],
            paper.complexity,
            f"{term:,}, {numbers['counted']:,}",
            paper.sequential,
            " and ".join(str(steps) for steps in row["sequential"].values()),
            paper.path,
            " and ".join(str(steps) for steps in row["path"].values()),
            f"{1000 * cost_there['seconds']:,.0f} ms, {cost_there['held_bytes'] / 1e6:,.0f} MB",
        ]
        cells.append(cells_of_row)
    lines = [
        *markdown_table(columns, cells),
        "",
        "Length beyond which self-attention takes more multiplications (0: always):",
        "",
    ]
    for other, by_width in measured["crossings"].items():
        values = ", ".join(f"{n:,.0f} (d {d})" for d, n in by_width.items())
        lines.append(f"- {other}: {values}")
    return lines


# ---- the command -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``vaswani reproduce table1``."""

    name: str = argument("NAME", "table1")
    out: str = option("runs/table1", "output folder (default: runs/table1)", metavar="DIR")


def run(options: Options) -> int:
    """Count, measure, print the table, and write it with its record."""
    import torch

    out = Path(options.out)
    with FolderOutputs(out, RECORD, "vaswani reproduce table1").write() as draft:
        torch.manual_seed(1)
        measured = measure_layers()
        lines = lines_of(measured)
        draft.record.update(torch=torch.__version__, threads=torch.get_num_threads(), **measured)
        (draft.path / "table1.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    print("\n".join(lines))
    print(f"written to {out}", file=sys.stderr)
    return 0
