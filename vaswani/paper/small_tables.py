"""Comparisons at a size for two CPU cores: Tables 2 and 3 of the paper, and ours with fairseq's.

``configs/small_tables.yaml`` says what is trained. Each training, average, translation and score is
a command of its own, which goes on where it was stopped and skips what is done; the table is read
from the runs' own records. A run that was trained otherwise than its row says is not the row's;
one that was only translated otherwise is translated and scored again.
"""

import json
import shlex
import sys
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from vaswani.common.artifact import is_report, output_file, writing
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, read_json
from vaswani.common.options import argument, option
from vaswani.data.data_bin import fingerprint
from vaswani.decoding.translations import decoding_options, is_decoded
from vaswani.experiment.fairseq_config import experiment_config
from vaswani.experiment.find import file_stem, find_config, is_run, read_yaml
from vaswani.experiment.run_record import (
    FINISHED,
    STATISTICS,
    split_run,
    statistics,
    trained_differently,
)

FILE = "small_tables"
TABLES = ("table2", "table2-demo", "equal-updates", "table3")
#: in a run's statistics: bits per token, without label smoothing
VALIDATION = "valid_nll_loss"
#: the change that sets a training's length
LAST_UPDATE = "optimization.max_update="


@dataclass(frozen=True, kw_only=True)
class SmallTableOptions:
    """Options of ``vaswani reproduce table2 --small`` and the other tables of this kind."""

    name: str = argument("NAME", "table2, table2-demo, equal-updates or table3")
    small: bool = option(False, "with small models: hours on two CPU cores")
    row: Optional[str] = option(metavar="ROW", help="train this row alone (default: all)")
    dry_run: bool = option(False, "print what is expected and the commands, run nothing")


@dataclass(frozen=True)
class Row:
    """A system or a variation: what it changes in which experiment, and how often it is trained.

    Attributes:
        rates: learning rates to choose from by short trainings; empty: the experiment's own
        paper: the row of the paper's Table 3 that it stands for, at another size
    """

    name: str
    base: str
    change: List[str]
    seeds: int
    rates: List[float]
    paper: str


class Table(NamedTuple):
    """One of the tables. ``average``: how many of a run's last checkpoints are averaged."""

    name: str
    rows: List[Row]
    expected: str
    average: int
    rate_updates: int


class Training(NamedTuple):
    """One run of a row, and the command that trains it."""

    run: Path
    command: List[str]

    @property
    def done(self) -> bool:
        """Whether it has reached the last update of its command."""
        last = [text for text in self.command if text.startswith(LAST_UPDATE)][-1]
        updates = read_json(self.run / FINISHED).get("num_updates", 0)
        return bool(updates >= int(last[len(LAST_UPDATE) :]))

    @property
    def config(self) -> Any:
        """The experiment that its command trains, complete."""
        return experiment_config(find_config(self.command[1]), split_run(self.command[2:])[1])

    @property
    def difference(self) -> str:
        """In what the run was trained otherwise than by this command; empty if in nothing."""
        if not is_run(self.run):
            return ""
        config = self.config
        return trained_differently(config, fingerprint(config), self.run)

    def average(self, count: int) -> Path:
        """The average of the run's last checkpoints."""
        return self.run / "checkpoints" / f"checkpoint_average_last{count}.pt"


def read_table(name: str, only: Optional[str] = None, path: Optional[Path] = None) -> Table:
    """A table of ``configs/small_tables.yaml``, or of another ``path``; ``only``: this row alone.

    Raises:
        UserError: there is no such row.
    """
    whole = read_yaml(path or find_config(FILE))
    section = whole[name]
    rows = [
        Row(
            key,
            row.get("base", whole["base"]),
            [*whole["change"], *section.get("change", []), *row.get("change", [])],
            int(row.get("seeds", 1)),
            [float(rate) for rate in row.get("rates", [])],
            row.get("paper", key),
        )
        for key, row in section["rows"].items()
    ]
    both = {key: section.get(key, whole[key]) for key in ("average", "rate_updates")}
    table = Table(name, rows, section["expected"], **both)
    if only is None:
        return table
    chosen = [row for row in rows if stem(row.name) == stem(only)]
    if not chosen:
        names = [row.name for row in rows]
        raise UserError(
            f"{name} has no row '{only}'{nearest(only, names)}; rows are {', '.join(names)}"
        )
    return table._replace(rows=chosen)


