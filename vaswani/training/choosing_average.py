"""How many checkpoints to average, by validation loss; writes the average."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.compat.saving import write_checkpoint
from vaswani.common.errors import UserError
from vaswani.common.files import output_file
from vaswani.common.find import first_data_bin
from vaswani.common.outputs import FileOutputs
from vaswani.common.progress import stage_bar
from vaswani.configuration.plugin import saved_config
from vaswani.folders.data_bin import DataBin
from vaswani.folders.run import BEST, Run, average_name
from vaswani.training import checkpoints
from vaswani.training.averaging import averaged_checkpoint, model_of, running_means
from vaswani.training.checkpoints import Checkpoint
from vaswani.training.validation import Validation, text_validated_on


class Trial(NamedTuple):
    """Checkpoints and the validation loss of their average, or of a single one itself."""

    parts: Sequence[Checkpoint]
    loss: float


def write_average(
    parts: Sequence[Checkpoint], output: Path | None, path: Path, chooses: bool
) -> None:
    """Write the average of these checkpoints, or of the last N with the lowest loss.

    Args:
        parts: fewest updates first
        output: the file that was asked for
        path: of the average of all
        chooses: whether the validation loss decides how many; it may find that one alone is best
    """
    run = Run.of_checkpoint(parts[-1].path)
    try:
        trials = validate_averages(parts)
    except UserError as error:
        if chooses:
            raise UserError(
                f"the validation loss cannot be computed ({error}): give --last N to average "
                "without it"
            ) from None
        print(f"the average's validation loss is unknown ({error})", file=sys.stderr)
        write(averaged_checkpoint(parts), parts, path)
        return  # without a next command: 'generate' lacks its data, too
    print_trials(trials)
    best = min(trials, key=lambda trial: (trial.loss, len(trial.parts)))
    chosen = best if chooses else trials[len(parts) - 1]
    if chooses and len(chosen.parts) == 1:
        path = chosen.parts[-1].path
        print(f"{path} has the lowest validation loss by itself, so no average is made")
    else:
        if best.loss < chosen.loss:
            print(
                "warning: a candidate above has a lower validation loss than the average of "
                f"{len(parts)}: run 'vaswani average RUN' without --last to take the lowest",
                file=sys.stderr,
            )
        if chooses and not output:
            path = path.with_name(average_name(len(chosen.parts)))
        alone = [trial for trial in trials if len(trial.parts) == 1]
        write(averaged_checkpoint(chosen.parts), chosen.parts, path, [chosen, *alone])
    # the run's would be the same, unless the average is elsewhere
    print_next_command(path, run if chooses and run.exists and not output else path)


def validate_averages(parts: Sequence[Checkpoint]) -> list[Trial]:
    """Validate the last checkpoint, averages of the last 2, 3 …, and the best one alone.

    Each average is the one before and one model more; three models are in memory at a time.
    """
    trials: list[Trial] = []
    validation = Validation(parts[-1].path, Run.of_checkpoint(parts[-1].path))
    other = [best for best in best_beside(parts) if best.updates != parts[-1].updates]
    with stage_bar("validate", (len(parts) + len(other)) * len(validation), "batches") as bar:
        models = ((str(checkpoint.path), model_of(checkpoint)) for checkpoint in parts[::-1])
        for count, mean in enumerate(running_means(models), start=1):
            trials.append(Trial(parts[-count:], validation(mean, bar.update)))
        for checkpoint in other:
            trials.append(Trial([checkpoint], validation(model_of(checkpoint), bar.update)))
    return trials


def best_beside(parts: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the training's best checkpoint, if it is beside these and from the same run."""
    try:
        best = checkpoints.describe(parts[-1].path.with_name(BEST))
        checkpoints.check_one_run([*parts, best])
    except (CheckpointError, UserError):
        return []
    return [] if best.averaged else [best]


# ---- what is said and written -----------------------------------------------------------------


def print_trials(trials: Sequence[Trial]) -> None:
    """Print the validation losses as a table, the lowest marked."""
    lowest = min(trial.loss for trial in trials)
    print("validation loss", file=sys.stderr)
    for parts, loss in trials:
        what = f"update {parts[0].updates:,}"
        if len(parts) > 1:
            what = f"the average of {len(parts)}, from {what} on"
        mark = "  (lowest)" if loss == lowest else ""
        print(f"  {loss:8.4f}  {what}{mark}", file=sys.stderr)


def print_next_command(path: Path, what: Path | Run) -> None:
    """Print the command that decodes with ``what``: a checkpoint, or its run."""
    data = saved_config(path, Run.of_checkpoint(path))["task"].get("data")
    subset = DataBin(first_data_bin(data)).subset_option()
    print(f"next: vaswani generate {shlex.quote(str(what))}{subset}", file=sys.stderr)


def check_output(output: Path, chosen: Sequence[Checkpoint]) -> Path:
    """Return the file to write; raise UserError if it would replace a file that is no average."""
    if checkpoints.is_name_of_training(output):
        raise UserError(
            f"{output} is a name that training gives its own checkpoints: choose another --output"
        )
    return output_file(output, [checkpoint.path for checkpoint in chosen], is_average, "average")


def is_average(path: Path) -> bool:
    """Return whether a file is an averaged checkpoint."""
    try:
        return checkpoints.describe(path).averaged > 0
    except (CheckpointError, UserError):
        return False


def write(
    state: dict[str, object],
    parts: Sequence[Checkpoint],
    output: Path,
    trials: Sequence[Trial] = (),
) -> None:
    """Save an average, complete or not at all, with validation losses.

    Args:
        state: the checkpoint
        parts: what it is the average of
        output: its path
        trials: its own loss first, then those of single checkpoints; empty if unknown

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    if trials:
        own, *alone = trials
        state[checkpoints.OWN] = own.loss
        state[checkpoints.BESIDE] = {trial.parts[0].updates: trial.loss for trial in alone}
        last = parts[-1].path
        state[checkpoints.VALIDATION_TEXT] = text_validated_on(last, Run.of_checkpoint(last))
    place = check_output(output, parts)
    with FileOutputs(place, lambda there: check_output(there, parts)).write() as draft:
        write_checkpoint(state, str(draft.path))
    updates = ", ".join(str(checkpoint.updates) for checkpoint in parts)
    print(f"{output}: the average of {len(parts)} checkpoints (updates {updates})")
