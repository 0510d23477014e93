"""Tables 2 to 4 of the paper at full size: a result by its name, and the commands that make it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common import signals
from vaswani.common.errors import UserError, nearest
from vaswani.common.find import DOCS, file_stem, find_config, first_data_bin
from vaswani.common.options import last_of_each
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.run import RUNS, Run
from vaswani.planning import arithmetic
from vaswani.planning.training_plan import table, training_plan
from vaswani.reproduction import EXPERIMENTS, FILES
from vaswani.reproduction.options import TABLE_4, Options
from vaswani.reproduction.runner import run_commands
from vaswani.scoring import published
from vaswani.training.checkpoints import describe
from vaswani.training.launch import gpus_to_use
from vaswani.training.run_record import split_run

NAMES = [f"wmt14_en_{target}_{size}" for target in ("de", "fr") for size in ("base", "big")]
#: section 6.3: the parser of Table 4
PARSER = "parsing_wsj"
#: how many checkpoints are averaged: by section 6.1; for the parser, as for base
AVERAGED = {"base": 5, "big": 20, "wsj": 5}
STAGES = ("plan", "prepare", "train", "average", "generate", "score", "pack")


class Reproduction(NamedTuple):
    """What to reproduce, and where."""

    options: Options
    experiment: str
    run: Run
    #: changes to the experiment: the row's, the user's, in this order
    changes: list[str]
    #: of Table 3: the row's name and its entry there, with the paper's figures ppl and bleu
    row: str | None
    paper: dict[str, Any]
    config: Any

    @property
    def size(self) -> str:
        """``base``, ``big`` or, of the parser, ``wsj``."""
        return self.experiment.rpartition("_")[2]

    @property
    def data_bin(self) -> Path:
        """The data to train on."""
        return first_data_bin(self.config.task.data)

    @property
    def stages(self) -> list[str]:
        """Those that it has: Table 3 is without averaging.

        A parser is not packed, and its trees are prepared before, from files of the user's.
        """
        without = ["average", "pack"] if self.row else []
        without = ["plan", "prepare", "pack"] if self.experiment == PARSER else without
        return [stage for stage in STAGES if stage not in without]

    @property
    def subset(self) -> str:
        """Table 3 uses newstest2013, Table 2 newstest2014."""
        return "valid" if self.row else "test"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint to decode: Table 3 is without averaging (6.2)."""
        if self.row:
            return self.run.last
        return self.run.average(AVERAGED[self.size])

    @property
    def is_finished(self) -> bool:
        """Whether the run has all its updates."""
        ending = self.run.ending()
        done = ending.num_updates if ending else 0
        return bool(done >= self.config.optimization.max_update)


def run(options: Options) -> int:
    """Run the stages one after another, or print them."""
    target = find_reproduction(options)
    here = gpus_to_use(target.config)
    on_cpu = bool(target.config.common.cpu)
    gpus = options.gpus or here or (1 if on_cpu else arithmetic.PAPER_GPUS)
    commands = (command_of(target, stage, gpus, here) for stage in pending(target))
    if options.dry_run:
        lines = list(commands)  # the plan is printed first
        print("\n".join(expected_figures(target)))
        print(
            "\n--dry-run runs nothing. Without it, these commands run (the batch size is planned "
            "from the prepared data):"
        )
        return run_commands(lines, dry_run=True)
    if not target.is_finished:
        refuse_without_gpus(target, gpus, gpus if on_cpu else here)
    signals.set_resumable(lambda: True)
    code = run_commands(commands)
    if target.row and not code:
        print("\n".join(table_3(target)))
    return code


# ---- what is asked for ----------------------------------------------------------------------


