"""A table of ``vaswani reproduce … --small`` as a record: scores, operations, logs, a picture.

    vaswani reproduce table2-demo --small && python -m benchmarks.small_table table2-demo

Beside what the command itself reports stand

- operations counted: forward and backward passes over some of the training's batches, times all
  of its batches. Products of matrices are counted by torch, those of cells and of fairseq's
  convolutions, which it does not see, by their weights: two operations for each weight and
  position, and twice as many backward;
- operations by the rule of the paper's Table 2, time × processors × what a processor sustains: here
  the processor's own seconds for these passes (the column "CPU minutes of the passes": without
  optimizer, validation and loading), times what one core does in the best of several such products;
- on the demo's text, sentences exactly right and numbers right, as ``demo_report.py`` counts them;
- each seed with its 95 % interval and p of its difference from the first row's, and the losses
  that chose the learning rates;
- for Table 3, each row against the base, with a t-interval by the pooled variance of all rows'
  seeds, and the paper's against its base.

The record is OUT/HARDWARE_DATE_TABLE.md, .png and the folder of that name: record.json, and each
run's score, statistics and translations. ``--with FOLDER``, the record so far, adds its runs unless
they are here: so a table can be trained on several machines.
"""

import argparse
import gzip
import json
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import Any

import yaml

from benchmarks.curves import read_log
from benchmarks.demo_report import number_rows, numbers_right, share
from benchmarks.machine import machine
from benchmarks.run import RESULTS, record_name
from benchmarks.table import STUDENT
from benchmarks.training_cost import cost_of, sustained
from vaswani.common.artifact import same_file
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, read_json
from vaswani.data.text import read_lines
from vaswani.experiment.find import DEMO_TEXT
from vaswani.experiment.run_record import STATISTICS
from vaswani.paper import SMALL_TABLES
from vaswani.paper.small_tables import (
    Row,
    Table,
    lowest_loss,
    rate_trainings,
    read_table,
    results,
    stem,
)
from vaswani.scoring import report as score
from vaswani.scoring.score_input import ScoreInput, read_aligned

ROOT = Path(__file__).parents[1]
TABLE_3 = yaml.safe_load((ROOT / "configs" / "table3.yaml").read_text(encoding="utf-8"))["rows"]
"""The paper's rows, by name."""
PARAMETERS = ("parameters", "parameters outside embeddings")
"""Of a row of a record; earlier records lack the first."""


def right_in(run: Path) -> dict[str, float]:
    """On the demo's text: per cent of the sentences exactly right, and of the numbers."""
    scores = read_json(run / "eval" / "test.score.json")
    text = Path(scores["translation"]["data"]).parent / "text"
    target = scores["pair"].split("-")[1]
    said = list(read_lines(run / "eval" / "test.hyp"))
    meant = list(read_lines(text / f"test.{target}"))
    demos = DEMO_TEXT / f"test.{target}.xz"
    if not demos.is_file() or meant != list(read_lines(demos)):
        return {}
    return {
        "exactly_right": share(one == other for one, other in zip(said, meant, strict=True)),
        "numbers_right": numbers_right(number_rows(DEMO_TEXT / f"test.values.{target}.tsv"), said),
    }


def short_trainings(table: Table, row: Row) -> list[dict[str, Any]]:
    """Those that chose a row's learning rate, with the lowest validation perplexity of each."""
    return [
        {"run": str(short.run), "rate": rate, "perplexity": 2 ** lowest_loss(short.run)}
        for rate, short in rate_trainings(table, row).items()
        if short.done
    ]


