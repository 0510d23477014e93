"""Why does the demo's model drop one of two equal neighbours, 1,555 → "155"?

    python -m benchmarks.neighbours              trains benchmarks/neighbours.yaml; writes a record
    python -m benchmarks.neighbours --row ours   trains one row; no record
    python -m benchmarks.neighbours --record     trains nothing; records what is trained
    ... --record --with FOLDER                   and the other runs of an earlier record

Before it: ``vaswani prepare demo_en_de``. Each row is the demo's training, 3 minutes of a core,
with other positions, another loss or another system, on the same text and updates. A sentence of
the test is wrong if its tokens are not the reference's. Those in whose source two neighbouring
subwords are equal are counted apart from the others.

Beside a model with positions stands how far apart neighbouring positions are: the mean of |p(i) -
p(i+1)|² over the first ``POSITIONS``, as a share of the same between two words' scaled embeddings.

Intervals are Student's, over the seeds. Rows are trained as those of ``vaswani reproduce
table2-demo``, in runs/neighbours and runs/neighbours-systems. The record is
OUT/HARDWARE_DATE_neighbours.md, .png and the folder of the same name.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.run import RESULTS
from benchmarks.small_table import mean, save
from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.data.text import read_lines
from vaswani.paper.runner import run_commands
from vaswani.paper.small_tables import (
    Table,
    read_table,
    refuse_other_training,
    results,
    seed_commands,
)

FILE = Path(__file__).with_suffix(".yaml")
TABLES = ("neighbours", "neighbours-systems")
POSITIONS = 30


def has_equal_neighbours(line: str) -> bool:
    """Whether two subwords that follow each other are the same."""
    subwords = line.split()
    return any(one == other for one, other in zip(subwords, subwords[1:], strict=False))


def wrong_in(run: Path) -> dict[str, Any]:
    """The lines of the test, from 0, that are wrong: with equal neighbours, and without."""
    scores = read_json(run / "eval" / "test.score.json")
    data = Path(scores["translation"]["data"]).parent
    source, target = scores["pair"].split("-")
    equal = list(map(has_equal_neighbours, read_lines(data / "bpe" / f"test.{source}")))
    said = read_lines(run / "eval" / "test.hyp.tok")
    meant = read_lines(data / "tok" / f"test.{target}")
    wrong = [one.split() != other.split() for one, other in zip(said, meant, strict=True)]
    both = list(enumerate(zip(wrong, equal, strict=True)))
    return {
        "bleu_tokenised": scores["bleu_tokenised"]["score"],
        "equal_neighbours": sum(equal),
        "others": len(equal) - sum(equal),
        "wrong_equal": [line for line, (is_wrong, twice) in both if is_wrong and twice],
        "wrong_others": [line for line, (is_wrong, twice) in both if is_wrong and not twice],
    }


def distances(checkpoint: Path) -> dict[str, float]:
    """Mean squared distances in the encoder; empty for a model whose positions are not ours."""
    import torch
    from fairseq import checkpoint_utils

    from vaswani.experiment.plugin import load_user_dir

    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    load_user_dir(state["cfg"].common.user_dir)
    [model], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    embedding: Any = getattr(model.encoder, "embedding", None)
    if embedding is None:
        return {}
    with torch.no_grad():
        words = embedding.tokens.weight[4:] * embedding.tokens.embedding_dim**0.5
        order = torch.arange(POSITIONS)
        places = embedding.positions(order, POSITIONS, like=words)
    return {
        "between_neighbours": float((places[1:] - places[:-1]).pow(2).sum(1).mean()),
        "between_words": float(torch.pdist(words).pow(2).mean()),
    }


def rows_of(table: Table, earlier: dict[str, Any]) -> dict[str, Any]:
    """The figures of each row that has scored runs, here or in an ``earlier`` record."""
    rows: dict[str, Any] = {}
    for row in table.rows:
        runs = {run["run"]: run for run in earlier.get(row.name, {"runs": []})["runs"]}
        for one in results(table, row):
            runs[one.run] = {
                **one._asdict(),
                **wrong_in(Path(one.run)),
                **distances(next(Path(one.run).glob("checkpoints/checkpoint_average*.pt"))),
                **{
                    key: read_json(Path(one.run) / "env.json").get(key) for key in ("cpu", "commit")
                },
            }
        if runs:
            rows[row.name] = {"runs": [runs[run] for run in sorted(runs)]}
    return rows


def failures(row: dict[str, Any]) -> list[str]:
    """A row's sentences with equal neighbours that all of its seeds get wrong, in Markdown."""
    run = next(Path(one["run"]) for one in row["runs"] if Path(one["run"]).is_dir())
    text = Path(read_json(run / "eval" / "test.score.json")["translation"]["data"]).parent / "text"
    source, said = (list(read_lines(path)) for path in (text / "test.en", run / "eval/test.hyp"))
    always = set.intersection(*(set(one["wrong_equal"]) for one in row["runs"]))
    return [f"| source | {run.name.replace('_', ' ')} |", "|---|---|"] + [
        f"| {source[line]} | {said[line]} |" for line in sorted(always)
    ]


