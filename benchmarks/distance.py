"""Accuracy against distance: how far back may a word be (section 4)?

    python -m benchmarks.distance                 every system of benchmarks/distance.yaml
    python -m benchmarks.distance --row LSTM      one of them

In a generated sentence a name stands among eight words that follow each other round and round, and
is said again n words later, after a question mark::

    then yet now Ida here and but or so then ? Ida        n = 8

Training has n from 2 to 32, short ones more often, the test 4 to 64. No word of the test stands at
a place that training has not seen, so that a new distance is not a new position, too. The source is
the same word for every sentence: the name can only come through the decoder's layers. A system is
given the sentence up to the question mark; it is right if the name is its most probable next word.
Chance is 1 in 16.

The data is made once, in data/distance; a finished training, in runs/distance, is not run again.
The record is OUT/HARDWARE_DATE_distance.md, .png and the folder of the same name.
"""

import argparse
import itertools
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks.machine import machine
from benchmarks.run import RESULTS
from benchmarks.small_table import mean, save
from vaswani.common.artifact import making
from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.common.signals import signals_as_interrupts
from vaswani.experiment.checkpoints import describe
from vaswani.experiment.run_record import FINISHED, last_checkpoint
from vaswani.paper.small_tables import Row, Table, read_table, trainings

TABLE = Path(__file__).with_suffix(".yaml")
DATA = Path("data/distance")
NAMES = ("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hal",
         "Ida", "Jan", "Kim", "Leo", "Mia", "Ned", "Ola", "Pat")  # fmt: skip
FILLERS = ("and", "but", "or", "so", "then", "yet", "now", "here")
QUESTION, SOURCE = "?", "say"
LONGEST_TRAINED, DISTANCES = 32, (4, 8, 12, 16, 24, 32, 40, 48, 64)
"""Words between a name and its repetition, it included: in training at most, and in the test."""
SENTENCES = {"train": 20_000, "valid": 500, "test": 200 * len(DISTANCES)}


def sentence(distance: int, dice: random.Random) -> List[str]:
    """The last word repeats the one ``distance`` before it; it is at most the 65th."""
    name, others = dice.choice(NAMES), itertools.cycle(FILLERS)
    before, between = dice.choice((0, dice.randint(0, DISTANCES[-1] - distance))), distance - 2
    start = dice.randrange(len(FILLERS))
    words = list(itertools.islice(others, start, start + before + between))
    return [*words[:before], name, *words[before:], QUESTION, name]


def trained_distance(dice: random.Random) -> int:
    """From 2 to 32, short ones more often: as many from 4 to 7 as from 16 to 31."""
    return int(2 ** dice.uniform(1, math.log2(LONGEST_TRAINED + 1)))


