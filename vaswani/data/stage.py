"""A preparation stage, which is either done for exactly these inputs and options, or redone."""

from pathlib import Path
from typing import Any, Callable

from vaswani.common.artifact import RecordedOutputs, is_as_recorded, writing

#: the folder of records, beside the outputs
STAGES = ".stages"


def outputs_of(path: Path) -> RecordedOutputs:
    """A file or folder of prepared text, recorded in ``.stages/NAME.json`` beside it."""
    stages = path.parent / STAGES
    return RecordedOutputs(
        path.parent, [path.name], stages / f"{path.name}.json", stages / "part" / path.name
    )


def is_file_as_recorded(path: Path) -> bool:
    """Whether a file in an output's folder is as it was made; true if nothing is recorded."""
    known = outputs_of(path.parent).files().get(path)
    return known is None or is_as_recorded(path, *known)


def run_stage(output: Path, key: str, make: Callable[[Path], Any]) -> bool:
    """Make ``output`` with ``make(temporary path)``, unless it is done; return whether it ran.

    What ``make`` returns (JSON-able, or None) is recorded as ``report``.

    Raises:
        UserError: the disk is full.
    """
    outputs = outputs_of(output)
    with writing(output, "--out"):
        outputs.recover()
        if outputs.are_made(key):
            return False
        with outputs.making(key) as (part, record):
            record["report"] = make(part / output.name)
    return True
