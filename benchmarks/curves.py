"""Learning curves: read from training logs, compared, drawn."""

import gzip
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import Row, median_and_range
from vaswani.common.errors import UserError
from vaswani.experiment.training_progress import numbers

TARGETS = (3.0, 2.6)
"""Values of validation nll in bits; the updates and seconds to reach each are reported."""

Spread = float | dict[str, float]
Curve = dict[int, float]
"""Update → validation nll in bits."""


class Log(NamedTuple):
    """What one training run logged: its curve, and target tokens per update."""

    curve: Curve
    tokens: float


class Group(NamedTuple):
    """Training runs that differ only in the seed, and tokens per second of one run by itself."""

    label: str
    logs: list[Log]
    speed: float | None

    def seconds_per_update(self) -> float | None:
        """From the record's speed; None without a record."""
        tokens = statistics.mean(log.tokens for log in self.logs)
        return tokens / self.speed if self.speed else None


def logged(line: str) -> dict[str, Any]:
    """The numbers in a line of a log, after whatever comes before them; empty if it has none."""
    try:
        stats = json.loads(line[line.index("{") :])
    except ValueError:
        return {}
    return numbers(stats) if isinstance(stats, dict) else {}


def read_log(path: Path) -> Log:
    """Read a log; if an update was validated twice, after a resume, the last value counts.

    Raises:
        UserError: it cannot be read, or has no validation.
    """
    path = path / "train.jsonl" if path.is_dir() else path
    curve: Curve = {}
    tokens: list[float] = []
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                stats = logged(line)
                if {"valid_nll_loss", "valid_num_updates"} <= set(stats):
                    curve[stats["valid_num_updates"]] = stats["valid_nll_loss"]
                if "train_wpb" in stats:
                    tokens.append(stats["train_wpb"])
    except OSError as error:  # gzip's own are OSErrors, too
        raise UserError(f"{path}: {error.strerror or error}") from None
    if not curve or not tokens:
        raise UserError(
            f"{path} has no validation and epoch in fairseq's form: was it --log-format json?"
        )
    return Log(dict(sorted(curve.items())), statistics.mean(tokens))


def updates_to(target: float, curve: Curve) -> float | None:
    """The update at which a curve first falls to ``target``, interpolated between validations.

    None if it never does; the first validation's update if that is below already.
    """
    before: tuple[int, float] | None = None
    for update, nll in curve.items():
        if nll <= target:
            if before is None:
                return float(update)
            share = (before[1] - target) / (before[1] - nll)
            return before[0] + share * (update - before[0])
        before = (update, nll)
    return None


def over_seeds(values: Sequence[float]) -> Spread:
    """Median, minimum and maximum; with one seed, its figure."""
    return median_and_range(values) if len(values) > 1 else values[0]


def multiplied(value: Spread, factor: float) -> Spread:
    """A figure or a spread times a factor."""
    if isinstance(value, dict):
        return {name: figure * factor for name, figure in value.items()}
    return value * factor


def row_of(group: Group) -> Row:
    """Updates to reach each of ``TARGETS``, and seconds if the speed is known."""
    each = group.seconds_per_update()
    lowest = [min(log.curve.values()) for log in group.logs]
    row: Row = {"system": group.label, "seeds": len(group.logs), "lowest nll": over_seeds(lowest)}
    for target in TARGETS:
        found = [updates_to(target, log.curve) for log in group.logs]
        reached = [updates for updates in found if updates is not None]
        seconds = None
        updates: Any = f"by {len(reached)} of {len(found)}" if reached else None
        if len(reached) == len(found):
            updates = over_seeds(reached)
            seconds = multiplied(updates, each) if each else None
        row[f"updates to {target}"], row[f"seconds to {target}"] = updates, seconds
    row["tokens/update"] = statistics.mean(log.tokens for log in group.logs)
    row["tokens/s alone"] = group.speed
    return row


def curve_of(group: Group) -> dict[int, Spread]:
    """Update → nll over the seeds, for updates at which all of them were validated."""
    common = set.intersection(*(set(log.curve) for log in group.logs))
    return {u: over_seeds([log.curve[u] for log in group.logs]) for u in sorted(common)}


def curve_rows(groups: Sequence[Group], most: int = 25) -> list[Row]:
    """A column for each group, a row for each update; evenly thinned to at most ``most`` rows."""
    curves = {group.label: curve_of(group) for group in groups}
    updates = sorted({update for curve in curves.values() for update in curve})
    step = -(-len(updates) // most)
    chosen = updates[step - 1 :: step]
    return [
        {"update": f"{u:,}", **{label: in_two_decimals(c.get(u)) for label, c in curves.items()}}
        for u in chosen
    ]


def in_two_decimals(value: Spread | None) -> str:
    """Bits with two decimals, which the table's three significant figures do not always give."""
    if isinstance(value, dict):
        return f"{value['median']:.2f} ({value['min']:.2f}–{value['max']:.2f})"
    return "–" if value is None else f"{value:.2f}"


def picture(groups: Sequence[Group], path: str) -> None:
    """Draw nll against updates, and against seconds where the speed is known; seeds as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds = [group for group in groups if group.speed]
    panels = [("updates", groups), *([("seconds", seconds)] if seconds else [])]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False)
    for axis, (unit, shown) in zip(axes[0], panels, strict=True):
        for number, group in enumerate(groups):
            if group not in shown:
                continue
            factor = (group.seconds_per_update() or 1) if unit == "seconds" else 1
            curve = curve_of(group)
            bounds = [v if isinstance(v, dict) else median_and_range([v]) for v in curve.values()]
            low, mid, high = ([b[name] for b in bounds] for name in ("min", "median", "max"))
            at = [update * factor for update in curve]
            axis.plot(at, mid, color=f"C{number}", label=group.label)
            axis.fill_between(at, low, high, color=f"C{number}", alpha=0.25, linewidth=0)
        axis.set_xlabel(unit)
        axis.set_ylabel("validation nll, bits per token")
        axis.set_ylim(top=min(8, axis.get_ylim()[1]))
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