def make_data(folder: Path) -> None:
    """The text, and what fairseq-preprocess makes of it."""
    dice = random.Random(1)
    folder.mkdir()
    for split, count in SENTENCES.items():
        distances = [trained_distance(dice) for _ in range(count)]
        if split == "test":
            distances = [n for n in DISTANCES for _ in range(count // len(DISTANCES))]
        lines = [" ".join(sentence(n, dice)) for n in distances]
        (folder / f"{split}.target").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"{split}.source").write_text(f"{SOURCE}\n" * count, encoding="utf-8")
    prefixes = [word for name in SENTENCES for word in (f"--{name}pref", str(folder / name))]
    command = [
        *(sys.executable, "-m", "fairseq_cli.preprocess", *prefixes, "--joined-dictionary"),
        *("--source-lang", "source", "--target-lang", "target"),
        *("--destdir", str(folder / "data-bin")),
    ]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise UserError(f"fairseq-preprocess failed on {folder}: it says why above")


def check_no_data(folder: Path) -> None:
    """Raises UserError if something is where the data should go."""
    if folder.exists():
        raise UserError(f"{folder} exists, but has no data-bin: remove it")


def accuracy(checkpoint: Path) -> Dict[str, Any]:
    """By distance, the share of repeated words that are the most probable; and the parameters."""
    import torch

    from vaswani.experiment.fairseq_config import load_plugin

    load_plugin()
    from fairseq import checkpoint_utils, utils

    utils.import_user_module(argparse.Namespace(user_dir="examples/recurrent"))
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model = models[0].eval()
    task.load_dataset("test")
    data, question = task.dataset("test"), task.target_dictionary.index(QUESTION)
    right: Dict[int, List[bool]] = {}
    for start in range(0, len(data), 100):
        batch = data.collater([data[i] for i in range(start, min(start + 100, len(data)))])
        with torch.no_grad():
            best = model(**batch["net_input"])[0].argmax(-1)  # [B, T]
        for words, said in zip(batch["target"], best, strict=True):
            at = int((words == question).nonzero()) + 1
            n = at - int((words == words[at]).nonzero()[0])
            right.setdefault(n, []).append(bool(said[at] == words[at]))
    return {
        "accuracy": {str(n): statistics.mean(map(float, right[n])) for n in DISTANCES},
        "parameters": sum(p.numel() for p in model.parameters()),
        "decoder_parameters": sum(p.numel() for p in model.decoder.parameters()),
    }


def halfway(run: Path) -> Tuple[int, Path]:
    """The checkpoint of an epoch nearest to half of the updates, and its updates."""
    epochs = run.glob("checkpoints/checkpoint[0-9]*.pt")
    known = sorted((describe(path).updates, path) for path in epochs)
    return min(known, key=lambda found: abs(found[0] - known[-1][0] / 2))


def trained(table: Table, row: Row) -> List[Dict[str, Any]]:
    """A row's figures, by seed; what is not trained yet is trained.

    Raises:
        UserError: a training failed.
    """
    found = []
    for one in trainings(table, row):
        command = [sys.executable, "-m", "vaswani", *one.command]
        if not one.done and subprocess.run(command).returncode:
            raise UserError(f"{one.run} failed: it says why above")
        facts = read_json(one.run / FINISHED)
        took = {"updates": facts["num_updates"], "seconds": facts["seconds"]}
        updates, path = halfway(one.run)
        half = {"updates": updates, "accuracy": accuracy(path)["accuracy"]}
        said = accuracy(last_checkpoint(one.run))
        found.append({"run": str(one.run), **took, **said, "halfway": half})
    return found


def lines_of(record: Dict[str, Any]) -> List[str]:
    """The table in Markdown, halfway and at the end: mean over the seeds, lowest and highest."""
    lines = [
        f"| system | updates | {' | '.join(f'n = {n}' for n in DISTANCES)} |",
        "|---" * (len(DISTANCES) + 2) + "|",
    ]
    for system, row in record["rows"].items():
        for runs in ([run["halfway"] for run in row["runs"]], row["runs"]):
            by_distance = [
                mean([{"right": 100 * run["accuracy"][str(n)]} for run in runs], "right", ".1f")
                for n in DISTANCES
            ]
            updates = mean(runs, "updates", ",.0f")
            lines.append(f"| {system} | {updates} | {' | '.join(by_distance)} |")
    return lines


def costs(record: Dict[str, Any]) -> List[str]:
    """What a system is, and what its training took, in Markdown."""
    lines = ["| system | parameters of the decoder | updates | seconds |", "|---|---|---|---|"]
    for system, row in record["rows"].items():
        parameters = f"{row['runs'][0]['decoder_parameters']:,}"
        took = [mean(row["runs"], key, ",.0f") for key in ("updates", "seconds")]
        lines.append(f"| {system} | {parameters} | {' | '.join(took)} |")
    return lines


def draw(path: Path, record: Dict[str, Any]) -> None:
    """Accuracy against distance: the mean of the seeds, and a band over them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    for number, (system, row) in enumerate(record["rows"].items()):
        for axis, runs in zip(
            axes, ([r["halfway"] for r in row["runs"]], row["runs"]), strict=True
        ):
            values = [[100 * run["accuracy"][str(n)] for run in runs] for n in DISTANCES]
            means = [statistics.mean(each) for each in values]
            axis.plot(DISTANCES, means, "o-", color=f"C{number}", markersize=3, label=system)
            low, high = [min(each) for each in values], [max(each) for each in values]
            axis.fill_between(DISTANCES, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
            axis.set_title(f"after {runs[0]['updates']:,} updates", fontsize=10)
    for axis in axes:
        axis.axvline(LONGEST_TRAINED, color="0.6", linestyle=":")
        axis.set_xlabel("n, words back to the name (dotted: the longest in training)")
        axis.set_xticks(DISTANCES)
    axes[0].set_ylabel("repeated rightly, %")
    axes[1].legend(fontsize=8, loc="center right")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(arguments: Sequence[str]) -> int:
    """Make the data, train, ask, write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.distance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--row", metavar="SYSTEM", help="train this one alone; no record")
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    args = options.parse_args(arguments)
    try:
        table = read_table("distance", args.row, TABLE)
        with signals_as_interrupts():
            if not (DATA / "data-bin").is_dir():
                with making(DATA, check_no_data) as folder:
                    make_data(folder)
            rows = {row.name: {"runs": trained(table, row)} for row in table.rows}
    except UserError as error:
        print(f"distance: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("distance: interrupted; finished trainings are kept", file=sys.stderr)
        return 130
    facts = {**machine("cpu"), "command": " ".join(["python -m benchmarks.distance", *arguments])}
    record = {"machine": facts, "table": "distance", "expected": table.expected, "rows": rows}
    save(
        args.out, record, "Accuracy against distance", [*lines_of(record), "", *costs(record)], draw
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
