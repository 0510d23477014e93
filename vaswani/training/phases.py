"""The phases of a run: ``checkpoint.reset_optimizer`` begins one, which counts updates from 0.

Beside the checkpoints of an earlier phase, which have more updates, fairseq would delete the new
ones, and averages and resumed trainings would take the earlier ones. Before the first checkpoint of
a new phase is written, the files of the earlier phase move to ``checkpoints/phase-N``. Until that
checkpoint is there, the earlier phase is still the run's: the next start moves its files back, also
if the move itself was interrupted.
"""

import contextlib
import re
import sys
from pathlib import Path

from transformer_plugin.checkpoints import trained_checkpoints
from vaswani.common.files import move
from vaswani.training.run_record import FINISHED, has_checkpoints

#: the folder in ``checkpoints`` while files move into it
MOVING = ".phase.part"


def begin_phase(folder: Path) -> Path:
    """Move a run's checkpoints, averages and finished.json to ``checkpoints/phase-N``.

    Returns:
        The folder that they are in now.
    """
    checkpoints = folder / "checkpoints"
    numbers = [int(phase.name.removeprefix("phase-")) for phase in phase_folders(checkpoints)]
    phase = checkpoints / f"phase-{max(numbers, default=0) + 1}"
    moving = checkpoints / MOVING
    moving.mkdir()
    averages = sorted(checkpoints.glob("checkpoint_average*.pt"))
    finished = [folder / FINISHED] if (folder / FINISHED).is_file() else []
    for path in [*trained_checkpoints(checkpoints), *averages, *finished]:
        move(path, moving / path.name)
    move(moving, phase)
    return phase


def return_to_earlier_phase(folder: Path) -> None:
    """Move the files of the earlier phase back if no checkpoint of the new phase was written.

    Nothing is replaced: a file whose name is taken stays where it is.
    """
    checkpoints = folder / "checkpoints"
    moving = checkpoints / MOVING
    phases = [phase for phase in phase_folders(checkpoints) if trained_checkpoints(phase)]
    if moving.is_dir():
        source = moving
    elif phases and not has_checkpoints(folder):
        source = phases[-1]
        print(
            f"{checkpoints} has no checkpoint since {source.name} ended: moving the checkpoints of "
            f"{source.name} back",
            file=sys.stderr,
        )
    else:
        return
    for path in sorted([*source.glob("checkpoint*.pt"), *source.glob(FINISHED)]):
        target = (folder if path.name == FINISHED else checkpoints) / path.name
        if not target.exists():
            move(path, target)
    with contextlib.suppress(OSError):  # somebody's files are in it
        source.rmdir()


def phase_folders(checkpoints: Path) -> list[Path]:
    """Return the folders of earlier phases, the first phase first."""
    phases = [path for path in checkpoints.glob("phase-*") if re.fullmatch(r"phase-\d+", path.name)]
    return sorted(phases, key=lambda path: int(path.name.removeprefix("phase-")))
