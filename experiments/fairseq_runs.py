"""Rows that fairseq trains: their trainings, the choice of a learning rate, and their scores.

``rows.yaml`` says what a row changes in which experiment of ``configs/``, after the changes for
all. Each training, average, translation and score is a command of ``vaswani``, which goes on where
it was stopped. A run that was trained otherwise than its row says is refused; one that was only
translated otherwise is translated and scored again::

    base: multi30k_en_de       # the experiment, of configs/
    change: [...]              # for all rows
    average: 5                 # how many of the last checkpoints are averaged
    rate_updates: 800          # of the short trainings that choose a learning rate
    runs: table2               # the folder below runs/ (default: the experiment's name)
    rows:
      ours: {seeds: 3, rates: [0.002, [0.004, 400]]}       # rates, or pairs of one and its warm-up
      theirs: {base: ..., change: [...], average: ...}

Instead of ``rows`` there may be ``groups``, a list of tables with these keys.
"""

import functools
import sys
from collections.abc import Iterable, Sequence
from math import inf, isinf
from pathlib import Path
from typing import Any, NamedTuple

from experiments.harness import CommandError, Experiment, Row, stem
from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.common.find import find_config
from vaswani.common.options import last_of_each
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.data.read_data_bin import data_fingerprint
from vaswani.decoding.earlier_translations import decoding_options, is_decoded
from vaswani.folders.run import Run
from vaswani.reproduction.runner import run_commands
from vaswani.training.run_record import training_difference
from vaswani_transformer.schedule import learning_rate

#: in a run's statistics: bits per token, without label smoothing
VALIDATION = "valid_nll_loss"


class FairseqRow(NamedTuple):
    """A system or a variation: what it changes in which experiment, and how often it is trained.

    Attributes:
        rates: learning rates to choose from by short trainings, each with what it changes (itself,
            and its warm-up if it has one); empty: the experiment's own
        average: how many of a run's last checkpoints are averaged
        paper: the row of the paper's Table 3 that it stands for, at another size
        place: the folder of its runs
        rate_updates: how long the short trainings are
    """

    name: str
    base: str
    change: list[str]
    seeds: int
    rates: dict[float, list[str]]
    paper: str
    average: int
    place: Path
    rate_updates: int


def read_rows(table: dict[str, Any], name: str) -> list[FairseqRow]:
    """Read the rows of a ``rows.yaml``.

    Args:
        table: its content
        name: of the experiment
    """
    rows = []
    for group in table.get("groups", [{}]):
        shared = {**table, **group}
        place = Path("runs") / shared.get("runs", name)
        for title, row in shared["rows"].items():
            rows.append(
                FairseqRow(
                    name=title,
                    base=row.get("base", shared["base"]),
                    change=[*shared.get("change", []), *row.get("change", [])],
                    seeds=int(row.get("seeds", 1)),
                    rates=rate_changes(row.get("rates", [])),
                    paper=row.get("paper", title),
                    average=row.get("average", shared["average"]),
                    place=place,
                    rate_updates=shared.get("rate_updates", 0),
                )
            )
    return rows


@functools.cache  # composing it takes a while, and it is asked for at each step
def config_of(experiment: Path, change: tuple[str, ...]) -> Any:
    """Return an experiment's complete configuration, with changes."""
    return read_configuration(experiment, list(change))


class Training(NamedTuple):
    """One run of a row, and what it changes in which experiment."""

    run: Path
    base: str
    change: list[str]

    @property
    def command(self) -> list[str]:
        """The command that trains it."""
        return ["train", self.base, *last_of_each(self.change), f"run={self.run}"]

    @property
    def config(self) -> Any:
        """The complete configuration of the training."""
        return config_of(find_config(self.base).resolve(), tuple(self.change))

    @property
    def done(self) -> bool:
        """Whether it has reached its last update."""
        ending = Run(self.run).ending()
        updates = ending.num_updates if ending else 0
        return bool(updates and updates >= self.config.optimization.max_update)

    @property
    def difference(self) -> str:
        """The first difference of the run's training from this one; empty if there is none."""
        if not Run(self.run).exists:
            return ""
        config = self.config
        return training_difference(config, data_fingerprint(config), Run(self.run))

    def average(self, count: int) -> Path:
        """Return the average of the run's last checkpoints."""
        return Run(self.run).average(count)


