"""Average the parameters of several checkpoints of one run into one checkpoint (section 6.1).

    vaswani average RUN               tries the last checkpoint alone, the last 2, 3 … averaged, and
                                      the best one alone; the lowest validation loss decides
    vaswani average RUN --last 5      the last 5, as the paper does for its base model (big: 20)
    vaswani average CHECKPOINT …      these

An average is not always better than its parts: one that reaches back to the steep part of a
training can be far worse. So its validation loss is computed and shown beside those of its parts,
and where the best checkpoint alone is better, that is said, or no average made. "Last" is by the
update count inside the files. fairseq-generate can decode the result; it holds no optimizer state,
so training cannot continue from it.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common.artifact import making, output_file
from vaswani.common.errors import UserError, plural
from vaswani.common.files import locked
from vaswani.common.options import argument, option
from vaswani.common.progress import stage_bar
from vaswani.data.data_bin import subset_option
from vaswani.experiment.averaging import averaged_checkpoint, model_of, running_means
from vaswani.experiment.checkpoints import (
    BESIDE,
    BEST,
    OWN,
    Checkpoint,
    check_one_run,
    checkpoints_in,
    describe,
    is_name_of_training,
    named,
    run_folder,
    run_of,
)
from vaswani.experiment.find import first_data_bin, is_run, saved_config
from vaswani.experiment.validation import Validation


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to average, and where to write it."""

    inputs: list[str] = argument(
        "RUN|CHECKPOINT",
        "one run (a folder, or its name under runs/), or two or more checkpoint files",
    )
    last: int | None = option(
        metavar="N",
        help="average the run's last N checkpoints (default: the validation loss decides)",
    )
    output: str | None = option(
        metavar="FILE",
        help="the checkpoint to write (default: checkpoint_average_lastN.pt beside the inputs)",
    )


class Trial(NamedTuple):
    """Checkpoints and the validation loss of their average, or of a single one itself."""

    parts: Sequence[Checkpoint]
    loss: float


def run(options: Options) -> int:
    """Choose, average, validate, write."""
    folder = run_folder(options.inputs[0]) if len(options.inputs) == 1 else None
    if folder is None:
        if options.last is not None:
            raise UserError("--last chooses within one run: leave it out with checkpoint files")
        parts = named(options.inputs)
        name = f"checkpoint_average_of{len(parts)}.pt"
    else:
        parts = checkpoints_in(folder)
        if options.last is not None:
            if not 2 <= options.last <= len(parts):
                updates = ", ".join(str(one.updates) for one in parts)
                raise UserError(
                    f"--last {options.last}, but {folder} has {plural(len(parts), 'checkpoint')} "
                    f"(updates: {updates}): give 2 or more of them, or train longer"
                )
            parts = parts[-options.last :]
        elif not parts:
            raise UserError(f"{folder} has no checkpoint yet: train longer")
        name = f"checkpoint_average_last{len(parts)}.pt"
    check_one_run(parts)
    output = Path(options.output) if options.output else parts[-1].path.with_name(name)
    check_output(output, parts)
    busy = f"an average is being made in {output.parent}"
    with locked(output.parent / ".average.lock", busy):
        if folder is None or options.last is not None:
            make(parts, output)
        elif len(parts) == 1:
            print(f"{parts[0].path}: the only checkpoint of the run; there is nothing to average")
            print_next_command(parts[0].path)
        else:
            write_best_average(parts, Path(options.output) if options.output else None)
    return 0


def make(parts: Sequence[Checkpoint], output: Path) -> None:
    """Write the average of these checkpoints; show its validation loss beside those of others."""
    state = averaged_checkpoint(parts)
    best = best_beside(parts)
    singles = {one.updates: one for one in (*parts, *([best] if best else []))}
    try:
        validation = Validation(parts[-1].path, run_of(parts[-1].path))
        with stage_bar("validate", (len(singles) + 1) * len(validation), "batches") as bar:
            own = Trial(parts, validation(state["model"], bar.update))
            alone = [
                Trial([one], validation(model_of(one), bar.update))
                for _, one in sorted(singles.items())
            ]
    except UserError as error:
        print(f"the average's validation loss is unknown ({error})", file=sys.stderr)
        write(state, parts, output)
        return  # without a next command: 'generate' lacks its data, too
    print_trials([*alone, own])
    lowest = min(alone, key=lambda trial: trial.loss)
    if lowest.loss < own.loss:
        print(
            f"warning: {lowest.parts[0].path} alone has a lower validation loss than the "
            "average; 'vaswani average RUN' without --last chooses by the validation loss",
            file=sys.stderr,
        )
    write(state, parts, output, own, alone)
    print_next_command(output, chosen=False)


