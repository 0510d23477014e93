"""Comparisons at a size for two CPU cores: Tables 2 and 3 of the paper, and ours with fairseq's.

``configs/small_tables.yaml`` says what is trained. Each training, average, translation and score is
a command of its own, which goes on where it was stopped; the table is read from the runs' own
records. A run that was trained otherwise than its row says is not the row's; one that was only
translated otherwise is translated and scored again.
"""

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from vaswani.common.artifact import is_report, output_file, writing
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, read_json
from vaswani.common.options import argument, option
from vaswani.data.data_bin import fingerprint
from vaswani.decoding.translations import decoding_options, is_decoded
from vaswani.experiment.fairseq_config import experiment_config
from vaswani.experiment.find import file_stem, find_config, is_run
from vaswani.experiment.run_record import FINISHED, STATISTICS, statistics, trained_differently
from vaswani.experiment.yaml_tables import read_yaml
from vaswani.paper.runner import run_commands

FILE = "small_tables"
#: in a run's statistics: bits per token, without label smoothing
VALIDATION = "valid_nll_loss"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``vaswani reproduce table2 --small`` and the other tables of this kind."""

    name: str = argument("NAME", "table2, table2-demo, table2-tatoeba, equal-updates or table3")
    small: bool = option(False, "with small models: hours on two CPU cores")
    row: str | None = option(metavar="ROW", help="train this row alone (default: all)")
    dry_run: bool = option(False, "print what is expected and the commands, run nothing")


class Row(NamedTuple):
    """A system or a variation: what it changes in which experiment, and how often it is trained.

    Attributes:
        rates: learning rates to choose from by short trainings, each with what it changes (itself,
            and its warm-up if it has one); empty: the experiment's own
        average: how many of a run's last checkpoints are averaged
        paper: the row of the paper's Table 3 that it stands for, at another size
    """

    name: str
    base: str
    change: list[str]
    seeds: int
    rates: dict[float, list[str]]
    paper: str
    average: int


class Table(NamedTuple):
    """One of the tables."""

    name: str
    rows: list[Row]
    expected: str
    rate_updates: int


@functools.cache  # composing it takes a while, and it is asked for at each step
def config_of(experiment: Path, change: tuple[str, ...]) -> Any:
    """An experiment with changes, complete."""
    return experiment_config(experiment, list(change))


class Training(NamedTuple):
    """One run of a row, and what it changes in which experiment."""

    run: Path
    base: str
    change: list[str]

    @property
    def command(self) -> list[str]:
        """The command that trains it."""
        return ["train", self.base, *self.change, f"run={self.run}"]

    @property
    def config(self) -> Any:
        """The experiment, complete."""
        return config_of(find_config(self.base).resolve(), tuple(self.change))

    @property
    def done(self) -> bool:
        """Whether it has reached its last update."""
        updates = read_json(self.run / FINISHED).get("num_updates", 0)
        return bool(updates and updates >= self.config.optimization.max_update)

    @property
    def difference(self) -> str:
        """In what the run was trained otherwise than this; empty if in nothing."""
        if not is_run(self.run):
            return ""
        config = self.config
        return trained_differently(config, fingerprint(config), self.run)

    def average(self, count: int) -> Path:
        """The average of the run's last checkpoints."""
        return self.run / "checkpoints" / f"checkpoint_average_last{count}.pt"


def read_table(name: str, only: str | None = None, path: Path | None = None) -> Table:
    """A table of ``configs/small_tables.yaml``, or of another ``path``; ``only``: this row alone.

    Raises:
        UserError: there is no such row.
    """
    whole = read_yaml(path or find_config(FILE))
    section = {**whole, **whole[name]}
    changes = [*whole["change"], *whole[name].get("change", [])]
    rows = [
        Row(
            key,
            row.get("base", whole["base"]),
            [*changes, *row.get("change", [])],
            int(row.get("seeds", 1)),
            rate_changes(row.get("rates", [])),
            row.get("paper", key),
            row.get("average", section["average"]),
        )
        for key, row in section["rows"].items()
    ]
    chosen = [row for row in rows if only is None or stem(row.name) == stem(only)]
    if not chosen:
        names = [row.name for row in rows]
        offer = f"{nearest(str(only), names)}; rows are {', '.join(names)}"
        raise UserError(f"{name} has no row '{only}'{offer}")
    return Table(name, chosen, section["expected"], section["rate_updates"])


def rate_changes(rates: list[float | list[float]]) -> dict[float, list[str]]:
    """Learning rates of a row, or pairs of one and its warm-up in updates → what each changes."""
    changes = {}
    for entry in rates:
        rate, *updates = entry if isinstance(entry, list) else [entry]
        warm_up = [f"lr_scheduler.warmup_updates={number}" for number in updates]
        changes[float(rate)] = [f"optimization.lr=[{rate:g}]", *warm_up]
    return changes


def stem(name: str) -> str:
    """A row's name as its folders have it: ``LSTM, additive attention`` → ``lstm_additive_…``."""
    kept = (letter if letter.isalnum() else " " for letter in name.lower().replace("'", ""))
    return file_stem("_".join("".join(kept).split()))


# ---- trainings ---------------------------------------------------------------------------------


def training_of(table: Table, row: Row, name: str, changes: Sequence[str]) -> Training:
    """One training of a row; learning rates are compared with the experiment's seed."""
    run = Path("runs") / table.name / f"{stem(row.name)}_{name}"
    return Training(run, row.base, [*row.change, *changes])


