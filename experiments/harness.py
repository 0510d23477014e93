"""What an experiment is, and the one way to train, measure and record it.

    python -m experiments                     what there is
    python -m experiments recall              trains what is not done, and prints the tables
    python -m experiments recall --row ours --seed 2
    python -m experiments recall --record     trains nothing; records what is trained
    python -m experiments recall --record --with FOLDER    with the other runs of a record
    python -m experiments recall --page FOLDER             makes a record's page again

An experiment is a folder: ``rows.yaml`` has the question, what was expected and when that was
written, and the rows; ``experiment.py`` has ``make(folder)``, what only this one does. Without it,
systems are compared (system_tables.py). Trainings are in runs/; one that is done is not run again.
See experiments/README.md.
"""

import argparse
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import records
from experiments.records import Record
from experiments.tables import Table, join_tables
from vaswani.common.errors import UserError, nearest
from vaswani.common.find import file_stem
from vaswani.common.signals import signals_as_interrupts
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.run import Run

HERE = Path(__file__).parent


class Row(NamedTuple):
    """A system or a variation, and how often it is trained."""

    name: str
    seeds: int


class CommandError(Exception):
    """A command that an experiment needs has failed; it has said why.

    Attributes:
        code: its exit code
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Experiment(ABC):
    """A question, and what answers it.

    Args:
        folder: with ``rows.yaml``
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.relative_to(HERE).as_posix() if HERE in folder.parents else folder.name
        self.table = read_yaml(folder / "rows.yaml")
        self.title: str = self.table["title"]
        self.question: str = self.table["question"]
        self.expected: str = self.table["expected"]

    @property
    @abstractmethod
    def rows(self) -> list[Row]:
        """The rows to compare, the reference first."""

    @abstractmethod
    def train(self, row: Row, seed: int) -> None:
        """Train one seed of a row unless that is done, up to its figures.

        Raises:
            CommandError: one of its commands failed.
            UserError: it cannot be trained, or was trained otherwise.
        """

    @abstractmethod
    def runs(self, row: Row) -> list[Path]:
        """Return the folders of a row's finished trainings, in the order of seeds."""

    @abstractmethod
    def measure(self, run: Path) -> dict[str, Any]:
        """Return the figures of a run."""

    @abstractmethod
    def tables(self, record: Record) -> list[Table]:
        """Return the tables of a record."""

    def page_table(self, record: Record) -> Table:
        """Return the table of a record in docs/results.md, in at most six rows."""
        return self.tables(record)[0]

    def describe(self, row: Row) -> dict[str, Any]:
        """Return a row's entries in a record, beside its runs."""
        return {}

    def complete(self, record: Record, earlier: Path | None) -> None:  # noqa: B027
        """Add to a record the figures that need more than one run.

        Args:
            record: is changed
            earlier: the folder of the record that has some of its runs
        """

    def derive(self, record: Record, folder: Path) -> None:  # noqa: B027
        """Add to a record the figures that follow from its files, each time its page is made.

        Args:
            record: is changed
            folder: the record's
        """

    def files(self, run: Path) -> dict[str, Path]:
        """Return the files of a run that a record keeps: name in its archive → file."""
        return {f"{run.name}.jsonl": Run(run).statistics_file}

    def draw(self, record: Record, folder: Path) -> None:  # noqa: B027
        """Draw ``PICTURE`` into a record's folder, if the experiment has one."""


def stem(name: str) -> str:
    """Return a row's name in folders: ``LSTM, additive attention`` → ``lstm_additive_…``."""
    letters = [letter if letter.isalnum() else " " for letter in name.lower().replace("'", "")]
    return file_stem("_".join("".join(letters).split()))


def names() -> list[str]:
    """Return the names of all experiments, which are those of their folders."""
    return sorted(path.parent.relative_to(HERE).as_posix() for path in HERE.glob("**/rows.yaml"))


def find(name: str) -> Experiment:
    """Return the experiment of a name.

    Raises:
        UserError: there is none.
    """
    if name not in names():
        raise UserError(
            f"there is no experiment '{name}'{nearest(name, names())}; there are "
            f"{', '.join(names())}"
        )
    folder = HERE / name
    module = "system_tables"
    if (folder / "experiment.py").is_file():
        module = f"{name.replace('/', '.')}.experiment"
    experiment: Experiment = importlib.import_module(f"experiments.{module}").make(folder)
    return experiment


def chosen_rows(experiment: Experiment, only: str | None) -> list[Row]:
    """Return all rows, or only the row of this name.

    Raises:
        UserError: there is no such row.
    """
    rows = experiment.rows
    chosen = [row for row in rows if only is None or stem(row.name) == stem(only)]
    if not chosen:
        titles = [row.name for row in rows]
        raise UserError(
            f"{experiment.name} has no row '{only}'{nearest(str(only), titles)}; rows are "
            f"{', '.join(titles)}"
        )
    return chosen


def train(experiment: Experiment, rows: Sequence[Row], only_seed: int | None) -> None:
    """Train the unfinished trainings of some rows.

    Raises:
        UserError: no row has this seed; see :meth:`Experiment.train`.
        CommandError: see :meth:`Experiment.train`.
    """
    most = max(row.seeds for row in rows)
    if only_seed is not None and not 1 <= only_seed <= most:
        raise UserError(f"--seed {only_seed}: seeds are 1 to {most}")
    for row in rows:
        for seed in range(1, row.seeds + 1):
            if only_seed in (None, seed):
                experiment.train(row, seed)


def run(args: argparse.Namespace) -> None:
    """Train, record or print, as the arguments say."""
    if not args.name:
        for name in names():
            print(f"{name:18} {read_yaml(HERE / name / 'rows.yaml')['question']}")
        return
    experiment = find(args.name)
    if args.record and (args.row or args.seed is not None):
        raise UserError("--record records all that is trained: leave out --row and --seed")
    if args.page:
        records.write_page(experiment, args.page)
        return
    rows = chosen_rows(experiment, args.row)
    print(f"expected, as written before the first run: {experiment.expected}", file=sys.stderr)
    if not args.record:
        train(experiment, rows, args.seed)
    record = records.collect_record(experiment, args.earlier)
    print(join_tables(experiment.tables(record)))
    if args.record:
        out = args.out or experiment.folder / "records"
        folder = records.write_record(experiment, record, out, args.earlier)
        print(f"written to {folder}", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    """Train, measure or record an experiment, as the arguments say."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="an experiment")
    parser.add_argument("--row", metavar="ROW", help="train this row alone")
    parser.add_argument("--seed", metavar="N", type=int, help="train this seed alone")
    parser.add_argument("--record", action="store_true", help="record what is trained")
    parser.add_argument(
        "--with", metavar="FOLDER", type=Path, dest="earlier", help="a record with other runs"
    )
    parser.add_argument("--page", metavar="FOLDER", type=Path, help="make its page again")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where records are")
    args = parser.parse_args(arguments)
    try:
        with signals_as_interrupts():
            run(args)
    except UserError as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 1
    except CommandError as error:
        return error.code
    except KeyboardInterrupt:
        print("experiments: interrupted; finished trainings are kept", file=sys.stderr)
        return 130
    return 0
