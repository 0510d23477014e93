"""The style of the experiments' pictures."""

import logging
from pathlib import Path
from typing import Any

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # some user-dir lets all loggers speak


def figure_of(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Any, Any]:
    """Return a figure, drawn without a screen, and its axes.

    Args:
        size: width and height, in inches
        options: as for matplotlib's ``subplots``
    """
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as a PNG."""
    figure.savefig(path, dpi=110)