def comparisons(table: Table, earlier: Path | None = None) -> dict[str, dict[str, float]]:
    """Each run's 95 % intervals, and p of its difference from the first row's of the same seed.

    The first row's translations are those of the ``earlier`` record where its run is not here.
    """
    first, *others = table.rows
    here = {one.run for one in results(table, first)}
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for run in (Path(one.run) for row in others for one in results(table, row)):
        usual = run.with_name(f"{stem(first.name)}_{run.name.rpartition('_')[2]}")
        system = score.input_of_run(str(run), "test")
        hypotheses, references = system.main.files
        recorded = earlier and earlier / f"{usual.name}.{hypotheses.name}.gz"
        if str(usual) in here:
            other = score.input_of_run(str(usual), "test")
        elif recorded and recorded.is_file():
            said = read_aligned(recorded, references)
            text, tokens = (said, None) if system.text else (None, said)
            other = ScoreInput(recorded, text, tokens)
        else:
            continue
        metrics = score.compare(system, other)["metrics"]
        # text that was prepared as tokens has no other BLEU
        both = {"bleu": metrics.get("bleu") or metrics["bleu_tokenised"], "chrf": metrics["chrf"]}
        for name, one in both.items():
            found[str(usual)][f"{name}_interval"] = one["other_interval"]
            found[str(run)] |= {f"{name}_interval": one["interval"], f"{name}_p": one["p"]}
    return found


def measure(table: Table, earlier: Path | None = None) -> dict[str, Any]:
    """Each row's runs with their costs, after those of the record in the folder ``earlier``.

    Raises:
        UserError: no row is scored, or the record is of another table.
    """
    record = read_json(earlier / "record.json") if earlier else {}
    if earlier and record.get("table") != table.name:
        raise UserError(f"{earlier} is not the folder of a record of {table.name}")
    speed, compared = sustained(), comparisons(table, earlier)
    rows: dict[str, Any] = {}
    for row in table.rows:
        found = record.get("rows", {}).get(row.name, {"paper": row.paper, "runs": []})
        runs = {run["run"]: run for run in found["runs"]}
        scored = results(table, row)
        if scored:
            cost, parameters = cost_of(Path(scored[0].run))
            found.update(parameters)
        for one in scored:
            trained = read_json(Path(one.run) / "env.json")
            runs[one.run] = {
                **one._asdict(),
                **right_in(Path(one.run)),
                **compared.get(one.run, {}),
                "operations": cost.operations * one.updates,
                "processor_seconds": cost.seconds * one.updates,
                "operations_by_rule": cost.seconds * one.updates * speed,
                "batches_per_update": cost.batches,
                "cpu": trained.get("cpu"),
                "commit": trained.get("commit"),
            }
        if rates := short_trainings(table, row):
            found["rates"] = rates
        if runs:
            rows[row.name] = {**found, "runs": [runs[run] for run in sorted(runs)]}
    if not rows:
        raise UserError(f"no row of {table.name} is scored: vaswani reproduce {table.name} --small")
    return {"expected": table.expected, "operations_per_second": speed, "rows": rows}


