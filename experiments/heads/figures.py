"""Figures 3 to 5 in the paper's style: lines from each word to the words that a head looks at."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Panel(NamedTuple):
    """A sentence and the heads that are drawn for it.

    Attributes:
        title: of the panel
        words: that look, with the end
        keys: the words that are looked at
        weights: of one layer, [H, words, keys]; each row is a distribution
        heads: which are drawn, from 0
        word: the one word whose weights are drawn; None: every word's
        partner: the one among the keys that it depends on; both are printed in bold
    """

    title: str
    words: Sequence[str]
    keys: Sequence[str]
    weights: Any
    heads: Sequence[int]
    word: int | None = None
    partner: int | None = None


def least_alike(weights: Any) -> list[int]:
    """Return the two heads of [H, W, W] whose distributions differ most, on average over the
    rows.
    """
    apart = abs(weights[:, None] - weights[None]).sum((-1, -2))  # [H, H]
    return list(divmod(int(apart.argmax()), len(weights)))


def draw_panel(axis: Any, panel: Panel) -> None:
    """Draw two columns of words, joined by lines as opaque as the weights.

    Each head has a colour.
    """
    from matplotlib import colormaps

    sides = ((-0.02, panel.words, panel.word, "right"), (1.02, panel.keys, panel.partner, "left"))
    for x, words, marked, aligned in sides:
        for place, word in enumerate(words):
            weight = "bold" if place == marked else "normal"
            axis.text(x, -place, word, ha=aligned, va="center", fontsize=8, weight=weight)
    for number, head in enumerate(panel.heads):
        colour = colormaps["tab10"](head % 10)
        beside = 0.08 * (number - (len(panel.heads) - 1) / 2)
        axis.plot([], [], color=colour, label=f"head {head + 1}")
        for row in range(len(panel.words)) if panel.word is None else [panel.word]:
            for column, weight in enumerate(panel.weights[head, row]):
                ends = [-row - beside, -column - beside]
                axis.plot([0, 1], ends, color=colour, alpha=min(1.0, float(weight)), linewidth=1.5)
    axis.set(xlim=(-0.9, 1.9), ylim=(-longest(panel), 1))
    axis.set_title(panel.title, fontsize=9)
    axis.legend(loc="upper center", ncol=4, fontsize=7, frameon=False, bbox_to_anchor=(0.5, 0.02))
    axis.axis("off")


def longest(panel: Panel) -> int:
    """Return the number of words of the panel's longer side."""
    return max(len(panel.words), len(panel.keys))


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """Draw panels side by side, as a PNG."""
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    size = (4.2 * len(panels), 0.19 * max(map(longest, panels)) + 1)
    figure = Figure(figsize=size, layout="constrained")
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_panel(axis, panel)
    figure.savefig(path, dpi=90)
