"""Helpers of paper.py: to split text, print, draw and look inside a model."""

import ast
import inspect
import lzma
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"


def lines_of(name: str) -> list[str]:
    """Return the lines of a file of the checkout, which may be compressed."""
    reads = lzma.open if name.endswith(".xz") else open
    with reads(ROOT / name, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in lines]


# ---- Split text ----------------------------------------------------------------------------------


def words(sentence: str) -> list[str]:
    """Split a sentence into words, currency signs and punctuation; the comma in 1,234 stays."""
    return re.sub(r"([€$£:?]|,(?!\d)|\.$)", r" \1 ", sentence).split()


@cache
def merges() -> dict[tuple[str, str], int]:
    """Return the demo's merges, each with its place in the order in which they were learned."""
    pairs = [line.split() for line in lines_of("models/demo_en_de/bpecodes")[1:]]
    return {(first, second): place for place, (first, second) in enumerate(pairs)}


@cache
def subwords_of_word(word: str) -> list[str]:
    """Join neighbouring parts of a word, the earliest learned merge first."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while len(parts) > 1:
        places = [merges().get(pair, len(merges())) for pair in pairwise(parts)]
        earliest = min(places)
        if earliest == len(merges()):
            break
        at = places.index(earliest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [part + "@@" for part in parts[:-1]] + [parts[-1].removesuffix("</w>")]


def subwords(sentence: str) -> list[str]:
    """Return the subwords of a sentence; ``@@`` marks one that does not end its word."""
    parts = []
    for word in words(sentence):
        parts += subwords_of_word(word)
    return parts


# ---- Print ---------------------------------------------------------------------------------------


def source_of(function: Callable) -> str:
    """Return the source of a function of the project, without docstring and linter comments."""
    function = inspect.unwrap(function)
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    definition = ast.parse("\n".join(lines)).body[0]
    if function.__doc__:
        docstring = definition.body[0]  # type: ignore[attr-defined]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(line.partition("  # noqa")[0] for line in lines if line)


def code(*functions: Callable) -> None:
    """Show the source of functions: highlighted in a notebook, plain in a terminal."""
    for function in functions:
        title = f"{function.__qualname__}, in {function.__module__.replace('.', '/')}.py"
        source = source_of(function)
        if not in_notebook():
            print(f"# {title}\n{source}\n")
            continue
        from IPython.display import display

        markdown = f"`{title}`\n\n```python\n{source}\n```"
        display({"text/markdown": markdown, "text/plain": source}, raw=True)


def in_notebook() -> bool:
    """Return whether this runs in a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None


def bits(nats: float) -> float:
    """Return a loss in bits, from nats (natural logarithms)."""
    return nats / math.log(2)


# ---- Compare -------------------------------------------------------------------------------------


def compare(name: str, mine: Tensor | float | None, expected: Tensor | float) -> None:
    """Print whether the reader's function returns the same as ours.

    Args:
        name: of the function
        mine: the reader's result; None if the function is not written yet
        expected: our result
    """
    if mine is None:
        print(f"{name}: not written yet")
        return
    actual, wanted = (torch.as_tensor(value).double() for value in (mine, expected))
    if actual.shape != wanted.shape:
        print(f"{name}: the shape is {list(actual.shape)}, and should be {list(wanted.shape)}")
    elif torch.allclose(actual, wanted, rtol=1e-4, atol=1e-5):
        print(f"{name}: the same as ours")
    else:
        print(f"{name}: other numbers than ours, by up to {(actual - wanted).abs().max():.2g}")


# ---- Draw ----------------------------------------------------------------------------------------

plt.rcParams.update({"figure.figsize": (8, 3), "figure.constrained_layout.use": True})
plt.rcParams["figure.max_open_warning"] = 0  # without a display, none is closed


