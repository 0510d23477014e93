"""The style of the experiments' pictures, and the picture of systems' costs."""

import logging
from pathlib import Path
from typing import Any

from experiments.curves import recorded_log
from experiments.records import PICTURE, Record

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


def draw_costs(record: Record, folder: Path) -> None:
    """Draw BLEU and validation nll against minutes of the processor and against operations."""
    figure, axes = figure_of(2, 2, size=(10, 7), sharex="col", sharey="row")
    costs = {"processor_seconds": 60, "operations": 1}
    for number, (name, row) in enumerate(record["rows"].items()):
        style: dict[str, Any] = {"color": f"C{number}", "alpha": 0.7}
        for seed, run in enumerate(row["runs"]):
            curve = recorded_log(folder, run).curve
            for (bleu, loss), (key, unit) in zip(axes.T, costs.items(), strict=True):
                each = run[key] / unit / run["updates"]
                loss.plot([each * update for update in curve], list(curve.values()), **style)
                label = "" if seed else name
                bleu.plot(each * run["updates"], run["bleu"], "o", label=label, **style)
    axes[0, 0].set_ylabel("BLEU")
    axes[0, 0].margins(y=0.15)
    axes[0, 0].legend(fontsize=8)
    loss_axis = axes[1, 0]
    loss_axis.set_ylabel("validation nll, bits")
    loss_axis.set_yscale("log")
    loss_axis.yaxis.set_major_locator(figure_ticks((1, 2, 5)))
    loss_axis.yaxis.set_major_formatter("{x:g}")
    loss_axis.yaxis.set_minor_formatter("")
    loss_axis.set_xlabel("minutes of one processor, forward and backward passes")
    axes[1, 1].set_xlabel("operations counted")
    save_figure(figure, folder / PICTURE)


def figure_ticks(subs: tuple[int, ...]) -> Any:
    """Return ticks of a logarithmic axis at these multiples of the powers of ten."""
    from matplotlib import ticker

    return ticker.LogLocator(subs=subs)
