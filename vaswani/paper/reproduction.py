"""Tables 2 to 4 of the paper at full size: a result by its name, and the commands that make it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common import signals
from vaswani.common.artifact import is_report, keep, output_file, writing
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, locked, read_json
from vaswani.common.options import argument, option, to_argv
from vaswani.decoding.translations import translations_of
from vaswani.experiment.checkpoints import describe
from vaswani.experiment.find import DOCS, file_stem, find_config, read_yaml
from vaswani.experiment.launch import gpus_to_use
from vaswani.experiment.run_record import (
    FINISHED,
    STATISTICS,
    last_checkpoint,
    split_run,
    statistics,
)
from vaswani.paper import FILES
from vaswani.paper.runner import run_commands
from vaswani.planning import arithmetic
from vaswani.planning.training_plan import Hardware, table, training_plan
from vaswani.scoring import published

NAMES = [f"wmt14_en_{target}_{size}" for target in ("de", "fr") for size in ("base", "big")]
#: section 6.3: the parser of Table 4
TABLE_4, PARSER = "table4", "parsing_wsj"
#: how many checkpoints are averaged: by section 6.1; for the parser, as for base
AVERAGED = {"base": 5, "big": 20, "wsj": 5}
STAGES = ("plan", "prepare", "train", "average", "generate", "score", "pack")
#: options of these names go on to 'vaswani prepare', and to 'vaswani plan'
TO_PREPARE = ("archives", "manifest", "workers", "limit", "train", "valid", "test")
TO_PLAN = ("memory", "tokens_per_second")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``vaswani reproduce NAME``: which result, which stages, on what."""

    name: str = argument("NAME", "wmt14-en-de-base, … (see above)")
    overrides: list[str] = argument(
        "key=value",
        "changes, as for 'vaswani train'; run=NAME uses a folder other than the experiment's",
        default=[],
    )
    row: str | None = option(metavar="ROW", help="a row of Table 3, such as A-h1")
    gpus: int | None = option(metavar="N", help="use N GPUs (default: all of this machine)")
    start: str | None = option(flag="--from", choices=STAGES, help="redo from here on")
    dry_run: bool = option(False, "print the plan and commands, run nothing")
    recipe: str = option(
        "paper", "data recipe (default: paper)", choices=["paper", "t2t", "fairseq"], group="data"
    )
    data: str | None = option(
        metavar="DIR", help="the data's folder (default: data/wmt14_en_de, …)", group="data"
    )
    archives: str | None = option(
        metavar="DIR", help="downloads (default: data/archives)", group="data"
    )
    manifest: str | None = option(metavar="FILE", help="other URLs for the archives", group="data")
    workers: int | None = option(
        metavar="N", help="processes for 'prepare' (default: all cores)", group="data"
    )
    limit: int | None = option(
        metavar="PAIRS", help="a trial with this many training pairs", group="data"
    )
    train: str | None = option(metavar="FILE", help="the treebank's sections 02-21", group=TABLE_4)
    valid: str | None = option(metavar="FILE", help="its section 22", group=TABLE_4)
    test: str | None = option(metavar="FILE", help="its section 23", group=TABLE_4)
    small: bool = option(False, "a small model, on any trees: hours on a CPU", group=TABLE_4)
    memory: float | None = option(metavar="GB", help="memory per GPU (default: 16)", group="plan")
    tokens_per_second: float | None = option(
        metavar="X", help="if known, to estimate hours", group="plan"
    )


