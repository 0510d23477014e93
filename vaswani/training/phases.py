"""The phases of a run: ``checkpoint.reset_optimizer`` begins one, which counts updates from 0.

Beside the checkpoints of an earlier phase, which have more updates, fairseq would delete the new
ones, and averages and resumed trainings would take the earlier ones. Before the first checkpoint of
a new phase is written, the files of the earlier phase move to ``checkpoints/phase-N``. Until that
checkpoint is there, the earlier phase is still the run's: the next start moves its files back, also
if the move itself was interrupted.
"""

import contextlib
import sys
from pathlib import Path

from transformer_plugin.checkpoints import trained_checkpoints
from vaswani.common.files import move
from vaswani.folders.run import Run, phase_number
from vaswani.training.run_record import has_checkpoints

#: the folder in ``checkpoints`` while files move into it
MOVING = ".phase.part"


def begin_phase(run: Run) -> Path:
    """Move a run's checkpoints, averages and record of its ending to ``checkpoints/phase-N``.

    Returns:
        The folder that they are in now.
    """
    checkpoints = run.checkpoints
    numbers = [phase_number(phase) for phase in run.phases()]
    phase = checkpoints / f"phase-{max(numbers, default=0) + 1}"
    moving = checkpoints / MOVING
    moving.mkdir()
    ending = [run.ending_file()] if run.ending_file().is_file() else []
    for path in [*trained_checkpoints(checkpoints), *run.averages(), *ending]:
        move(path, moving / path.name)
    move(moving, phase)
    return phase


def return_to_earlier_phase(run: Run) -> None:
    """Move the files of the earlier phase back if no checkpoint of the new phase was written.

    Nothing is replaced: a file whose name is taken stays where it is.
    """
    checkpoints = run.checkpoints
    moving = checkpoints / MOVING
    phases = [phase for phase in run.phases() if trained_checkpoints(phase)]
    if moving.is_dir():
        source = moving
    elif phases and not has_checkpoints(run):
        source = phases[-1]
        print(
            f"the training after {source.name} saved no checkpoint: the checkpoints of "
            f"{source.name} are moved back into {checkpoints}",
            file=sys.stderr,
        )
    else:
        return
    ending = run.ending_file(phase=source)
    for path in sorted([*source.glob("checkpoint*.pt"), *source.glob(ending.name)]):
        target = run.ending_file() if path == ending else checkpoints / path.name
        if not target.exists():
            move(path, target)
    with contextlib.suppress(OSError):  # somebody's files are in it
        source.rmdir()
