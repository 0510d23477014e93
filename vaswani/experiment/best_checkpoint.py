"""The checkpoint to decode with: the one named, or a run's with the lowest validation loss."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.experiment.checkpoints import (
    BEST,
    Checkpoint,
    by_a_stop,
    checkpoints_in,
    describe,
    run_of,
)
from vaswani.experiment.find import find_run
from vaswani.experiment.run_record import last_checkpoint

#: what to decode in a run without an average: the first of these that exists
PREFERRED = (BEST, "checkpoint_last.pt")


def find_checkpoint(name: str) -> tuple[Path, Path]:
    """The checkpoint to decode with, and the folder of its run (or the one it is in, if no run's).

    Raises:
        UserError: no such run or checkpoint.
        CheckpointError: the file is not a checkpoint.
    """
    path = Path(name)
    if path.suffix == ".pt":
        if not path.is_file():
            raise UserError(f"there is no checkpoint {path}")
        return path, run_of(path)
    folder = find_run(name)
    return best_of_run(folder), folder


def best_of_run(folder: Path) -> Path:
    """A run's average or checkpoint with the lowest validation loss; prints which it is, and why.

    The losses are those that ``vaswani average`` wrote into the averages; where one is missing
    there, it is computed. If that is impossible, the newest average is taken.

    Raises:
        UserError: the run has no checkpoint.
    """
    from transformer_plugin.checkpoints import CheckpointError

    checkpoints = folder / "checkpoints"
    averages = [describe(path) for path in sorted(checkpoints.glob("checkpoint_average*.pt"))]
    single = single_of_run(checkpoints)
    if not averages:
        if single is None:
            raise UserError(f"{folder} has no checkpoint yet: train it with 'vaswani train'")
        what = "best" if single.name == BEST else "last"
        print(f"taking {single}: the run's {what} checkpoint (it has no average)", file=sys.stderr)
        return single
    newest = max(averages, key=lambda one: (one.updates, one.averaged))
    try:
        candidates = [*averages, describe(single)] if single else averages
        losses = losses_of(candidates, folder)
    except (CheckpointError, UserError) as error:
        why = f"the newest average; the validation losses are unknown ({error})"
        print(f"taking {newest.path}: {why}", file=sys.stderr)
        warn_if_stale(newest, folder)
        return newest.path
    first, *others = sorted(zip(losses, (one.path for one in candidates), strict=True))
    beside = f"; next {others[0][1].name} with {others[0][0]:.4f}" if others else ""
    print(f"taking {first[1]}: the lowest validation loss, {first[0]:.4f}{beside}", file=sys.stderr)
    for average in averages:
        if average.path == first[1]:
            warn_if_stale(average, folder)
    return first[1]


def single_of_run(checkpoints: Path) -> Path | None:
    """What to decode where there is no average: the best, else the last; None if there is none.

    One that was saved only because the training was stopped is the last choice.
    """
    from transformer_plugin.checkpoints import checkpoint_metadata

    single = next((path for n in PREFERRED if (path := checkpoints / n).is_file()), None)
    if single is None or single.name == BEST or not by_a_stop(checkpoint_metadata(single)):
        return single
    others = checkpoints_in(checkpoints)
    return others[-1].path if others else single


def losses_of(candidates: Sequence[Checkpoint], folder: Path) -> list[float]:
    """The validation losses of a run's averages and checkpoints: as stored, else computed.

    Raises:
        UserError, CheckpointError: one is not stored, and cannot be computed.
    """
    from transformer_plugin.checkpoints import load_checkpoint
    from vaswani.experiment.validation import Validation

    beside = {updates: loss for one in candidates for updates, loss in one.beside.items()}
    losses: list[float] = []
    validation = None
    for one in candidates:
        loss = one.loss if one.averaged else beside.get(one.updates)
        if loss is None:
            if validation is None:
                validation = Validation(one.path, folder)
            loss = validation(load_checkpoint(one.path, mapped=True)["model"])
        losses.append(loss)
    return losses


def warn_if_stale(average: Checkpoint, folder: Path) -> None:
    """Warn if training continued after the average to be decoded was made."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        goes_on = describe(last_checkpoint(folder)).updates > average.updates
    except (CheckpointError, UserError):  # missing or unusable: the average still works
        return
    if goes_on:
        print(
            f"warning: training continued after {average.path} was made (update "
            f"{average.updates:,}); for a new one: "
            f"vaswani average {shlex.quote(str(folder))}",
            file=sys.stderr,
        )
