"""The paper's results by name, and the commands that reproduce one (``vaswani reproduce``)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from vaswani.common.errors import UserError, nearest
from vaswani.common.files import read_json
from vaswani.common.options import argument, option, to_argv
from vaswani.experiment.find import DOCS, file_stem, find_config, read_yaml
from vaswani.experiment.run_record import FINISHED, last_checkpoint, split_run
from vaswani.paper.small_tables import FILE, TABLES
from vaswani.planning.training_plan import Hardware, table, training_plan

NAMES = [f"wmt14_en_{target}_{size}" for target in ("de", "fr") for size in ("base", "big")]
#: section 6.3: the parser of Table 4
TABLE_4, PARSER = "table4", "parsing_wsj"
#: tables and figures that are made in other ways
OTHERS = ("table1", *TABLES, "figures")
#: how many checkpoints are averaged: by section 6.1; for the parser, as for base
AVERAGED = {"base": 5, "big": 20, "wsj": 5}
STAGES = ("plan", "prepare", "train", "average", "generate", "score", "pack")
RECIPES = ("paper", "t2t", "fairseq")
#: types of the words' BPE with table4 --small; the paper's 16K are for 40,000 trees
SMALL_BPE = "4000"
#: options that name the parser's files
TREES = ("train", "valid", "test")
#: options of these names go on to 'vaswani prepare', and to 'vaswani plan'
TO_PREPARE = ("archives", "manifest", "workers", "limit", "test_sets", *TREES)
TO_PLAN = ("memory", "tokens_per_second")
#: headings of --help, beside TABLE_4
DATA, PLAN = "data", "plan"


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Options of ``vaswani reproduce NAME``: which result, which stages, on what."""

    name: str = argument("NAME", "wmt14-en-de-base, … (see above)")
    overrides: List[str] = argument(
        "key=value",
        "changes, as for 'vaswani train'; run=NAME uses a folder other than the experiment's",
        default=[],
    )
    row: Optional[str] = option(metavar="ROW", help="a row of Table 3, such as A-h1")
    gpus: Optional[int] = option(metavar="N", help="use N GPUs (default: all of this machine)")
    start: Optional[str] = option(
        flag="--from", metavar="STAGE", help=f"redo from here on: {', '.join(STAGES)}"
    )
    dry_run: bool = option(False, "print the plan and commands, run nothing")
    recipe: str = option("paper", "data recipe (default: paper)", choices=RECIPES, group=DATA)
    data: Optional[str] = option(
        metavar="DIR", help="the data's folder (default: data/wmt14_en_de, …)", group=DATA
    )
    archives: Optional[str] = option(
        metavar="DIR", help="downloads (default: data/archives)", group=DATA
    )
    manifest: Optional[str] = option(metavar="FILE", help="other URLs for the archives", group=DATA)
    workers: Optional[int] = option(
        metavar="N", help="processes for 'prepare' (default: all cores)", group=DATA
    )
    limit: Optional[int] = option(
        metavar="PAIRS", help="a trial with this many training pairs", group=DATA
    )
    test_sets: Optional[str] = option(
        metavar="WHERE",
        help="archives or sacrebleu (default: archives)",
        choices=["archives", "sacrebleu"],
        group=DATA,
    )
    train: Optional[str] = option(
        metavar="FILE", help="the treebank's sections 02-21", group=TABLE_4
    )
    valid: Optional[str] = option(metavar="FILE", help="its section 22", group=TABLE_4)
    test: Optional[str] = option(metavar="FILE", help="its section 23", group=TABLE_4)
    small: bool = option(False, "a small model, on any trees: hours on a CPU", group=TABLE_4)
    memory: Optional[float] = option(metavar="GB", help="memory per GPU (default: 16)", group=PLAN)
    tokens_per_second: Optional[float] = option(
        metavar="X", help="if known, to estimate hours", group=PLAN
    )


class Reproduction(NamedTuple):
    """What to reproduce, and where. ``row``: a row of Table 3, or None for Tables 2 and 4."""

    experiment: str
    size: str
    row: Optional[str]
    run: Path
    data: Path
    #: changes to the experiment: the recipe's, the row's, the user's, in this order
    changes: List[str]
    #: the paper's figures for the row: ppl, bleu
    paper: Dict[str, Any]
    config: Any
    options: ResultOptions

    @property
    def stages(self) -> List[str]:
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


# ---- what is asked for ----------------------------------------------------------------------


def find_reproduction(options: ResultOptions) -> Reproduction:
    """The experiment, the row, the folders and the changes that the arguments name.

    Raises:
        UserError: an unknown name or row, or an invalid change.
    """
    from vaswani.experiment.fairseq_config import experiment_config

    name, row = PARSER if options.name == TABLE_4 else file_stem(options.name), None
    if name not in (*NAMES, PARSER):
        known = [*(known.replace("_", "-") for known in NAMES), TABLE_4, *OTHERS]
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
    change: List[str] = []
    paper: Dict[str, Any] = {}
    if options.row:
        name, row, change, paper = find_row(name, options.row)
    recipe = "" if options.recipe == "paper" or name == PARSER else f"_{options.recipe}"
    place = Path(
        folder or (f"table3_{file_stem(row)}{recipe}" if row and change else name + recipe)
    )
    place = place if "/" in str(place) else Path("runs") / place
    data = Path(options.data or data_folder(name, options.recipe))
    changes = [f"task.data={data}/data-bin"] if options.data or recipe else []
    changes += [*change, *own]
    config = experiment_config(find_config(name), changes)
    return Reproduction(
        name, name.rpartition("_")[2], row, place, data, changes, paper, config, options
    )