class Reproduction(NamedTuple):
    """What to reproduce, and where."""

    options: Options
    experiment: str
    run: Path
    data: Path
    #: changes to the experiment: the recipe's, the row's, the user's, in this order
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
    def stages(self) -> list[str]:
        """Those that it has: Table 3 is without averaging.

        A parser is not packed, and before its trees are prepared nothing is known to plan with.
        """
        without = ("average", "pack") if self.row else ()
        without = ("plan", "pack") if self.experiment == PARSER else without
        return [stage for stage in STAGES if stage not in without]

    @property
    def subset(self) -> str:
        """Table 3 uses newstest2013, Table 2 newstest2014."""
        return "valid" if self.row else "test"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint to decode: Table 3 is without averaging (6.2)."""
        if self.row:
            return last_checkpoint(self.run)
        return self.run / "checkpoints" / f"checkpoint_average_last{AVERAGED[self.size]}.pt"

    @property
    def is_finished(self) -> bool:
        """Whether the run has all its updates."""
        done = read_json(self.run / FINISHED).get("num_updates", 0)
        return bool(done >= self.config.optimization.max_update)


def run(options: Options) -> int:
    """Run the stages one after another, or say what they would be."""
    target = find_reproduction(options)
    stages = target.stages
    if options.start:
        first = STAGES.index(options.start)
        stages = [stage for stage in stages if stage in STAGES[first:]]
    here = gpus_to_use(target.config)
    on_cpu = bool(target.config.common.cpu)
    gpus = options.gpus or here or (1 if on_cpu else arithmetic.PAPER_GPUS)
    commands = (command_of(target, stage, gpus, here) for stage in pending(target, stages))
    if options.dry_run:
        lines = list(commands)  # the plan is printed first
        print("\n".join(expected(target)))
        print("\nNothing is done now. Without --dry-run (the batch is planned on prepared data):")
        return run_commands(lines, dry_run=True)
    if "train" in stages and (options.start in STAGES[:3] or not target.is_finished):
        refuse_without_gpus(target, gpus, gpus if on_cpu else here)
    if options.start:
        set_aside(target, stages)
    else:
        signals.set_resumable(lambda: True)
    code = run_commands(commands)
    if target.row and not code:
        print("\n".join(table_3(target)))
    return code


# ---- what is asked for ----------------------------------------------------------------------


def find_reproduction(options: Options) -> Reproduction:
    """The experiment, the row, the folders and the changes that the arguments name.

    Raises:
        UserError: an unknown name or row, or an invalid change.
    """
    from vaswani.experiment.fairseq_config import experiment_config

    name = PARSER if options.name == TABLE_4 else file_stem(options.name)
    if name not in (*NAMES, PARSER):
        known = [*(known.replace("_", "-") for known in NAMES), TABLE_4, *FILES]
        raise UserError(
            f"there is no result '{options.name}'{nearest(options.name.replace('_', '-'), known)}; "
            f"there are {', '.join(known)}"
        )
    if options.small:
        options = smaller(name, options)
    folder, own = split_run(options.overrides)
    for key, instead in (("task.data", "--data DIR"), ("checkpoint.save_dir", "run=NAME")):
        if any(change.startswith(f"{key}=") for change in own):
            raise UserError(f"{key} is used by several stages: give {instead} instead")
    row: str | None = None
    paper: dict[str, Any] = {}
    if options.row:
        name, row, paper = find_row(name, options.row)
    change = [] if row == "big" else paper.get("change", [])  # big is an experiment
    recipe = "" if options.recipe == "paper" or name == PARSER else f"_{options.recipe}"
    place = folder or (f"table3_{file_stem(row)}{recipe}" if row and change else name + recipe)
    place = place if "/" in place else f"runs/{place}"
    made = "trees" if name == PARSER else data_recipe(name, options.recipe)
    data = options.data or f"data/{made}"
    place_of_data = [f"task.data={data}/data-bin"] if options.data or recipe else []
    changes = [*place_of_data, *change, *own]
    config = experiment_config(find_config(name), changes)
    return Reproduction(options, name, Path(place), Path(data), changes, row, paper, config)


def smaller(name: str, options: Options) -> Options:
    """The options of ``table4 --small``: the changes of ``configs/small_tables.yaml``, own folders.

    Raises:
        UserError: it is another result, which has no small form.
    """
    if name != PARSER:
        raise UserError(
            f"--small is for {TABLE_4} and the comparisons; to try all stages of {options.name} on "
            f"a CPU, see {DOCS / 'reproduce.md'}"
        )
    folder = f"{TABLE_4}_small"
    changes = read_yaml(find_config("small_tables"))[TABLE_4]["change"]
    overrides = [f"run={folder}", *changes, *options.overrides]
    return replace(options, data=options.data or f"data/{folder}", overrides=overrides)


def find_row(experiment: str, requested: str) -> tuple[str, str, dict[str, Any]]:
    """A row of Table 3: its experiment and name, and its changes with the paper's figures.

    The rows "base" and "big" are Table 2's trainings, scored differently; the others are base's.

    Raises:
        UserError: there is no such row of this experiment.
    """
    table_3 = read_yaml(find_config("table3"))
    rows = {file_stem(row).lower(): row for row in table_3["rows"]}
    row = rows.get(file_stem(requested).lower(), "")
    its = table_3["base"].replace("base", row if row == "big" else "base")
    if not row or experiment not in (table_3["base"], its):
        known = list(rows.values())
        raise UserError(
            f"{experiment} has no row '{requested}' of Table 3{nearest(requested, known)}; "
            f"{table_3['base']} has {', '.join(known)}"
        )
    return its, row, table_3["rows"][row]


def data_recipe(experiment: str, variant: str) -> str:
    """The name by which 'vaswani prepare' knows the text's recipe."""
    name = experiment if experiment == PARSER else experiment.rpartition("_")[0]
    return name + ("" if variant == "paper" else f"_{variant}")


