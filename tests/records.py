"""The records of experiments/, for tests that read all of them."""

from pathlib import Path

from experiments import harness


def records_of_experiments() -> list[Path]:
    """Return the folders of all records that ``python -m experiments`` makes."""
    folders: list[Path] = []
    for name in harness.names():
        paths = (harness.HERE / name / "records").glob("*/record.json")
        folders += sorted(path.parent for path in paths)
    return folders


def experiment_of(folder: Path) -> harness.Experiment:
    """Return the experiment that a record is of."""
    return harness.find(folder.parents[1].relative_to(harness.HERE).as_posix())


def id_of(folder: Path) -> str:
    """Return a record's name in the names of cases."""
    return str(folder.relative_to(harness.HERE))