def find_reproduction(options: Options) -> Reproduction:
    """Return the experiment, row, folder and changes that the arguments name.

    Raises:
        UserError: an unknown name or row, or an invalid change.
    """
    from vaswani.configuration.fairseq_config import read_configuration

    experiment = EXPERIMENTS.get(options.name)
    if experiment and (options.small or options.name != TABLE_4):
        raise UserError(
            "the version with small models is now an experiment: in a clone, run python -m "
            f"experiments {experiment}"
        )
    name = PARSER if options.name == TABLE_4 else file_stem(options.name)
    if name not in (*NAMES, PARSER):
        names = [*(result.replace("_", "-") for result in NAMES), TABLE_4, *FILES]
        raise UserError(
            f"there is no result '{options.name}'{nearest(options.name.replace('_', '-'), names)}: "
            f"give one of {', '.join(names)}"
        )
    folder, own = split_run(options.overrides)
    if any(change.startswith("checkpoint.save_dir=") for change in own):
        raise UserError("checkpoint.save_dir is used by several stages: give run=NAME instead")
    row: str | None = None
    paper: dict[str, Any] = {}
    if options.row:
        name, row, paper = find_row(name, options.row)
    change = [] if row == "big" else paper.get("change", [])  # big is an experiment
    place = f"table3_{file_stem(row)}" if row and change else name
    if options.small:
        raise UserError(
            "--small is no longer supported: for small models, run python -m experiments NAME in "
            f"a clone; to try all stages of {options.name} on a CPU, see {DOCS / 'reproduce.md'}"
        )
    place = folder or place
    changes = last_of_each([*change, *own])
    run = Run(Path(place) if "/" in place else RUNS / place)
    config = read_configuration(find_config(name), changes)
    return Reproduction(options, name, run, changes, row, paper, config)


def find_row(experiment: str, requested: str) -> tuple[str, str, dict[str, Any]]:
    """Return a row of Table 3: its experiment and name, and its changes with the paper's figures.

    The rows "base" and "big" are Table 2's trainings, scored differently; the others are base's.

    Raises:
        UserError: there is no such row of this experiment.
    """
    table_3 = read_yaml(find_config("table3"))
    rows = {file_stem(row).lower(): row for row in table_3["rows"]}
    row = rows.get(file_stem(requested).lower(), "")
    its = table_3["base"].replace("base", row if row == "big" else "base")
    if not row or experiment not in (table_3["base"], its):
        row_names = list(rows.values())
        raise UserError(
            f"{experiment} has no row '{requested}' of Table 3{nearest(requested, row_names)}: the "
            f"rows of {table_3['base']} are {', '.join(row_names)}"
        )
    return its, row, table_3["rows"][row]


def refuse_without_gpus(target: Reproduction, gpus: int, here: int) -> None:
    """Raise UserError if the training would take weeks, or needs other machines as well."""
    if gpus > here > 0:
        raise UserError(
            f"this machine has {here} visible GPUs, not {gpus}: prepare and train on several "
            f"machines (see {DOCS / 'training.md'}), then run the same command again"
        )
    if gpus > here:
        trial = f"see {DOCS / 'reproduce.md'}"
        if target.experiment == PARSER:
            trial = "python -m experiments table4, in a checkout"
        raise UserError(
            "this machine has no GPU, and on CPUs this training takes weeks (--dry-run shows an "
            f"estimate): for a small trial of all stages, run {trial}"
        )


# ---- commands -------------------------------------------------------------------------------


def pending(target: Reproduction) -> Iterator[str]:
    """Yield the stages that are not done; most of them find out themselves."""
    for stage in target.stages:
        if stage == "plan":
            done = target.data_bin.is_dir() or target.is_finished
        else:
            done = stage == "average" and is_averaged(target)
        if not done:
            yield stage