def heat(
    axis: Any,
    matrix: Tensor,
    title: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    **labels: Any,
) -> None:
    """Draw a matrix from top to bottom, darker where larger; rows and columns may have names."""
    values = matrix.detach().numpy()
    lightest = min(0.0, float(values.min()))
    axis.imshow(values, cmap="Blues", vmin=lightest, aspect="auto", interpolation="nearest")
    if rows:
        axis.set_yticks(range(len(rows)), rows, fontsize=8)
    else:
        axis.locator_params("y", integer=True)
    if columns:
        axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8)
    else:
        axis.locator_params("x", integer=True)
    axis.set(title=title, **labels)


ENCODER = [
    ("embedding + positions", "embedding"),
    ("self-attention", "layers.0.self_attention"),
    ("add & norm", "layers.0.after_self_attention"),
    ("feed-forward", "layers.0.feed_forward"),
    ("add & norm", "layers.0.after_feed_forward"),
]
DECODER = [
    ("embedding + positions", "embedding"),
    ("masked self-attention", "layers.0.self_attention"),
    ("add & norm", "layers.0.after_self_attention"),
    ("cross-attention", "layers.0.cross_attention"),
    ("add & norm", "layers.0.after_cross_attention"),
    ("feed-forward", "layers.0.feed_forward"),
    ("add & norm", "layers.0.after_feed_forward"),
    ("linear (then softmax)", "output_projection"),
]


def draw_figure_1(shapes: dict[str, list[int]], source: list[int], target: list[int]) -> None:
    """Draw Figure 1 with the output shape of each box.

    Args:
        shapes: as from :func:`shapes_of`
        source: the shape of the encoder's input
        target: the shape of the decoder's input
    """
    _, axis = plt.subplots(figsize=(8, 6))
    for x, side, boxes, below in (
        (0.0, "encoder", ENCODER, f"source {source}"),
        (5.0, "decoder", DECODER, f"target, shifted right {target}"),
    ):
        middle = x + 1.5
        top = 8.25 if side == "decoder" else 5.85
        axis.text(middle, -0.7, below, ha="center", fontsize=9)
        arrow(axis, (middle, -0.4), (middle, 0))
        for number, (label, name) in enumerate(boxes):
            y = 1.2 * number
            colour = "#fde4c8" if "attention" in label else "#e3edf7"
            axis.add_patch(plt.Rectangle((x, y), 3, 0.6, facecolor=colour, edgecolor="0.4"))
            axis.text(middle, y + 0.3, label, ha="center", va="center", fontsize=9)
            axis.text(middle + 0.1, y + 0.8, str(shapes[f"{side}.{name}"]), va="center", fontsize=8)
            arrow(axis, (middle, y + 0.6), (middle, y + 1.2))
        outline = {"fill": False, "edgecolor": "0.5", "linestyle": "--"}
        axis.add_patch(plt.Rectangle((x - 0.2, 1.05), 3.4, top - 1.05, **outline))
        axis.text(x + 3.3, top - 0.4, "N ×", fontsize=10)
    axis.plot([1.5, 1.5, 4.2, 4.2], [6.0, 6.3, 6.3, 3.9], color="0.3")
    arrow(axis, (4.2, 3.9), (5, 3.9))
    axis.text(4.1, 5.0, "memory", ha="right", fontsize=9)
    axis.set(xlim=(-0.5, 9), ylim=(-1, 9.8))
    axis.axis("off")


def arrow(axis: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow between two points."""
    axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.3"})


# ---- Look inside ---------------------------------------------------------------------------------


def shapes_of(model: nn.Module, *inputs: Tensor) -> dict[str, list[int]]:
    """Return the output shape of each part of a model, by the part's name, from one pass."""
    shapes = {}

    def note(name: str) -> Callable:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            shapes[name] = list(first.shape)

        return hook

    hooks = [part.register_forward_hook(note(name)) for name, part in model.named_modules()]
    with torch.no_grad():
        model(*inputs)
    for handle in hooks:
        handle.remove()
    return shapes


def dependence(layer: Callable[[Tensor], Tensor], length: int = 8, width: int = 64) -> Tensor:
    """Return the norm of each output position's gradient by each input position.

    An element [output, input] is zero if that input does not change the output at all.
    """
    x = torch.randn(1, length, width)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0].sum(-1), x)
    return jacobian[:, 0].norm(dim=-1)