def write_best_average(parts: Sequence[Checkpoint], output: Path | None) -> None:
    """Write the average of the last checkpoints that has the lowest validation loss, if any has.

    Args:
        parts: all of the run
        output: None for the name that says how many are averaged
    """
    try:
        trials = validate_averages(parts, best_beside(parts))
    except UserError as error:
        raise UserError(
            f"the validation loss cannot be computed ({error}): give --last N to average without it"
        ) from None
    print_trials(trials)
    chosen = min(trials, key=lambda trial: (trial.loss, len(trial.parts)))
    path = chosen.parts[-1].path
    if len(chosen.parts) == 1:
        print(f"{path} has the lowest validation loss by itself, so no average is made")
    else:
        path = output or path.with_name(f"checkpoint_average_last{len(chosen.parts)}.pt")
        state = averaged_checkpoint(chosen.parts)
        alone = [trial for trial in trials if len(trial.parts) == 1]
        write(state, chosen.parts, path, chosen, alone)
    print_next_command(path)


def validate_averages(parts: Sequence[Checkpoint], best: Checkpoint | None) -> list[Trial]:
    """The last one, the last 2, 3 … averaged, and the best one alone.

    Each average is the one before and one model more; three models are in memory at a time.
    """
    newest_first = parts[::-1]
    trials: list[Trial] = []
    validation = Validation(parts[-1].path, run_of(parts[-1].path))
    other = [best] if best and best.updates != parts[-1].updates else []
    with stage_bar("validate", (len(parts) + len(other)) * len(validation), "batches") as bar:
        models = ((str(one.path), model_of(one)) for one in newest_first)
        for count, mean in enumerate(running_means(models), start=1):
            last = parts[-count:] if count > 1 or other or not best else [best]
            trials.append(Trial(last, validation(mean, bar.update)))
        trials += [Trial([one], validation(model_of(one), bar.update)) for one in other]
    return trials


def best_beside(parts: Sequence[Checkpoint]) -> Checkpoint | None:
    """The training's best checkpoint, if it is beside these and of the same run."""
    from transformer_plugin.checkpoints import CheckpointError

    path = parts[-1].path.with_name(BEST)
    try:
        best = describe(path)
        check_one_run([*parts, best])
    except (CheckpointError, UserError):
        return None
    return None if best.averaged else best


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


def print_next_command(path: Path, chosen: bool = True) -> None:
    """Print the command that decodes with a checkpoint: by its run, if that would choose it.

    ``chosen``: by the validation loss, as the run would; not asked for by its number.
    """
    folder, best = run_of(path), path.with_name(BEST)
    if chosen and is_name_of_training(path):
        chosen = not best.is_file() or describe(best).updates == describe(path).updates
    else:
        chosen = chosen and path.match("checkpoint_average*.pt")
    task = saved_config(path, folder).get("task", {})
    subset = subset_option(first_data_bin(task.get("data")))
    what = folder if chosen and is_run(folder) else path
    print(f"next: vaswani generate {shlex.quote(str(what))}{subset}", file=sys.stderr)


def check_output(output: Path, chosen: Sequence[Checkpoint]) -> Path:
    """The file to write; raises UserError if it would replace anything but an older average."""
    if is_name_of_training(output):
        raise UserError(
            f"{output} is a name that training gives its own checkpoints: choose another --output"
        )
    return output_file(output, [one.path for one in chosen], is_average, "average")


def is_average(path: Path) -> bool:
    """Whether a file is an averaged checkpoint."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        return describe(path).averaged > 0
    except (CheckpointError, UserError):
        return False


def write(
    state: dict[str, Any],
    parts: Sequence[Checkpoint],
    output: Path,
    own: Trial | None = None,
    alone: Sequence[Trial] = (),
) -> None:
    """Save an average, complete or not at all, with validation losses: its own, and of single ones.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    from transformer_plugin.compat.saving import write_checkpoint

    if own:
        state[OWN] = own.loss
        state[BESIDE] = {trial.parts[0].updates: trial.loss for trial in alone}
    path = check_output(output, parts)
    with making(path, lambda there: check_output(there, parts)) as aside:
        write_checkpoint(state, str(aside))
    updates = ", ".join(str(checkpoint.updates) for checkpoint in parts)
    print(f"{output}: the average of {len(parts)} checkpoints (updates {updates})")
