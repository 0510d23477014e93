"""Learning curves, read from the logs of trainings."""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.record_files import record_lines
from vaswani.common.errors import UserError
from vaswani.folders.run import Run
from vaswani.training.training_progress import numbers

Curve = dict[int, float]
"""Update → validation nll in bits."""


class Log(NamedTuple):
    """What one training run logged: its curve, and target tokens per update."""

    curve: Curve
    tokens: float


def numbers_in_line(line: str) -> dict[str, Any]:
    """Return the numbers in a line of a log, wherever they begin; empty if it has none."""
    try:
        stats = json.loads(line[line.index("{") :])
    except ValueError:
        return {}
    return numbers(stats) if isinstance(stats, dict) else {}


def read_log(path: Path) -> Log:
    """Read a log; if an update was validated twice, after a resume, the last value counts.

    Args:
        path: one of fairseq's (``--log-format json``) or a train.jsonl, or a run

    Raises:
        UserError: it cannot be read, or has no validation.
    """
    path = Run(path).statistics_file if path.is_dir() else path
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return log_of(stream, path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def recorded_log(folder: Path, run: dict[str, Any]) -> Log:
    """Read the log of a run in a record; the run's ``log`` may name another run or record.

    Raises:
        UserError: the record does not have it, or it has no validation.
    """
    path = recorded_log_path(folder, run)
    return log_of(record_lines(path.parent, path.name), path)


def recorded_log_path(folder: Path, run: dict[str, Any]) -> Path:
    """Return the folder of the record that has a run's log, and the log's name in its archive."""
    return folder / run.get("log", f"{Path(run['run']).name}.jsonl")


def log_of(lines: Iterable[str], path: Path) -> Log:
    """Read the lines of a log; if an update was validated twice, the last value counts.

    Raises:
        UserError: it has no validation; names ``path``.
    """
    curve: Curve = {}
    tokens: list[float] = []
    for line in lines:
        stats = numbers_in_line(line)
        if {"valid_nll_loss", "valid_num_updates"} <= set(stats):
            curve[stats["valid_num_updates"]] = stats["valid_nll_loss"]
        if "train_wpb" in stats:
            tokens.append(stats["train_wpb"])
    if not curve or not tokens:
        raise UserError(
            f"{path} has no validation and epoch in fairseq's form: was it --log-format json?"
        )
    return Log(dict(sorted(curve.items())), statistics.mean(tokens))


def updates_to(target: float, curve: Curve) -> float | None:
    """Return the update at which a curve first falls to ``target``, interpolated between
    validations.

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