def rate_changes(rates: list[float | list[float]]) -> dict[float, list[str]]:
    """Return a row's learning rates, some with a warm-up → the options that each changes."""
    changes = {}
    for entry in rates:
        rate, *updates = entry if isinstance(entry, list) else [entry]
        warm_up = [f"lr_scheduler.warmup_updates={number}" for number in updates]
        changes[float(rate)] = [f"optimization.lr=[{rate:g}]", *warm_up]
    return changes


# ---- trainings ---------------------------------------------------------------------------------


def training_of(row: FairseqRow, name: str, changes: Sequence[str]) -> Training:
    """Return one training of a row; learning rates are compared with the experiment's seed."""
    run = row.place / f"{stem(row.name)}_{name}"
    return Training(run, row.base, [*row.change, *changes])


def rate_trainings(row: FairseqRow) -> dict[float, Training]:
    """Return the short trainings that choose a row's learning rate."""
    length = f"optimization.max_update={row.rate_updates}"
    return {
        rate: training_of(row, f"rate{rate:g}", [*changes, length])
        for rate, changes in row.rates.items()
    }


def seed_trainings(row: FairseqRow) -> dict[int, Training]:
    """Return a row's trainings by seed; none until its learning rate is chosen.

    Raises:
        UserError: the log of a short training is gone.
    """
    rated = rate_trainings(row)
    if not all(short.done for short in rated.values()):
        return {}
    chosen = row.rates[best_rate(rated)] if rated else []
    return {
        seed: training_of(row, f"seed{seed}", [*chosen, f"common.seed={seed}"])
        for seed in range(1, row.seeds + 1)
    }


