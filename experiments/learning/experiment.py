"""How much is learned per update and per hour: the validation loss while rows are trained.

Seconds are updates × tokens per update (from the log) ÷ tokens per second of one training alone,
measured by ``python -m benchmarks.run train``: they leave out validation, checkpoints and whatever
else the machine was doing. ``rows.yaml`` names that record (``speeds``), the training in it
(``work``), and each row's ``system`` in it.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.curves import Curve, read_log, updates_to
from experiments.fairseq_runs import (
    FairseqExperiment,
    execute,
    rate_text,
    refuse_other_training,
    seed_trainings,
)
from experiments.harness import HERE, Row
from experiments.intervals import mean_text
from experiments.pictures import figure_of, save_figure
from experiments.records import PICTURE, Record
from experiments.tables import Table
from vaswani.common.files import read_json

TARGETS = (3.0, 2.6)
"""Values of validation nll in bits; the updates and seconds to reach each are reported."""
MOST_ROWS = 25
"""Of the table of curves, which leaves out updates in between."""
SPEED = "tokens_per_second"
HIGHEST_SHOWN = 8
"""Bits, in the picture."""


class LearningExperiment(FairseqExperiment):
    """Trainings that are not translated or scored: their curves are compared."""

    def train(self, row: Row, seed: int) -> None:
        """Train one seed of a row."""
        plan = self.plans[row.name]
        refuse_other_training(plan)
        training = seed_trainings(plan)[seed]
        if not training.done:
            execute([training.command])

    def runs(self, row: Row) -> list[Path]:
        """Return the finished runs of a row."""
        trainings = seed_trainings(self.plans[row.name]).values()
        return [training.run for training in trainings if training.done]

    def measure(self, run: Path) -> dict[str, Any]:
        """Return validation nll by update, and target tokens per update."""
        log = read_log(run)
        return {"curve": log.curve, "tokens_per_update": log.tokens}

    def describe(self, row: Row) -> dict[str, Any]:
        """Return a row's peak learning rate, and the speed of one training alone."""
        speeds = read_speeds(HERE.parent / self.table["speeds"], self.table["work"])
        return {**super().describe(row), SPEED: speeds[self.table["rows"][row.name]["system"]]}

    def tables(self, record: Record) -> list[Table]:
        """Return two tables: updates and seconds to reach some losses, and the curves."""
        return [learning_table(record), curve_table(record)]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw the curves, by updates and by seconds."""
        draw_curves(record, folder / PICTURE)


def read_speeds(record: Path, work: str) -> dict[str, float]:
    """Read the tokens per second of each system from a record of ``benchmarks.run train``."""
    rows = read_json(record)["results"]["train"]["rows"]
    return {row["system"]: row["tokens/s"]["median"] for row in rows if row["work"] == work}


def curves_of(row: dict[str, Any]) -> list[Curve]:
    """Return the curve of each run of a record's row."""
    curves = []
    for run in row["runs"]:
        curves.append({int(update): nll for update, nll in run["curve"].items()})
    return curves


def common_updates(curves: Sequence[Curve]) -> list[int]:
    """Return the updates at which all runs were validated."""
    return sorted(set.intersection(*(set(curve) for curve in curves)))


def seconds_per_update(row: dict[str, Any]) -> float:
    """Return the seconds of an update of one training alone."""
    tokens = statistics.mean(run["tokens_per_update"] for run in row["runs"])
    return tokens / row[SPEED]


# ---- tables ------------------------------------------------------------------------------------


def learning_table(record: Record) -> Table:
    """Return the table of updates and seconds to reach each of ``TARGETS``."""
    columns = ["system", "rate", "seeds", "lowest nll of each, bits"]
    for target in TARGETS:
        columns += [f"updates to {target}", f"seconds to {target}"]
    columns += ["tokens per update", "tokens per second alone"]
    lines = []
    for name, row in record["rows"].items():
        curves = curves_of(row)
        lowest = [f"{min(curve.values()):.2f}" for curve in curves]
        cells = [name, rate_text(row), str(len(curves)), ", ".join(lowest)]
        for target in TARGETS:
            cells += cells_to_reach(target, curves, seconds_per_update(row))
        tokens = statistics.mean(run["tokens_per_update"] for run in row["runs"])
        cells += [f"{tokens:,.0f}", f"{row[SPEED]:,.0f}"]
        lines.append(cells)
    return Table(columns, lines, "Validation nll, and how soon it falls to a value:")


def cells_to_reach(target: float, curves: Sequence[Curve], each: float) -> list[str]:
    """Return the cells of updates and seconds until a loss is reached.

    If not all curves reach it, they say how many do.

    Args:
        target: the loss
        curves: one for each seed
        each: seconds of an update
    """
    updates = []
    for curve in curves:
        update = updates_to(target, curve)
        if update is not None:
            updates.append(update)
    if not updates:
        return ["–", "–"]
    if len(updates) < len(curves):
        return [f"by {len(updates)} of {len(curves)}", "–"]
    seconds = [update * each for update in updates]
    return [mean_text(updates, ",.0f"), mean_text(seconds, ",.0f")]


def curve_table(record: Record) -> Table:
    """Return a table with a column for each row, and a line for each validated update."""
    curves = {name: curves_of(row) for name, row in record["rows"].items()}
    validated = {name: common_updates(each) for name, each in curves.items()}
    updates = sorted({update for each in validated.values() for update in each})
    step = -(-len(updates) // MOST_ROWS)
    lines = []
    for update in updates[step - 1 :: step]:
        cells = [f"{update:,}"]
        for name, each in curves.items():
            values = [curve[update] for curve in each] if update in validated[name] else []
            cells.append(mean_text(values))
        lines.append(cells)
    return Table(["update", *curves], lines, "Validation nll in bits per token:")


# ---- the picture -------------------------------------------------------------------------------


def draw_curves(record: Record, path: Path) -> None:
    """Draw validation nll by updates and by seconds: the mean, and a band over the seeds."""
    figure, axes = figure_of(1, 2, size=(11, 4), sharey=True)
    for number, (name, row) in enumerate(record["rows"].items()):
        curves = curves_of(row)
        updates = common_updates(curves)
        each = seconds_per_update(row)
        values = [[curve[update] for curve in curves] for update in updates]
        means = [statistics.mean(seeds) for seeds in values]
        low = [min(seeds) for seeds in values]
        high = [max(seeds) for seeds in values]
        color = f"C{number}"
        for axis, unit in zip(axes, (1.0, each), strict=True):
            at = [update * unit for update in updates]
            axis.plot(at, means, color=color, label=name)
            axis.fill_between(at, low, high, color=color, alpha=0.25, linewidth=0)
    axes[0].set_ylabel("validation nll, bits per token")
    axes[0].set_ylim(top=HIGHEST_SHOWN)
    axes[0].legend()
    axes[0].set_xlabel("updates")
    axes[1].set_xlabel("seconds")
    save_figure(figure, path)


make = LearningExperiment
