"""Reproduces a result of the paper: plan → prepare → train → average → generate → score → pack.

    vaswani reproduce wmt14-en-de-base --dry-run       the commands, disk, hours, operations, BLEU
    vaswani reproduce wmt14-en-de-base                 Table 2, on the GPUs of this machine
    vaswani reproduce wmt14-en-de-base --row A-h1      a row of Table 3: newstest2013, not averaged
    vaswani reproduce wmt14-en-de-base --from generate
    vaswani reproduce table1                           layers compared: counted, measured
    vaswani reproduce table2 --small                   systems compared (also table2-demo, table3,
                                                       equal-updates)
    vaswani reproduce table4 --train 02-21.ptb --valid 22.ptb --test 23.ptb
                                                       parsing; --small: a small model, any trees
    vaswani reproduce figures MODEL                    Figures 3 to 5: where a model's heads look

Names: wmt14-en-de-base, wmt14-en-de-big, wmt14-en-fr-base, wmt14-en-fr-big. Each stage is its own
command, which is printed; it continues unfinished work and skips what is done. See
docs/reproduce.md.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import List, Sequence, Union

from vaswani.commands import attention
from vaswani.common import signals
from vaswani.common.artifact import is_report, keep, output_file, writing
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, locked, read_json
from vaswani.common.options import stage_named
from vaswani.data.test_sets import NEWSTEST2013, NEWSTEST2014, SENTENCES
from vaswani.decoding.translations import Translations
from vaswani.experiment.checkpoints import describe
from vaswani.experiment.find import DOCS, read_yaml
from vaswani.experiment.launch import gpus_to_use
from vaswani.experiment.run_record import STATISTICS, last_checkpoint, statistics
from vaswani.paper import figures, small_tables, table1
from vaswani.paper.figures import FiguresOptions
from vaswani.paper.reproduction import (
    PARSER,
    STAGES,
    TABLE_4,
    TREES,
    Reproduction,
    ResultOptions,
    batch_options,
    command_lines,
    find_reproduction,
    is_trained,
    plan_on,
    plan_table,
)
from vaswani.paper.small_tables import SmallTableOptions
from vaswani.paper.table1 import Table1Options
from vaswani.planning import arithmetic
from vaswani.scoring import published

#: seconds after which an interrupted stage is told to stop as well
PATIENCE = 10
#: a training of minutes on a CPU, to see all the stages
TRIAL = (
    "--data data/trial --limit 20000 run=trial common.cpu=true task.batch_tokens=1000 "
    "optimization.max_update=50 checkpoint.save_interval_updates=10"
)
Options = ResultOptions
AnyOptions = Union[ResultOptions, Table1Options, SmallTableOptions, FiguresOptions]
#: the tables and figures with options of their own
FORMS = {
    "table1": Table1Options,
    "figures": FiguresOptions,
    **dict.fromkeys(small_tables.TABLES, SmallTableOptions),
}


def options_for(words: Sequence[str]) -> type:
    """The dataclass of options for a command line: that of the table or the result it names."""
    return next((FORMS[word] for word in words if word in FORMS), ResultOptions)


def run(options: AnyOptions) -> int:
    """Reproduce a table, or a result."""
    if isinstance(options, Table1Options):
        return table1.run(options)
    if isinstance(options, FiguresOptions):
        return figures.run(options, attention.translator_of)
    if isinstance(options, SmallTableOptions):
        return small_tables.run(options, run_verb)
    return run_result(options)


def run_result(options: ResultOptions) -> int:
    """Run the stages one after another, or say what they would be."""
    target = find_reproduction(options)
    stages = target.stages
    first = stage_named(options.start, stages) if options.start else 0
    local_gpus = gpus_here(target)
    if options.dry_run:
        planned = 1 if on_cpu(target) else arithmetic.PAPER_GPUS
        show(target, stages[first:], options.gpus or local_gpus or planned, local_gpus)
        return 0
    if target.experiment == PARSER and "prepare" in stages[first:]:
        refuse_without_trees(target)
    if "train" in stages[first:] and (options.start in STAGES[:3] or not is_trained(target)):
        refuse_without_gpus(target, local_gpus)
    if options.start:
        set_aside(target, stages[first:])
    for stage in stages[first:]:
        code = run_stage(target, stage, options.gpus or local_gpus or 1, local_gpus)
        if code:
            return code
        signals.continues_if(lambda: not options.start)
    if target.row:
        print("\n".join(table_3(target)))
    return 0


# ---- GPUs -----------------------------------------------------------------------------------


def gpus_here(target: Reproduction) -> int:
    """The number of GPUs visible on this machine; 0 if a CPU was asked for."""
    return gpus_to_use(target.config)


def on_cpu(target: Reproduction) -> bool:
    """Whether the user asked for the CPU."""
    return bool(target.config.common.cpu)


def refuse_without_trees(target: Reproduction) -> None:
    """Raises UserError if a file of trees is not named, or not there: training takes long."""
    for name in TREES:
        path = getattr(target.options, name)
        if not path or not Path(path).is_file():
            found = f"there is no file {path}" if path else f"{TABLE_4} has no --{name} FILE"
            raise UserError(
                f"{found}: give --train, --valid and --test FILE, trees in Penn brackets, one "
                "whole tree a line"
            )


def refuse_without_gpus(target: Reproduction, local_gpus: int) -> None:
    """Raises UserError if the training would take weeks, or needs other machines as well."""
    requested = target.options.gpus or local_gpus
    if requested > local_gpus and local_gpus:
        raise UserError(
            f"this machine has {local_gpus} visible GPUs, not {requested}: prepare and train on "
            f"several machines (see {DOCS / 'training.md'}), then run the same command with "
            "--from average"
        )
    if local_gpus or on_cpu(target):
        return
    if target.experiment == PARSER:
        raise UserError(
            "there is no GPU here, which a model of this size needs; for a small one on a CPU: "
            f"vaswani reproduce {TABLE_4} --small --train FILE --valid FILE --test FILE"
        )
    plan = plan_on(target, target.options.gpus or arithmetic.PAPER_GPUS)
    hours = f"{plan['seconds'] / 3600:,.0f} hours on" if plan["seconds"] else "long even on"
    name = target.experiment.replace("_", "-")
    raise UserError(
        f"there is no GPU here, and this takes {hours} {plan['gpus']} of the paper's P100 "
        f"({plan['flops']:.1e} operations; --dry-run says more); for a small trial of all "
        f"stages on a CPU: vaswani reproduce {name} {TRIAL}"
    )


# ---- stages ---------------------------------------------------------------------------------


def set_aside(target: Reproduction, stages: List[str]) -> None:
    """Let the stages be redone. A training is days of work: its folder is renamed and kept."""
    if "train" in stages and target.run.is_dir():
        with locked(target.run / ".lock", f"{target.run} is being trained"):
            keep(target.run, "will be trained again")
    if "generate" in stages:
        Translations(target.run / "eval", target.subset).redo()


def run_stage(target: Reproduction, stage: str, gpus: int, local_gpus: int) -> int:
    """Run one stage; returns its exit code. A stage that fails has said why."""
    if stage == "plan":
        if not target.data.joinpath("data-bin").is_dir() and not is_trained(target):
            print(plan_table(plan_on(target, gpus)), file=sys.stderr)
        return 0
    if stage == "average" and not target.options.start and is_averaged(target):
        print(f"{target.checkpoint}: already averaged", file=sys.stderr)
        return 0
    planned = stage == "train" and not target.options.small
    chosen = batch_of(target, gpus) if planned else []
    code = run_verb(command_lines(target, chosen, gpus, local_gpus)[stage][1:])
    if code:
        same = f"the same command {'without --from ' if target.options.start else ''}continues"
        # what the stage refused (1 or 2) it would refuse again
        then = "" if code in (1, 2) else f"; {same} from there"
        print(f"reproduce: the stage '{stage}' ended with exit code {code}{then}", file=sys.stderr)
    return abs(code)


def run_verb(words: List[str]) -> int:
    """The exit code of ``vaswani VERB …``, which is printed."""
    print(f"\n== {words[0]}: {shlex.join(['vaswani', *words])}", file=sys.stderr, flush=True)
    return run_command([sys.executable, "-m", "vaswani", *words])


def run_command(command: List[str]) -> int:
    """A command's exit code. If interrupted with us, it is waited for: it may be saving.

    Interrupted again, it is killed.
    """
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:  # perhaps only we were told to stop
            process.terminate()
            process.wait()
        raise
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()


def is_averaged(target: Reproduction) -> bool:
    """Whether the average exists, and training has not continued since."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        average, last = describe(target.checkpoint), describe(last_checkpoint(target.run))
    except (CheckpointError, UserError):
        return False
    return average.averaged > 0 and average.updates >= last.updates