def best_rate(rated: dict[float, Training]) -> float:
    """Return the learning rate whose short training ended with the lowest validation loss.

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
    """Return a run's lowest validation loss, in bits per token, unsmoothed; infinity if none is
    logged.
    """
    lines = Run(run).statistics()
    return min((line[VALIDATION] for line in lines if VALIDATION in line), default=inf)


def refuse_other_training(row: FairseqRow) -> None:
    """Raise UserError, naming the key, if a run of the row was trained with other options.

    Seeds are looked at once their learning rate is chosen.
    """
    for training in [*rate_trainings(row).values(), *seed_trainings(row).values()]:
        difference = training.difference
        if difference:
            raise UserError(
                f"{training.run} was trained with {difference}, as row '{row.name}' asks: rename "
                "or remove this folder to have it trained again, or undo the change"
            )


def score_commands(row: FairseqRow, training: Training) -> list[list[str]]:
    """Return the commands that train and score; none if that is done."""
    run = training.run
    average = training.average(row.average)
    trained = training.done
    if trained and is_scored(run) and is_decoded(Run(run), average, training.config):
        return []
    commands = []
    if not trained:
        commands.append(training.command)
    if not trained or not average.is_file():
        commands.append(["average", str(run), "--last", str(row.average)])
    trained_run = Run(run)
    changed = decoding_options(trained_run, training.config) if trained_run.exists else []
    commands.append(["generate", str(average), *changed])
    commands.append(["score", str(run)])
    return commands


def execute(commands: Iterable[list[str]]) -> None:
    """Run commands of ``vaswani``, one after another.

    Raises:
        CommandError: one failed.
    """
    code = run_commands(commands)
    if code:
        raise CommandError(code)


class FairseqExperiment(Experiment):
    """An experiment whose rows fairseq trains."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.plans = {row.name: row for row in read_rows(self.table, folder.name)}

    @property
    def rows(self) -> list[Row]:
        """The rows, as in ``rows.yaml``."""
        return [Row(plan.name, plan.seeds) for plan in self.plans.values()]

    def train(self, row: Row, seed: int) -> None:
        """Train a seed, average its checkpoints and score it.

        If the row has short trainings to choose a learning rate, they come first.
        """
        plan = self.plans[row.name]
        read_configuration(find_config(plan.base), plan.change)  # says what cannot be, at once
        refuse_other_training(plan)
        execute(short.command for short in rate_trainings(plan).values() if not short.done)
        execute(score_commands(plan, seed_trainings(plan)[seed]))

    def runs(self, row: Row) -> list[Path]:
        """Return the scored runs of a row, and warn of those trained with other options."""
        plan = self.plans[row.name]
        scored = []
        for training in seed_trainings(plan).values():
            run = training.run
            if not is_scored(run):
                continue
            if training.difference:
                print(
                    f"warning: {run} was trained with {training.difference}, as row '{row.name}' "
                    "asks: left out",
                    file=sys.stderr,
                )
            elif is_decoded(Run(run), training.average(plan.average), training.config):
                scored.append(run)
        return scored

    def describe(self, row: Row) -> dict[str, Any]:
        """Return a row's peak rate, and the perplexity of each short training that chose it."""
        plan = self.plans[row.name]
        rates = []
        for rate, short in rate_trainings(plan).items():
            if short.done:
                perplexity = 2 ** lowest_loss(short.run)
                rates.append({"run": str(short.run), "rate": rate, "perplexity": perplexity})
        described: dict[str, Any] = {"rates": rates} if rates else {}
        trainings = list(seed_trainings(plan).values())
        if trainings:
            described["rate"] = peak_rate(trainings[0].config)
        return described

    def files(self, run: Path) -> dict[str, Path]:
        """Return the files of statistics, scores and translations."""
        files = {f"{run.name}.jsonl": Run(run).statistics_file}
        translations = Run(run).translations()
        scores = translations.scores_file
        if scores.is_file():
            files[f"{run.name}.score.json"] = scores
        for sides in read_json(scores).get("files", {}).values():
            hypotheses = Path(sides["hypotheses"]["file"])  # test.hyp, or its tokens
            files[f"{run.name}.{hypotheses.name}"] = translations.folder / hypotheses.name
        return files


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


def is_scored(run: Path) -> bool:
    """Return whether a run has ended, and its translations are scored."""
    return bool(Run(run).translations().scores() and Run(run).ending())


def result(run: Path) -> Result:
    """Return the result of a run that is scored."""
    scores = Run(run).translations().scores()
    ending = Run(run).ending()
    assert ending, "it is scored"
    # text that was prepared as tokens has no other BLEU
    bleu = scores.get("bleu") or scores["bleu_tokenised"]
    chrf = scores["chrf"]
    return Result(
        run=str(run),
        bleu=bleu["score"],
        bleu_text=bleu["text"],
        chrf=chrf["score"],
        chrf_text=chrf["text"],
        perplexity=2 ** lowest_loss(run),
        updates=ending.num_updates,
        seconds=ending.seconds or 0.0,
    )


def rate_text(row: dict[str, Any]) -> str:
    """Return the peak learning rate of a record's row, as tables print it."""
    return f"{row['rate']:.3g}" if "rate" in row else "–"


def peak_rate(config: Any) -> float:
    """Return the learning rate at the end of the warm-up: by equation 3 or, with another schedule,
    given.

    Args:
        config: of a training, complete
    """
    schedule = config.lr_scheduler
    if schedule._name != "vaswani_inverse_sqrt":
        return float(config.optimization.lr[0])
    width = schedule.d_model or config.model.encoder_embed_dim
    warm_up = schedule.warmup_updates
    return learning_rate(warm_up, width, warm_up, schedule.lr_factor)