def is_averaged(target: Reproduction) -> bool:
    """Return whether the average exists, and training has not continued since."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        average = describe(target.checkpoint)
        last = describe(target.run.last)
    except (CheckpointError, UserError):
        return False
    return average.averaged > 0 and average.updates >= last.updates


def command_of(target: Reproduction, stage: str, gpus: int, here: int) -> list[str]:
    """Return a stage's command without 'vaswani'; that of 'train' is planned on the data.

    Args:
        target: what is reproduced
        stage: one of ``target.stages``
        gpus: how many to train on
        here: how many this machine has
    """
    subset = ["--subset", target.subset]
    if stage == "plan":
        options = target.options
        words = [target.experiment, *target.changes, "--gpus", str(gpus)]
        if options.memory:
            words += ["--memory", f"{options.memory:.9g}"]
        if options.tokens_per_second:
            words += ["--tokens-per-second", f"{options.tokens_per_second:.9g}"]
        return [stage, *words]
    if stage == "train":
        words = [target.experiment, *batch_of(target, gpus), *target.changes]
        if target.run != Run(RUNS / target.experiment):
            words.append(f"run={target.run}")
        if gpus < here:
            words.append(f"distributed_training.distributed_world_size={gpus}")
        return [stage, *last_of_each(words)]  # the user's, where they set the batch
    recipe = target.experiment.rpartition("_")[0]
    words = {
        "prepare": [recipe, "--out", str(target.data_bin.parent), "--if-missing"],
        "average": [str(target.run), "--last", str(AVERAGED[target.size])],
        "generate": [str(target.checkpoint), *subset],
        "score": [str(target.run), *subset],
        "pack": [str(target.checkpoint)],
    }[stage]
    return [stage, *words]


def batch_of(target: Reproduction, gpus: int) -> list[str]:
    """Print the plan, and return the changes that keep the paper's batch on this hardware.

    A finished run keeps its own batch: scoring it needs no GPU, or may use a different one.
    """
    if target.experiment == PARSER and not target.data_bin.is_dir():
        return []
    if target.is_finished:
        trained = target.run.configuration()
        tokens = trained["dataset"]["max_tokens"]
        accumulated = trained["optimization"]["update_freq"][0]
    else:
        hardware = replace(target.options, gpus=gpus)
        plan = training_plan(target.experiment, target.changes, hardware)
        lines = table(plan).splitlines()[:-2]  # its command is the next
        print("\n".join(["", *lines]))
        tokens, accumulated = plan.batch.max_tokens, plan.batch.update_freq
    return [f"dataset.max_tokens={tokens}", f"optimization.update_freq=[{accumulated}]"]


# ---- results --------------------------------------------------------------------------------


def expected_figures(target: Reproduction) -> list[str]:
    """Return the figures of the paper and of other reports."""
    if target.row:
        line = f"perplexity {target.paper['ppl']}, {target.paper['bleu']} BLEU on newstest2013"
        return [f"expected by Table 3, row {target.row}: {line}, without averaging"]
    if target.experiment == PARSER:
        line = f"F1 {published.WSJ_F1} on section 23, trained on WSJ alone"
        return [f"expected by Table 4: {line}"]
    pair = f"{target.config.task.source_lang}-{target.config.task.target_lang}"
    return published.table(
        published.FIGURES[published.NEWSTEST2014, pair], published.NEWSTEST2014, pair
    )


def table_3(target: Reproduction) -> list[str]:
    """Return a row of Table 3 beside the paper's.

    The paper's BLEU is compared with compound-split BLEU, which the authors' script computes.
    """
    scores = target.run.translations(target.subset).scores()
    validated = [line for line in target.run.statistics() if "valid_ppl" in line]
    split = scores.get("compound_split", {}).get("score")
    measured = {"ppl": validated[-1]["valid_ppl"] if validated else None, "bleu": split}
    lines = ["", f"{f'Table 3, row {target.row}, not averaged':<44}{'paper':>7}{'here':>8}"]
    for key, label in (("ppl", "perplexity per subword"), ("bleu", "compound-split BLEU")):
        shown = "-" if measured[key] is None else f"{measured[key]:.2f}"
        lines.append(f"{label:<44}{target.paper[key]:>7}{shown:>8}")
    return lines