# ---- the plan -------------------------------------------------------------------------------


def batch_of(target: Reproduction, gpus: int) -> List[str]:
    """Changes that keep the paper's batch on this hardware.

    A finished run keeps its own batch: scoring it needs no GPU, or may use a different one.
    """
    if is_trained(target):
        trained = read_yaml(target.run / "config.yaml")
        return batch_options(
            trained["dataset"]["max_tokens"], trained["optimization"]["update_freq"][0]
        )
    plan = plan_on(target, gpus)
    print(f"\n{plan_table(plan)}", file=sys.stderr)
    return batch_options(plan["max_tokens"], plan["update_freq"])


def show(target: Reproduction, stages: List[str], gpus: int, local_gpus: int) -> None:
    """Everything that would be done, what it takes, and what results to expect."""
    plan, batch = None, []
    prepared = target.data.joinpath("data-bin").is_dir()
    if not target.options.small and (target.experiment != PARSER or prepared):
        plan = plan_on(target, gpus)
        batch = batch_options(plan["max_tokens"], plan["update_freq"])
    lines = command_lines(target, batch, gpus, local_gpus)
    if plan:
        print(plan_table(plan))
    print("\n".join(expected(target)))
    print("\nNothing is done now. Without --dry-run:")
    for stage in stages:
        print(f"  {stage:<9} {shlex.join(lines[stage])}")
    if "train" in stages and not target.options.small and not (plan and plan["data"]):
        print("The batch of 'train' is planned from the data that 'prepare' makes.")