def stem(name: str) -> str:
    """A row's name as its folders have it: ``LSTM, additive attention`` → ``lstm_additive_…``."""
    kept = (letter if letter.isalnum() else " " for letter in name.lower().replace("'", ""))
    return file_stem("_".join("".join(kept).split()))


def rate_trainings(table: Table, row: Row) -> Dict[float, Training]:
    """The short trainings that choose a row's learning rate."""
    change = f"{LAST_UPDATE}{table.rate_updates}"
    return {
        rate: training_of(table, row, f"rate{rate:g}", [*at_rate(rate), change])
        for rate in row.rates
    }


def trainings(table: Table, row: Row) -> Dict[int, Training]:
    """A row's trainings, by seed. Raises UserError before its learning rate is chosen."""
    chosen = at_rate(best_rate(table, row)) if row.rates else []
    return {
        seed: training_of(table, row, f"seed{seed}", [*chosen, f"common.seed={seed}"])
        for seed in range(1, row.seeds + 1)
    }


def at_rate(rate: float) -> List[str]:
    """The change that sets the learning rate."""
    return [f"optimization.lr=[{rate:g}]"]


def training_of(table: Table, row: Row, name: str, changes: Sequence[str]) -> Training:
    """One training of a row; learning rates are compared with the experiment's seed."""
    run = run_of(table, row, name)
    return Training(run, ["train", row.base, *row.change, *changes, f"run={run}"])


def run_of(table: Table, row: Row, name: str) -> Path:
    """The folder of one of a row's runs."""
    return Path("runs") / table.name / f"{stem(row.name)}_{name}"


def best_rate(table: Table, row: Row) -> float:
    """The learning rate whose short training ended with the lowest validation loss.

    Raises:
        UserError: one of them is not done, or its log is gone.
    """
    losses = {}
    for rate, training in rate_trainings(table, row).items():
        if not training.done:
            raise UserError(
                f"{training.run} is not trained yet: it helps to choose the learning rate"
            )
        losses[rate] = lowest_loss(training.run)
        if isinf(losses[rate]):
            raise UserError(
                f"{training.run} has no validation in its log: remove this folder, and it is "
                "trained again"
            )
    return min(losses, key=losses.__getitem__)


def lowest_loss(run: Path) -> float:
    """A run's lowest validation loss, in bits per token, unsmoothed; infinity if none is logged."""
    lines = statistics(run / STATISTICS)
    return min((line[VALIDATION] for line in lines if VALIDATION in line), default=inf)


def refuse_other_training(table: Table) -> None:
    """Raises UserError if a run of a row is there but was trained otherwise, naming the first key.

    Seeds are looked at once their learning rate is chosen.
    """
    for row in table.rows:
        rated = list(rate_trainings(table, row).values())
        chosen = all(short.done for short in rated)
        for training in [*rated, *(trainings(table, row).values() if chosen else [])]:
            if training.difference:
                raise UserError(
                    f"{training.run} was trained with {training.difference}, as row '{row.name}' "
                    "asks: rename or remove this folder to have it trained again, or undo the "
                    "change"
                )


def commands(table: Table, training: Training) -> Iterator[List[str]]:
    """The commands from a training to its scores; none if it is done and scored."""
    run, average = training.run, training.average(table.average)
    if training.done and result(run) and is_decoded(run, average, training.config):
        return
    if not training.done:
        yield training.command
    if not training.done or not average.is_file():
        yield ["average", str(run), "--last", str(table.average)]
    changed = decoding_options(run, training.config) if is_run(run) else []
    yield ["generate", str(average), *changed]
    yield ["score", str(run)]


# ---- what came out -----------------------------------------------------------------------------


class Result(NamedTuple):
    """What a run's records say."""

    run: str
    #: the average's score by sacreBLEU (by tokens, if the text is), and what it prints; chrF's
    bleu: float
    bleu_text: str
    chrf: float
    chrf_text: str
    perplexity: float
    updates: int
    seconds: float


def result(run: Path) -> Optional[Result]:
    """A run's result, or None as long as it is not scored."""
    scores = read_json(run / "eval" / "test.score.json")
    finished = read_json(run / FINISHED)
    if not scores or not finished:
        return None
    # text that was prepared as tokens has no other BLEU
    bleu, chrf = scores.get("bleu") or scores["bleu_tokenised"], scores["chrf"]
    return Result(
        str(run),
        bleu["score"],
        bleu["text"],
        chrf["score"],
        chrf["text"],
        2 ** lowest_loss(run),
        finished["num_updates"],
        finished["seconds"],
    )


