"""Learning curves, read from the logs of trainings."""

import gzip
import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common.errors import UserError
from vaswani.experiment.training_progress import numbers

Curve = dict[int, float]
"""Update → validation nll in bits."""


class Log(NamedTuple):
    """What one training run logged: its curve, and target tokens per update."""

    curve: Curve
    tokens: float


def logged(line: str) -> dict[str, Any]:
    """The numbers in a line of a log, after whatever comes before them; empty if it has none."""
    try:
        stats = json.loads(line[line.index("{") :])
    except ValueError:
        return {}
    return numbers(stats) if isinstance(stats, dict) else {}


def read_log(path: Path) -> Log:
    """Read a log; if an update was validated twice, after a resume, the last value counts.

    Args:
        path: one of fairseq's (``--log-format json``) or a train.jsonl, gzipped or not, or a run

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