def refuse_without_gpus(target: Reproduction, gpus: int, here: int) -> None:
    """Raises UserError if the training would take weeks, or needs other machines as well."""
    if gpus > here > 0:
        raise UserError(
            f"this machine has {here} visible GPUs, not {gpus}: prepare and train on several "
            f"machines (see {DOCS / 'training.md'}), then run the same command with --from average"
        )
    if gpus > here:
        trial = f"see {DOCS / 'reproduce.md'}"
        if target.experiment == PARSER:
            trial = "the same with --small --train FILE --valid FILE --test FILE"
        raise UserError(
            "there is no GPU here, without which this takes weeks (--dry-run says more); for a "
            f"small trial of all stages on a CPU: {trial}"
        )


# ---- commands -------------------------------------------------------------------------------


def pending(target: Reproduction, stages: list[str]) -> Iterator[str]:
    """The stages that are not done; most of them find out themselves."""
    for stage in stages:
        if stage == "plan":
            done = (target.data / "data-bin").is_dir() or target.is_finished
        else:
            done = stage == "average" and not target.options.start and is_averaged(target)
        if not done:
            yield stage


def is_averaged(target: Reproduction) -> bool:
    """Whether the average exists, and training has not continued since."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        average, last = describe(target.checkpoint), describe(last_checkpoint(target.run))
    except (CheckpointError, UserError):
        return False
    return average.averaged > 0 and average.updates >= last.updates


def command_of(target: Reproduction, stage: str, gpus: int, here: int) -> list[str]:
    """The command of a stage, without 'vaswani'; that of 'train' is planned on the data.

    Args:
        gpus: how many to train on
        here: how many this machine has
    """
    options, subset = target.options, ["--subset", target.subset]
    if stage == "plan":
        words = [target.experiment, *target.changes, "--gpus", str(gpus)]
        return [stage, *words, *to_argv(options, TO_PLAN)]
    if stage == "prepare":
        return prepare_command(target)
    if stage == "train":
        words = [target.experiment, *batch_of(target, gpus), *target.changes]
        if target.run != Path("runs") / target.experiment:
            words.append(f"run={target.run}")
        if gpus < here:
            words.append(f"distributed_training.distributed_world_size={gpus}")
        return [stage, *words]
    words = {
        "average": [str(target.run), "--last", str(AVERAGED[target.size])],
        "generate": [str(target.checkpoint), *subset],
        "score": [str(target.run), *subset],
        "pack": [str(target.checkpoint)],
    }[stage]
    return [stage, *words]


def prepare_command(target: Reproduction) -> list[str]:
    """The command of 'prepare', which refuses a parser without its trees."""
    options = target.options
    words = ["prepare", data_recipe(target.experiment, options.recipe)]
    words += ["--bpe", "4000"] if options.small else []  # the paper's 16K are for 40,000 trees
    words += ["--out", options.data] if options.data else []
    if options.start in ("plan", "prepare"):
        words += ["--from", "text" if target.experiment == PARSER else "raw"]
    return [*words, *to_argv(options, TO_PREPARE)]


def batch_of(target: Reproduction, gpus: int) -> list[str]:
    """Changes that keep the paper's batch on this hardware; prints the plan.

    A finished run keeps its own batch: scoring it needs no GPU, or may use a different one.
    """
    if target.options.small or (
        target.experiment == PARSER and not target.data.joinpath("data-bin").is_dir()
    ):
        return []
    if target.is_finished:
        trained = read_yaml(target.run / "config.yaml")
        tokens = trained["dataset"]["max_tokens"]
        accumulated = trained["optimization"]["update_freq"][0]
    else:
        chosen = {name: getattr(target.options, name) for name in TO_PLAN}
        hardware = Hardware(gpus=gpus, **chosen)
        plan = training_plan(target.experiment, target.changes, hardware)
        lines = table(plan).splitlines()[:-2]  # its command is the next
        print("\n".join(["", *lines]))
        tokens, accumulated = plan["max_tokens"], plan["update_freq"]
    return [f"dataset.max_tokens={tokens}", f"optimization.update_freq=[{accumulated}]"]


def set_aside(target: Reproduction, stages: list[str]) -> None:
    """Let the stages be redone. A training is days of work: its folder is renamed and kept."""
    if "train" in stages and target.run.is_dir():
        with locked(target.run / ".lock", f"{target.run} is being trained"):
            keep(target.run, "will be trained again")
    if "generate" in stages:
        translations_of(target.run / "eval", target.subset).redo()


# ---- results --------------------------------------------------------------------------------


def expected(target: Reproduction) -> list[str]:
    """The paper's figures, and what others report."""
    if target.row:
        line = f"perplexity {target.paper['ppl']}, {target.paper['bleu']} BLEU on newstest2013"
        return [f"expected by Table 3, row {target.row}: {line}, without averaging"]
    if target.experiment == PARSER:
        unlike = ", not by a small model" if target.options.small else ""
        line = f"F1 {published.WSJ_F1} on section 23, trained on WSJ alone{unlike}"
        return [f"expected by Table 4: {line}"]
    pair = f"{target.config.task.source_lang}-{target.config.task.target_lang}"
    return published.table(
        published.FIGURES[published.NEWSTEST2014, pair], published.NEWSTEST2014, pair
    )


def table_3(target: Reproduction) -> list[str]:
    """A row of Table 3 beside the paper's; also written to table3.json.

    The paper's BLEU is compared with compound-split BLEU, which the authors' script computes.
    """
    scores = read_json(target.run / "eval" / f"{target.subset}.score.json")
    validated = [line for line in statistics(target.run / STATISTICS) if "valid_ppl" in line]
    split = scores.get("compound_split", {}).get("score")
    measured = {"ppl": validated[-1]["valid_ppl"] if validated else None, "bleu": split}
    path = target.run / "eval" / "table3.json"
    path = output_file(path, may_replace=lambda file: is_report(file, "paper"))
    with writing(path), atomic_write(path) as stream:
        report = {"row": target.row, "paper": target.paper, "here": measured}
        json.dump({**report, "sentences": scores["lines"]}, stream, indent=1)
    lines = ["", f"{f'Table 3, row {target.row}, not averaged':<44}{'paper':>7}{'here':>8}"]
    for key, label in (("ppl", "perplexity per subword"), ("bleu", "compound-split BLEU")):
        shown = "-" if measured[key] is None else f"{measured[key]:.2f}"
        lines.append(f"{label:<44}{target.paper[key]:>7}{shown:>8}")
    return lines