def mean(values: Sequence[float], form: str = ".2f") -> str:
    """A figure's mean over the seeds, from three on with its 95 % interval, and each in brackets.

    Table 3 pools the variance of its rows (``half_width``); this interval is of one row alone.
    """
    if not values:
        return "–"
    text = format(statistics.mean(values), form)
    each = [format(value, form).removesuffix(".0") for value in values]
    if len(values) > 2:
        width = STUDENT[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
        text += f" ± {width:{form}}"
    return f"{text} ({', '.join(each)})" if len(set(each)) > 1 else text


def lines_of(record: dict[str, Any]) -> list[str]:
    """The record's table in Markdown; for Table 3, what each row changes as a second one."""
    demo = any("numbers_right" in run for row in record["rows"].values() for run in row["runs"])
    right = ["exactly_right", "numbers_right"] if demo else []
    counts = [key for key in PARAMETERS if all(key in row for row in record["rows"].values())]
    columns = ["system", *counts, "seeds", "BLEU", "chrF"]
    columns += [f"{key.replace('_', ' ')}, %" for key in right]
    columns += ["operations counted", "by the paper's rule", "CPU minutes of the passes"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in record["rows"].items():
        runs = row["runs"]
        minutes = statistics.mean(run["processor_seconds"] for run in runs) / 60
        cells = [name, *(f"{row[key]:,}" for key in counts), str(len(runs))]
        cells += [mean([run[key] for run in runs]) for key in ("bleu", "chrf")]
        cells += [mean([run[key] for run in runs], ".1f") for key in right]
        cells += [f"{runs[0][key]:.1e}" for key in ("operations", "operations_by_rule")]
        lines.append(f"| {' | '.join([*cells, f'{minutes:.1f}'])} |")
    differences = contrasts(record) if record["table"] == "table3" else []
    return [*lines, "", *differences] if differences else lines


def seed_lines(record: dict[str, Any]) -> list[str]:
    """Each seed's figures in Markdown, and the losses that chose the learning rates."""
    lines = [
        "| seed | BLEU, 95 % interval | p | chrF, 95 % interval | p | validation perplexity |",
        "|---" * 6 + "|",
    ]
    for run in (run for row in record["rows"].values() for run in row["runs"]):
        cells = [Path(run["run"]).name]
        for key in ("bleu", "chrf"):
            width = f" ± {run[f'{key}_interval']:.2f}" if f"{key}_interval" in run else ""
            cells += [f"{run[key]:.2f}{width}", str(run.get(f"{key}_p", "–"))]
        lines.append(f"| {' | '.join(cells)} | {run['perplexity']:.2f} |")
    lines += ["", "p: two-sided, against the first row's translations, same seed."]
    for name, row in record["rows"].items():
        tried = [f"{one['rate']:g}: {one['perplexity']:.2f}" for one in row.get("rates", [])]
        if tried:
            lines += ["", f"Short trainings of {name}, perplexity by rate: {', '.join(tried)}."]
    return lines


def contrasts(record: dict[str, Any]) -> list[str]:
    """Table 3's variations in Markdown: each minus the base, in the paper and here.

    The interval is Student's; all rows tell the variance of training together. Empty before two
    seeds of the base are scored.
    """
    rows = dict(record["rows"])
    base = rows.pop("base", {"runs": []})["runs"]
    if len(base) < 2:
        return []
    columns = ["row", "the paper's row"]
    cells = {name: [name, row["paper"]] for name, row in rows.items()}
    for title, here, there in (
        ("BLEU", lambda run: run["bleu"], lambda row: row["bleu"]),
        ("nll in bits", lambda run: log2(run["perplexity"]), lambda row: log2(row["ppl"])),
    ):
        columns += [f"{title}: the paper's difference", "ours, 95 %", ""]
        usual = [here(run) for run in base]
        others = {name: [here(run) for run in row["runs"]] for name, row in rows.items()}
        width = half_width([usual, *others.values()])
        for name, values in others.items():
            paper = there(TABLE_3[rows[name]["paper"]]) - there(TABLE_3["base"])
            ours = statistics.mean(values) - statistics.mean(usual)
            error = width * (1 / len(values) + 1 / len(usual)) ** 0.5
            cells[name] += [f"{paper:+.2f}", f"{ours:+.2f} ± {error:.2f}"]
            cells[name] += [verdict(paper, ours, error)]
    return [
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        *(f"| {' | '.join(row)} |" for row in cells.values()),
    ]


def half_width(rows: Sequence[Sequence[float]]) -> float:
    """Of a 95 % interval around one value, by the pooled variance of each row's seeds."""
    degrees = sum(len(values) - 1 for values in rows)
    squares = sum((value - statistics.mean(values)) ** 2 for values in rows for value in values)
    return STUDENT[min(degrees, len(STUDENT))] * (squares / degrees) ** 0.5


def verdict(paper: float, ours: float, error: float) -> str:
    """What our difference says of the paper's."""
    if abs(ours) <= error:
        return "not shown"
    return "as in the paper" if paper * ours > 0 else "not as in the paper"


def draw(path: Path, record: dict[str, Any]) -> None:
    """BLEU at the end and validation nll on the way, against what the training cost by then."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(
        2, 2, figsize=(10, 7), sharex="col", sharey="row", layout="constrained"
    )
    costs = {"processor_seconds": 60, "operations": 1}
    for number, (name, row) in enumerate(record["rows"].items()):
        style: dict[str, Any] = {"color": f"C{number}", "alpha": 0.7}
        for seed, run in enumerate(row["runs"]):
            curve = read_log(path.with_suffix("") / f"{Path(run['run']).name}.jsonl.gz").curve
            for (bleu, loss), (key, unit) in zip(axes.T, costs.items(), strict=True):
                each = run[key] / unit / run["updates"]
                loss.plot([each * update for update in curve], list(curve.values()), **style)
                label = "" if seed else name
                bleu.plot(each * run["updates"], run["bleu"], "o", label=label, **style)
    axes[0, 0].set_ylabel("BLEU")
    axes[0, 0].margins(y=0.15)
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].set_ylabel("validation nll, bits")
    axes[1, 0].set_yscale("log")
    axes[1, 0].yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes[1, 0].yaxis.set_major_formatter("{x:g}")
    axes[1, 0].yaxis.set_minor_formatter("")
    axes[1, 0].set_xlabel("minutes of one processor, forward and backward passes")
    axes[1, 1].set_xlabel("operations counted")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def save(
    out: Path,
    record: dict[str, Any],
    title: str,
    lines: list[str],
    picture: Callable[[Path, dict[str, Any]], None] | None = None,
    earlier: Path | None = None,
) -> None:
    """Write a record: ``OUT/NAME/record.json``, with its runs' statistics, ``NAME.md``, ``.png``.

    Args:
        record: with ``machine``, ``table``, ``expected`` and ``rows``
        lines: its tables in Markdown
        picture: draws one, if there is to be one
        earlier: the folder of the record that has the other runs
    """
    facts, name = record["machine"], record_name(record["machine"], [record["table"]])
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for row in record["rows"].values():
        for run in (Path(one["run"]) for one in [*row["runs"], *row.get("rates", [])]):
            if earlier and not run.is_dir():
                for file in earlier.glob(f"{run.name}.*"):
                    if not same_file(file, folder / file.name):
                        shutil.copy(file, folder / file.name)
                continue
            pack(run / STATISTICS, folder / f"{run.name}.jsonl.gz")
            score_file = run / "eval" / "test.score.json"
            if score_file.is_file():
                shutil.copy(score_file, folder / f"{run.name}.score.json")
            for sides in read_json(score_file).get("files", {}).values():
                said = Path(sides["hypotheses"]["file"]).name  # test.hyp, or its tokens
                pack(run / "eval" / said, folder / f"{run.name}.{said}.gz")
    with atomic_write(folder / "record.json") as stream:
        json.dump(record, stream, indent=1)
    if picture:
        picture(out / f"{name}.png", record)
    versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
    page = [
        f"# {title}",
        "## Expected, written before the first run",
        f"{record['expected']}.",
        "## Found",
        "\n".join(lines),
        *([f"![{title}]({name}.png)"] if picture else []),
        f"`{facts['command']}`, commit `{facts['commit']}`, {facts['cpu']}, {facts['cores']} "
        f"processors, one thread, beside other work; {versions}. [Figures, scores and "
        f"statistics]({name}/).",
        *trained_on(record),
    ]
    with atomic_write(out / f"{name}.md") as stream:
        stream.write("\n\n".join(page) + "\n")
    print("\n".join([*lines, f"written to {out / name}"]), flush=True)


def pack(source: Path, target: Path) -> None:
    """Compress a file; equal files become equal bytes."""
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))


def trained_on(record: dict[str, Any]) -> list[str]:
    """A sentence for each machine and commit that runs of a record were trained on, where known."""
    machines: dict[tuple[str, str], list[str]] = {}
    for row in record["rows"].values():
        for run in row["runs"]:
            if run.get("cpu"):
                machines.setdefault((run["cpu"], run["commit"]), []).append(Path(run["run"]).name)
    return [
        f"Trained on {cpu}, commit `{commit}`: {', '.join(names)}."
        for (cpu, commit), names in machines.items()
    ]


def main(arguments: Sequence[str]) -> int:
    """Count, copy, write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.small_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("table", choices=SMALL_TABLES)
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    options.add_argument("--with", metavar="FOLDER", type=Path, dest="earlier", help="see above")
    args = options.parse_args(arguments)
    facts = {**machine("cpu"), "command": f"vaswani reproduce {args.table} --small"}
    try:
        found = measure(read_table(args.table), args.earlier)
    except UserError as error:
        print(f"small_table: {error}", file=sys.stderr)
        return 1
    record = {"machine": facts, "table": args.table, **found}
    lines = [*lines_of(record), "", *seed_lines(record)]
    save(args.out, record, f"The systems of {args.table}", lines, draw, args.earlier)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
