"""Averages the parameters of several checkpoints of one run (section 6.1 of the paper).

    vaswani average RUN               compares the last checkpoint, the averages of the last 2, 3 …
                                      and the best checkpoint: the lowest validation loss decides
    vaswani average RUN --last 5      the last 5, as the paper does for its base model (big: 20)
    vaswani average CHECKPOINT …      the checkpoints that you name

An average can be far worse than its best checkpoint if it includes early ones, whose loss was still
falling fast. Therefore validation losses are computed and shown. If a single checkpoint has a lower
loss, no average is made; with --last, the average is made and a warning is shown. The last
checkpoints are those with the most updates, as recorded in the files. fairseq-generate can decode
the average; it holds no optimizer state, so training cannot continue from it.
"""

from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError, plural
from vaswani.common.files import locked, writing
from vaswani.common.options import argument, option


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to average, and where to write it."""

    inputs: list[str] = argument(
        "RUN|CHECKPOINT",
        "one run (a folder, or its name under runs/), or two or more checkpoint files",
    )
    last: int | None = option(
        metavar="N",
        help="average the last N checkpoints of the run (default: the validation loss selects N)",
    )
    output: str | None = option(
        metavar="FILE",
        help="the checkpoint to write (default: checkpoint_average_lastN.pt beside the inputs)",
    )


def run(options: Options) -> int:
    """Choose checkpoints, average them, validate the average, and write it."""
    from vaswani.folders.run import average_name
    from vaswani.training import checkpoints
    from vaswani.training.choosing_average import check_output, write_average

    alone = len(options.inputs) == 1
    folder = checkpoints.checkpoint_folder(options.inputs[0]) if alone else None
    if folder is None:
        if options.last is not None:
            raise UserError(
                "--last selects checkpoints of a run: leave it out if you name checkpoint files"
            )
        parts = checkpoints.find_each(options.inputs)
        name = f"checkpoint_average_of{len(parts)}.pt"
    else:
        parts = checkpoints.checkpoints_in(folder)
        if not parts:
            raise UserError(
                f"{folder} has no checkpoint to average, at most a checkpoint_last.pt from a stop: "
                "continue the training until it saves one (checkpoint.save_interval, in epochs), "
                "or go on without an average: 'vaswani generate' and 'vaswani pack' take "
                "checkpoint_last.pt"
            )
        least, last = (1, len(parts)) if options.last is None else (2, options.last)
        if not least <= last <= len(parts):
            updates = ", ".join(str(part.updates) for part in parts)
            smaller = f", or give --last 2 to --last {len(parts)}" if len(parts) > 1 else ""
            raise UserError(
                f"--last {last}: an average needs 2 or more checkpoints, and {folder} has "
                f"{plural(len(parts), 'checkpoint')} (updates: {updates}): train longer{smaller}"
            )
        parts = parts[-last:]
        name = average_name(len(parts))
    checkpoints.check_one_run(parts)
    output = Path(options.output) if options.output else None
    path = output or parts[-1].path.with_name(name)
    check_output(path, parts)
    busy = f"an average is being made in {path.parent}"
    with writing(path), locked(path.parent / ".average.lock", busy):
        write_average(parts, output, path, folder is not None and options.last is None)
    return 0