def expected(target: Reproduction) -> List[str]:
    """The paper's figures, and what others report."""
    if target.row:
        line = f"perplexity {target.paper['ppl']}, {target.paper['bleu']} BLEU on newstest2013"
        return [f"expected by Table 3, row {target.row}: {line}, without averaging"]
    if target.options.small:
        return [f"Table 4's F1 of {published.WSJ_F1} is not for a small model or other trees"]
    if target.experiment == PARSER:
        return [f"expected by Table 4: F1 {published.WSJ_F1} on section 23, trained on WSJ alone"]
    pair = target.config.task.source_lang + "-" + target.config.task.target_lang
    figures = published.FIGURES[NEWSTEST2014, pair]
    paper = figures[0]
    bleu = f"{getattr(paper, target.size)} BLEU on newstest2014 (scored by: {paper.scorer})"
    lines = [f"expected by {paper.source}: {bleu}"]
    others = [getattr(f, target.size) for f in figures if f.scorer == "sacreBLEU"]
    others = sorted({str(bleu) for bleu in others if bleu})
    if others:
        lowest, highest = others[0], others[-1]
        span = lowest if lowest == highest else f"{lowest} to {highest}"
        lines.append(f"others report {span} by sacreBLEU")
    return lines


# ---- Table 3 --------------------------------------------------------------------------------


def table_3(target: Reproduction) -> List[str]:
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
    known = SENTENCES[NEWSTEST2013]
    lines = ["", f"{f'Table 3, row {target.row}, not averaged':<44}{'paper':>7}{'here':>8}"]
    for key, label in (("ppl", "perplexity per subword"), ("bleu", "compound-split BLEU")):
        shown = "-" if measured[key] is None else f"{measured[key]:.2f}"
        lines.append(f"{label:<44}{target.paper[key]:>7}{shown:>8}")
    if scores["lines"] != known:
        lines.append(f"(on {scores['lines']:,} sentences: newstest2013 has {known:,})")
    return lines
