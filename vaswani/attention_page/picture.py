"""Attention as pictures (sections 3.2.2 and 3.2.3, as in figures 3 to 5)."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy

from vaswani.attention_page.maps import KINDS, Attention, view
from vaswani.common.files import atomic_write
from vaswani.common.progress import bar

#: inches: per word, a map's least width, a picture's greatest width
WORD, LEAST, WIDEST = 0.16, 3.2, 36.0
#: dots per inch, and dots per picture: long sentences get fewer dots per inch
DPI, MOST_DOTS = 110, 40e6


def draw_layers(folder: Path, attention: Attention, by: str) -> list[str]:
    """Draw every head of every layer, one PNG per layer.

    Args:
        folder: where to write
        attention: of a model over a sentence and its translation
        by: "words" or "subwords"

    Returns:
        the names of the pictures, such as ``cross_layer_2.png``
    """
    names = []
    layers = [(kind, n) for kind, weights in attention.weights.items() for n in range(len(weights))]
    for kind, number in bar(iterable=layers, desc="pictures"):
        maps, rows, columns = view(attention, kind, by)
        title = f"{KINDS[kind].title}, layer {number + 1}"
        names.append(f"{kind}_layer_{number + 1}.png")
        draw(folder / names[-1], maps[number], (rows, columns), title)
    return names


def draw(
    path: Path,
    weights: numpy.ndarray,
    subwords: tuple[list[str], list[str]],
    title: str,
) -> None:
    """Draw the mean over heads, and each head, into a PNG.

    Args:
        weights: [heads, rows, columns], each row a distribution over the columns
        subwords: the labels (of rows, of columns)
        title: of the picture
    """
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    maps = [weights.mean(axis=0), *weights]
    names = ["mean of heads", *(f"head {number}" for number in range(1, len(maps)))]
    width = max(LEAST, WORD * len(subwords[1]) + 1)
    across = max(1, min(len(maps), int(WIDEST / width)))
    down = math.ceil(len(maps) / across)
    size = width * across, (WORD * len(subwords[0]) + 1.5) * down + 0.5
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    axes = grid.flat
    words: dict[str, Any] = {"fontsize": 7, "parse_math": False}  # "$" is a word
    for axis, head_map, name in zip(axes, maps, names, strict=False):
        axis.imshow(head_map, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        axis.set_title(name, fontsize=9)
        axis.set_xticks(range(len(subwords[1])), subwords[1], rotation=90, **words)
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    for axis in grid[:, 0]:
        axis.set_yticks(range(len(subwords[0])), subwords[0], **words)
    figure.suptitle(f"{title} (rows attend to columns)")
    dpi = min(DPI, math.sqrt(MOST_DOTS / (size[0] * size[1])))
    with atomic_write(path, "wb") as stream, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page has them
        figure.savefig(stream, format="png", dpi=dpi)
