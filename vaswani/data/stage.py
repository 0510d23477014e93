"""A preparation stage, which is either done for exactly these inputs and options, or redone.

A stage's output is an artifact (``common/artifact.py``) with a record, ``.stages/NAME.json``: its
key (a hash of its options and of the stage before it), the sizes and hashes of its files, and its
report. If key and sizes are the same, the stage is skipped. What is not exactly as its record says
may be somebody's work: it is kept under another name.
"""

import json
from pathlib import Path
from typing import Any, Callable, Dict

from vaswani.common.artifact import Artifact, hashes_of, keep, sizes_in, writing
from vaswani.common.files import atomic_write, read_json, sha256_of

#: the folder of records, beside the outputs; and in it, that of what is being made
STAGES, PART = ".stages", "part"
#: of the records: the keys of another one say nothing
VERSION = 2


def record_file(output: Path) -> Path:
    """The file with the record of an output, in ``.stages`` beside it."""
    return output.parent / STAGES / f"{output.name}.json"


def work_folder(output: Path) -> Path:
    """Where an output is made."""
    return output.parent / STAGES / PART / output.name


def record_of(output: Path) -> Dict[str, Any]:
    """What is recorded about an output; empty if nothing is, or it is not our record."""
    record = read_json(record_file(output))
    return record if isinstance(record.get("left", {}), dict) else {}


def write_record(output: Path, record: Dict[str, Any]) -> None:
    """Replace what is recorded about an output."""
    with atomic_write(record_file(output)) as stream:
        json.dump(record, stream, indent=1)


def is_done(output: Path, key: str) -> bool:
    """Whether everything recorded under this key exists with its size; there may be more."""
    record = record_of(output)
    sizes = record.get("left")
    if record.get("key") != key or not sizes:
        return False
    try:
        return all((output / name).stat().st_size == size for name, size in sizes.items())
    except OSError:
        return False


def is_as_recorded(output: Path) -> bool:
    """Whether an output is exactly as recorded: names, sizes and hashes."""
    record = record_of(output)
    sizes = record.get("left")
    if not sizes or sizes_in(output) != sizes:
        return False
    return bool(hashes_of(output, sizes) == record.get("sha256"))


def is_of_another_version(output: Path) -> bool:
    """Whether another version of this command made an output: its keys say nothing here."""
    record = record_of(output)
    return bool(record) and record.get("version") != VERSION


def is_file_as_recorded(path: Path) -> bool:
    """Whether a file in an output's folder has its recorded hash; true if none is recorded."""
    hashes = record_of(path.parent).get("sha256")
    return not hashes or path.name not in hashes or hashes[path.name] == sha256_of(path)


def artifact_of(output: Path) -> Artifact:
    """An output and its record, to be made as a whole."""

    def clear_the_way(path: Path) -> None:
        if path == output and not is_as_recorded(output):
            keep(output)

    return Artifact([output, record_file(output)], clear_the_way, work_folder(output))


def redo(output: Path) -> None:
    """Have a stage redone, whatever its key; its output is still recorded."""
    artifact_of(output).recover()
    record = record_of(output)
    if record.get("key"):
        write_record(output, {**record, "key": None})


def run_stage(output: Path, key: str, make: Callable[[Path], Any]) -> bool:
    """Make ``output`` with ``make(temporary path)``, unless it is done; return whether it ran.

    What ``make`` returns (JSON-able, or None) is recorded as ``report``. If ``make`` fails or is
    interrupted, the existing output is left as it was.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    artifact = artifact_of(output)
    with writing(output, "--out"):
        artifact.recover()
        if is_done(output, key):
            return False
        with artifact.making() as part:
            made = part / output.name
            report = make(made)
            sizes = sizes_in(made)
            record = {"version": VERSION, "key": key, "left": sizes}
            record.update(sha256=hashes_of(made, sizes), report=report)
            with atomic_write(part / record_file(output).name) as stream:
                json.dump(record, stream, indent=1)
    return True