def rate_trainings(table: Table, row: Row) -> dict[float, Training]:
    """The short trainings that choose a row's learning rate."""
    length = f"optimization.max_update={table.rate_updates}"
    return {
        rate: training_of(table, row, f"rate{rate:g}", [*changes, length])
        for rate, changes in row.rates.items()
    }


def trainings(table: Table, row: Row) -> list[Training]:
    """A row's trainings, one for each seed; none as long as its learning rate is not chosen.

    Raises:
        UserError: the log of a short training is gone.
    """
    rated = rate_trainings(table, row)
    if not all(short.done for short in rated.values()):
        return []
    chosen = row.rates[best_rate(rated)] if rated else []
    return [
        training_of(table, row, f"seed{seed}", [*chosen, f"common.seed={seed}"])
        for seed in range(1, row.seeds + 1)
    ]


def best_rate(rated: dict[float, Training]) -> float:
    """The learning rate whose short training ended with the lowest validation loss.

    Raises:
        UserError: the log of one is gone: it would look like the worst.
    """
    losses = {rate: lowest_loss(short.run) for rate, short in rated.items()}
    for rate, loss in losses.items():
        if isinf(loss):
            raise UserError(
                f"{rated[rate].run} has no validation in its log: remove this folder, and it is "
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
        for training in [*rate_trainings(table, row).values(), *trainings(table, row)]:
            if difference := training.difference:
                raise UserError(
                    f"{training.run} was trained with {difference}, as row '{row.name}' "
                    "asks: rename or remove this folder to have it trained again, or undo the "
                    "change"
                )


# ---- commands ----------------------------------------------------------------------------------


def rate_commands(table: Table, row: Row) -> list[list[str]]:
    """The commands of the short trainings that are not done."""
    return [short.command for short in rate_trainings(table, row).values() if not short.done]


def seed_commands(table: Table, row: Row) -> Iterator[list[str]]:
    """The commands from each seed's training to its scores; none if it is done and scored."""
    for training in trainings(table, row):
        run, average = training.run, training.average(row.average)
        trained = training.done
        if trained and result(run) and is_decoded(run, average, training.config):
            continue
        if not trained:
            yield training.command
        if not trained or not average.is_file():
            yield ["average", str(run), "--last", str(row.average)]
        changed = decoding_options(run, training.config) if is_run(run) else []
        yield ["generate", str(average), *changed]
        yield ["score", str(run)]


def run(options: Options) -> int:
    """Train, average, translate and score what is not done yet; print and write the table."""
    if not options.small:
        raise UserError(
            f"{options.name} compares small models: add --small (Tables 2 and 3 at full size are "
            "made row by row: vaswani reproduce wmt14-en-de-base --dry-run)"
        )
    table = read_table(options.name, options.row)
    for row in table.rows:  # what cannot be trained is said before hours of other rows
        experiment_config(find_config(row.base), row.change)
    refuse_other_training(table)
    print(f"expected, as written before the first run: {table.expected}", file=sys.stderr)
    for row in table.rows:
        pending = rate_commands(table, row)
        if code := run_commands(pending, options.dry_run):
            return code
        if options.dry_run and pending:
            print(f"  then {row.seeds} seeds of '{row.name}' at the best of these rates")
        elif code := run_commands(seed_commands(table, row), options.dry_run):
            return code
    if not options.dry_run:
        write(read_table(options.name))
    return 0


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


def result(run: Path) -> Result | None:
    """A run's result, or None as long as it is not scored."""
    scores = read_json(run / "eval" / "test.score.json")
    finished = read_json(run / FINISHED)
    if not scores or not finished:
        return None
    # text that was prepared as tokens has no other BLEU
    bleu, chrf = scores.get("bleu") or scores["bleu_tokenised"], scores["chrf"]
    scored = bleu["score"], bleu["text"], chrf["score"], chrf["text"]
    took = finished["num_updates"], finished["seconds"]
    return Result(str(run), *scored, 2 ** lowest_loss(run), *took)


def results(table: Table, row: Row) -> list[Result]:
    """Those of a row's seeds that are scored. A warning names what another recipe trained."""
    found = []
    for training in trainings(table, row):
        run = training.run
        scored = result(run)
        if scored and (difference := training.difference):
            asked = f"was trained with {difference}, as row '{row.name}' asks"
            print(f"warning: {run} {asked}: left out", file=sys.stderr)
        elif scored and is_decoded(run, training.average(row.average), training.config):
            found.append(scored)
    return found


def spread(values: Sequence[float]) -> str:
    """The mean of the seeds, and from the lowest to the highest where there are several."""
    middle = f"{mean(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f} to {max(values):.2f})"


def lines_of(table: Table, found: dict[str, list[Result]]) -> list[str]:
    """The table in Markdown, each row with its results so far, by its name in ``found``."""
    lines = [
        "| row | seeds | BLEU | chrF | validation perplexity | updates | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.rows:
        scored = found[row.name]
        columns = ["–"] * 5
        if scored:
            figures = ("bleu", "chrf", "perplexity")
            columns = [
                *(spread([getattr(seed, figure) for seed in scored]) for figure in figures),
                ", ".join(sorted({f"{seed.updates:,}" for seed in scored})),
                f"{mean(seed.seconds for seed in scored) / 60:.0f}",
            ]
        seeds = f"{len(scored)} of {row.seeds}"
        lines.append(f"| {' | '.join([row.name, seeds, *columns])} |")
    return lines


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