def smaller(name: str, options: ResultOptions) -> ResultOptions:
    """The options of ``table4 --small``: the changes of ``configs/small_tables.yaml``, own folders.

    Raises:
        UserError: it is another result, which has no small form.
    """
    if name != PARSER:
        raise UserError(
            f"--small is for {TABLE_4} and the comparisons ({', '.join(TABLES)}); to try all "
            f"stages of {options.name} on a CPU, see {DOCS / 'reproduce.md'}"
        )
    folder = f"{TABLE_4}_small"
    changes = read_yaml(find_config(FILE))[TABLE_4]["change"]
    overrides = [f"run={folder}", *changes, *options.overrides]
    return replace(options, data=options.data or f"data/{folder}", overrides=overrides)


def find_row(name: str, requested: str) -> Tuple[str, str, List[str], Dict[str, Any]]:
    """A row of Table 3: its experiment, its name, its changes, the paper's figures.

    The rows "base" and "big" are Table 2's trainings, scored differently.

    Raises:
        UserError: there is no such row, or it belongs to another experiment.
    """
    table = read_rows()
    rows = {file_stem(row).lower(): row for row in table["rows"]}
    row = rows.get(file_stem(requested).lower())
    if row is None:
        raise UserError(
            f"Table 3 has no row '{requested}'{nearest(requested, list(table['rows']))}; "
            f"rows are {', '.join(table['rows'])}"
        )
    big = table["base"].replace("base", "big")
    if name not in (table["base"], big) or (name == big and row != "big"):
        raise UserError(f"row {row} of Table 3 is for {table['base']}, not for {name}")
    if row == "big":
        return big, row, [], table["rows"][row]
    return table["base"], row, table["rows"][row]["change"], table["rows"][row]


def read_rows() -> Dict[str, Any]:
    """Table 3: ``base``, the experiment of its rows, and ``rows``."""
    return read_yaml(find_config("table3"))


def is_trained(target: Reproduction) -> bool:
    """Whether the run has all its updates."""
    done = read_json(target.run / FINISHED).get("num_updates", 0)
    return bool(done >= target.config.optimization.max_update)


# ---- commands -------------------------------------------------------------------------------


def command_lines(
    target: Reproduction, batch: List[str], gpus: int, here: int
) -> Dict[str, List[str]]:
    """Each stage's command line.

    Args:
        target: what to reproduce
        batch: the changes that set an update's batch (``batch_options``)
        gpus: how many to train on
        here: how many this machine has
    """
    options, run_name, subset = target.options, str(target.run), ["--subset", target.subset]
    train = ["train", target.experiment, *batch, *target.changes]
    if target.run != Path("runs") / target.experiment:
        train.append(f"run={target.run}")
    if gpus < here:
        train.append(f"distributed_training.distributed_world_size={gpus}")
    plan = ["plan", target.experiment, *target.changes, "--gpus", str(gpus)]
    prepare = ["prepare", data_recipe(target.experiment, options.recipe)]
    prepare += ["--bpe", SMALL_BPE] if options.small else []
    prepare += ["--out", options.data] if options.data else []
    first = "text" if target.experiment == PARSER else "raw"
    prepare += ["--from", first] if options.start in ("plan", "prepare") else []
    unnamed = [name for name in TREES if not getattr(options, name)]
    if target.experiment == PARSER:
        prepare += [word for name in unnamed for word in (f"--{name}", "FILE")]
    arguments = {
        "plan": [*plan, *to_argv(options, TO_PLAN)],
        "prepare": [*prepare, *to_argv(options, TO_PREPARE)],
        "train": train,
        "average": ["average", run_name, "--last", str(AVERAGED[target.size])],
        "generate": ["generate", str(target.checkpoint), *subset],
        "score": ["score", run_name, *subset],
        "pack": ["pack", str(target.checkpoint)],
    }
    return {stage: ["vaswani", *words] for stage, words in arguments.items()}


def batch_options(max_tokens: int, update_freq: int) -> List[str]:
    """The changes that set an update's batch."""
    return [f"dataset.max_tokens={max_tokens}", f"optimization.update_freq=[{update_freq}]"]


def data_recipe(experiment: str, variant: str) -> str:
    """The name by which 'vaswani prepare' knows the text's recipe."""
    name = experiment if experiment == PARSER else experiment.rpartition("_")[0]
    return name + ("" if variant == "paper" else f"_{variant}")


def data_folder(experiment: str, variant: str) -> str:
    """Where 'vaswani prepare' puts what that recipe makes."""
    return "data/trees" if experiment == PARSER else f"data/{data_recipe(experiment, variant)}"


def plan_on(target: Reproduction, gpus: int) -> Dict[str, Any]:
    """The result of ``vaswani plan``, measured on the data if it exists."""
    given = {name: getattr(target.options, name) for name in TO_PLAN}
    return training_plan(target.experiment, target.changes, Hardware(gpus=gpus, **given))


def plan_table(plan: Dict[str, Any]) -> str:
    """The plan without its command, which is listed among the others."""
    return table(plan).rpartition("\n\n")[0]