def results(table: Table, row: Row) -> List[Result]:
    """Those of a row's seeds that are scored. A warning names what another recipe trained."""
    rated = rate_trainings(table, row).values()
    if not all(short.done for short in rated):
        return []
    found = []
    for training in trainings(table, row).values():
        run = training.run
        scored = result(run)
        if scored and training.difference:
            difference = f"was trained with {training.difference}, as row '{row.name}' asks"
            print(f"warning: {run} {difference}: left out", file=sys.stderr)
        elif scored and is_decoded(run, training.average(table.average), training.config):
            found.append(scored)
    return found


def spread(values: Sequence[float]) -> str:
    """The mean of the seeds, and from the lowest to the highest where there are several."""
    middle = f"{mean(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f} to {max(values):.2f})"


def lines_of(table: Table, found: Dict[str, List[Result]]) -> List[str]:
    """The table in Markdown, each row with its results so far, by its name in ``found``."""
    lines = [
        "| row | seeds | BLEU | chrF | validation perplexity | updates | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.rows:
        scored = found[row.name]
        columns = ["–"] * 5
        if scored:
            columns = [
                spread([seed.bleu for seed in scored]),
                spread([seed.chrf for seed in scored]),
                spread([seed.perplexity for seed in scored]),
                ", ".join(sorted({f"{seed.updates:,}" for seed in scored})),
                f"{mean(seed.seconds for seed in scored) / 60:.0f}",
            ]
        seeds = f"{len(scored)} of {row.seeds}"
        lines.append(f"| {' | '.join([row.name, seeds, *columns])} |")
    return lines


def run(options: SmallTableOptions, run_command: Callable[[List[str]], int]) -> int:
    """Train, average, translate and score what is not done yet; print and write the table.

    Args:
        run_command: runs a verb with its arguments and returns its exit code
    """
    if not options.small:
        at_full_size = {
            "table2": "vaswani reproduce wmt14-en-de-base, -big, wmt14-en-fr-base, -big",
            "table3": "vaswani reproduce wmt14-en-de-base --row ROW",
        }.get(options.name)
        raise UserError(
            f"{options.name} compares small models: add --small"
            + (f"; at full size it is made row by row: {at_full_size}" if at_full_size else "")
        )
    table = read_table(options.name, options.row)
    refuse_without_example(table)
    refuse_other_training(table)
    print(f"expected, as written before the first run: {table.expected}", file=sys.stderr)
    for row in table.rows:
        chosen = list(rate_trainings(table, row).values())
        pending = [short.command for short in chosen if not short.done]
        if options.dry_run and pending:
            show(pending)
            print(f"  then {row.seeds} seeds of '{row.name}' at the best of these rates")
            continue
        for command in pending:
            if code := run_command(command):
                return code
        for training in trainings(table, row).values():
            for command in commands(table, training):
                if options.dry_run:
                    show([command])
                elif code := run_command(command):
                    return code
    if not options.dry_run:
        write(read_table(options.name))
    return 0


def refuse_without_example(table: Table) -> None:
    """Raises UserError if a row's user-dir is not here: other rows would be trained before it."""
    for row in table.rows:
        for change in row.change:
            key, _, folder = change.partition("=")
            if key == "common.user_dir" and not Path(folder).is_dir():
                raise UserError(
                    f"row '{row.name}' needs the folder {folder}: run this in a checkout of the "
                    "repository"
                )


def show(commands: Sequence[Sequence[str]]) -> None:
    """Print commands as they would be typed."""
    for command in commands:
        print(f"  vaswani {shlex.join(command)}")


def write(table: Table) -> None:
    """Print the whole table and write it, with each run's figures, to runs/TABLE/TABLE.json."""
    found = {row.name: results(table, row) for row in table.rows}
    lines = lines_of(table, found)
    path = Path("runs") / table.name / f"{table.name}.json"
    path = output_file(path, may_replace=lambda file: is_report(file, "table", "rows"))
    rows = {name: [seed._asdict() for seed in scored] for name, scored in found.items()}
    record = {"table": table.name, "expected": table.expected, "rows": rows, "lines": lines}
    with writing(path), atomic_write(path) as stream:
        json.dump(record, stream, indent=1)
    print("\n".join(lines))
    print(f"written to {path}", file=sys.stderr)