def lines_of(record: dict[str, Any]) -> list[str]:
    """The record's table in Markdown."""
    first = next(iter(record["rows"].values()))["runs"][0]
    columns = ["row", "BLEU (tokenised)", f"wrong of the {first['equal_neighbours']}"]
    columns += [f"wrong of the other {first['others']}", "neighbouring positions, of words"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in record["rows"].items():
        runs = row["runs"]
        cells = [name, mean([run["bleu_tokenised"] for run in runs])]
        for key in ("wrong_equal", "wrong_others"):
            cells.append(mean([len(run[key]) for run in runs], ".1f"))
        near = [
            run["between_neighbours"] / run["between_words"]
            for run in runs
            if "between_words" in run
        ]
        cells.append(f"{statistics.mean(near):.3f}" if near else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(path: Path, record: dict[str, Any]) -> None:
    """Each seed's sentences that are wrong, by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for axis, key, of in zip(
        axes, ("wrong_equal", "wrong_others"), ("equal_neighbours", "others"), strict=True
    ):
        for place, row in enumerate(record["rows"].values()):
            each = [len(run[key]) for run in row["runs"]]
            axis.plot(each, [place] * len(each), "o", color=f"C{place % 10}", alpha=0.6)
        count = row["runs"][0][of]
        axis.set_xlim(-0.02 * count, 1.02 * count if of == "equal_neighbours" else 60)
        axis.set_xlabel(f"wrong of {count}" + (" (above 60: not shown)" if of == "others" else ""))
    axes[0].set_title("two equal neighbouring subwords", fontsize=10)
    axes[1].set_title("none", fontsize=10)
    axes[0].set_yticks(range(len(record["rows"])), list(record["rows"]), fontsize=8)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def train(only: str | None) -> int:
    """Train, average, translate and score what is not done; the exit code of what failed, or 0.

    Raises:
        UserError: there is no such row, or a run of one was trained otherwise.
    """
    rows = [(table, row) for table in map(table_of, TABLES) for row in table.rows]
    chosen = [(table, row) for table, row in rows if only in (None, row.name)]
    if not chosen:
        raise UserError(f"there is no row '{only}'; there are {', '.join(r.name for _, r in rows)}")
    for name in TABLES:
        refuse_other_training(table_of(name))
    codes = (run_commands(seed_commands(table, row)) for table, row in chosen)
    return next(filter(None, codes), 0)


def table_of(name: str) -> Table:
    """One of the two tables of rows."""
    return read_table(name, None, FILE)


def main(arguments: Sequence[str]) -> int:
    """Train, count, write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--row", metavar="ROW", help="train this one alone; no record")
    options.add_argument("--record", action="store_true", help="train nothing")
    options.add_argument("--with", metavar="FOLDER", type=Path, dest="earlier", help="see above")
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    args = options.parse_args(arguments)
    try:
        if not args.record and ((code := train(args.row)) or args.row):
            return code
        tables = [table_of(name) for name in TABLES]
        earlier = read_json(args.earlier / "record.json")["rows"] if args.earlier else {}
        rows = {name: row for table in tables for name, row in rows_of(table, earlier).items()}
        if "ours" not in rows:
            raise UserError("no run of ours is scored: python -m benchmarks.neighbours --row ours")
    except UserError as error:
        print(f"neighbours: {error}", file=sys.stderr)
        return 1
    facts = {**machine("cpu"), "command": "python -m benchmarks.neighbours"}
    expected = "; ".join(table.expected for table in tables)
    record = {"machine": facts, "table": "neighbours", "expected": expected, "rows": rows}
    save(
        args.out,
        record,
        "Two equal neighbouring subwords",
        [
            *lines_of(record),
            "",
            "Sentences with equal neighbours that every seed of ours gets wrong:",
            "",
            *failures(rows["ours"]),
        ],
        draw,
        args.earlier,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
