"""Why does the demo's model drop one of two equal neighbours, 1,555 → "155"?

Before it: ``vaswani prepare demo_en_de``. Each row is the demo's training, 3 minutes of a core,
with other positions, another loss or another system, on the same text and updates. A sentence of
the test is wrong if its tokens are not the reference's. Those in whose source two neighbouring
subwords are equal are counted apart from the others.

Beside a model with positions stands how far apart neighbouring positions are: the mean of |p(i) -
p(i+1)|² over the first ``POSITIONS``, as a share of the same between two words' scaled embeddings.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fairseq_runs import FairseqExperiment, rate_text, result
from experiments.intervals import Values, differences, mean_text, rule
from experiments.pictures import figure_of, save_figure
from experiments.records import PICTURE, Record
from experiments.sentences import widths_over_both
from experiments.system_tables import difference_text, seed_of
from experiments.tables import Table
from vaswani.common.files import read_json
from vaswani.data.text import read_lines

POSITIONS = 30
WRONG = {"wrong_equal": "equal_neighbours", "wrong_others": "others"}
"""Of a run: the lines of the test that are wrong → how many sentences there are."""
CROWDED = 60
"""Of the sentences without equal neighbours; rows with more wrong are not shown in the picture."""


class NeighboursExperiment(FairseqExperiment):
    """The demo's training with other positions, and other systems."""

    def measure(self, run: Path) -> dict[str, Any]:
        """Return the scores, the sentences that are wrong, and the distance between positions."""
        scored = result(run)
        average = next(run.glob("checkpoints/checkpoint_average*.pt"))
        return {**scored._asdict(), **wrong_sentences(run), **distances(average)}

    def complete(self, record: Record, earlier: Path | None) -> None:
        """Add the sentences that every seed of ours gets wrong, with what one seed wrote."""
        ours = record["rows"].get("ours", {"runs": []})
        here = [Path(run["run"]) for run in ours["runs"] if Path(run["run"]).is_dir()]
        if here:
            ours["failures"] = failures(ours, here[0])

    def tables(self, record: Record) -> list[Table]:
        """Return the table of rows, and that of sentences that ours gets wrong."""
        rows = [list(pair) for pair in record["rows"]["ours"].get("failures", [])]
        note = "Sentences with equal neighbours that every seed of ours gets wrong:"
        shown = [Table(["source", "ours"], rows, note)] if rows else []
        return [neighbours_table(record), *shown]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw the number of wrong sentences of each seed, by row."""
        draw_wrong(record, folder / PICTURE)


def has_equal_neighbours(line: str) -> bool:
    """Return whether two successive subwords are the same."""
    subwords = line.split()
    return any(a == b for a, b in zip(subwords, subwords[1:], strict=False))


def wrong_sentences(run: Path) -> dict[str, Any]:
    """Return the lines of the test, from 0, that are wrong: with equal neighbours, and without."""
    scores = read_json(run / "eval" / "test.score.json")
    data = Path(scores["translation"]["data"]).parent
    source, target = scores["pair"].split("-")
    sources = read_lines(data / "bpe" / f"test.{source}")
    hypotheses = read_lines(run / "eval" / "test.hyp.tok")
    references = read_lines(data / "tok" / f"test.{target}")
    count_equal = 0
    wrong_equal: list[int] = []
    wrong_others: list[int] = []
    lines = enumerate(zip(sources, hypotheses, references, strict=True))
    for line, (words, hypothesis, reference) in lines:
        equal = has_equal_neighbours(words)
        count_equal += equal
        if hypothesis.split() != reference.split():
            (wrong_equal if equal else wrong_others).append(line)
    return {
        "bleu_tokenised": scores["bleu_tokenised"]["score"],
        "equal_neighbours": count_equal,
        "others": line + 1 - count_equal,
        "wrong_equal": wrong_equal,
        "wrong_others": wrong_others,
    }


def distances(checkpoint: Path) -> dict[str, float]:
    """Return mean squared distances in the encoder; empty if its positions are not ours."""
    import torch
    from fairseq import checkpoint_utils

    from vaswani.configuration.plugin import load_user_dir

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


def failures(row: dict[str, Any], run: Path) -> list[tuple[str, str]]:
    """Return sentences with equal neighbours that all seeds get wrong: source and translation.

    Args:
        row: of a record
        run: whose translations are given
    """
    data = Path(read_json(run / "eval" / "test.score.json")["translation"]["data"]).parent
    sources = list(read_lines(data / "text" / "test.en"))
    hypotheses = list(read_lines(run / "eval" / "test.hyp"))
    wrong = [set(result["wrong_equal"]) for result in row["runs"]]
    return [(sources[line], hypotheses[line]) for line in sorted(set.intersection(*wrong))]


def values_of(record: Record, key: str) -> Values:
    """Return, by row and seed, the tokenised BLEU, or how many sentences are wrong."""
    values: Values = {}
    for name, row in record["rows"].items():
        figures = {seed_of(run): run[key] for run in row["runs"]}
        counted = key in WRONG
        values[name] = {seed: len(x) if counted else x for seed, x in figures.items()}
    return values


def neighbours_table(record: Record) -> Table:
    """Return a table with a line for each row, each compared with the first."""
    reference = next(iter(record["rows"]))
    first = record["rows"][reference]["runs"][0]
    figures = {key: values_of(record, key) for key in ("bleu_tokenised", *WRONG)}
    minus = {key: differences(values, reference) for key, values in figures.items()}
    columns = ["row", "rate", "BLEU (tokenised)", f"minus {reference}"]
    for title in (f"{first['equal_neighbours']}", f"other {first['others']}"):
        columns += [f"wrong of the {title}", f"minus {reference}", "± over seeds and sentences"]
    over_both = {key: widths_of_wrong(record, key) for key in WRONG}
    columns.append("neighbouring positions, of words")
    lines = []
    for name in record["rows"]:
        row = record["rows"][name]
        cells = [name, rate_text(row)]
        for key, values in figures.items():
            form = ".1f" if key in WRONG else ".2f"
            cells.append(mean_text(list(values[name].values()), form))
            cells.append(difference_text(minus[key].get(name), f"+{form}"))
            if key in WRONG:
                width = over_both[key].get(name)
                cells.append("–" if width is None else f"± {width:.1f}")
        near = []
        for run in row["runs"]:
            if "between_words" in run:
                near.append(run["between_neighbours"] / run["between_words"])
        cells.append(f"{statistics.mean(near):.3f}" if near else "–")
        lines.append(cells)
    note = (
        f"{rule(figures['bleu_tokenised'], reference)} Over seeds and sentences: the 95 % interval "
        "by a bootstrap over both; p is of the seeds alone, on the sentences of this test."
    )
    return Table(columns, lines, note)


def widths_of_wrong(record: Record, key: str) -> dict[str, float]:
    """Return row → half the interval of how many more sentences are wrong.

    The interval is over seeds and sentences.
    """
    values = values_of(record, key)
    runs = [run for row in record["rows"].values() for run in row["runs"]]
    sentences = runs[0][WRONG[key]]
    wrong_lines = sorted({line for run in runs for line in run[key]})  # by some run
    counts = {}
    for name, row in record["rows"].items():
        for run in row["runs"]:
            is_wrong = np.zeros((sentences, 1))
            is_wrong[[wrong_lines.index(line) for line in run[key]]] = 1
            counts[name, seed_of(run)] = is_wrong
    return widths_over_both(values, counts, next(iter(values)), score=lambda sums: sums[..., 0])


def draw_wrong(record: Record, path: Path) -> None:
    """Draw the number of wrong sentences of each seed, by row."""
    figure, axes = figure_of(1, 2, size=(9, 4), sharey=True)
    for axis, (key, of) in zip(axes, WRONG.items(), strict=True):
        for place, row in enumerate(record["rows"].values()):
            each = [len(run[key]) for run in row["runs"]]
            axis.plot(each, [place] * len(each), "o", color=f"C{place % 10}", alpha=0.6)
        count = row["runs"][0][of]
        crowded = of == "others"
        axis.set_xlim(-0.02 * count, CROWDED if crowded else 1.02 * count)
        note = f" (above {CROWDED}: not shown)" if crowded else ""
        axis.set_xlabel(f"wrong of {count}{note}")
    axes[0].set_title("two equal neighbouring subwords", fontsize=10)
    axes[1].set_title("none", fontsize=10)
    axes[0].set_yticks(range(len(record["rows"])), list(record["rows"]), fontsize=8)
    axes[0].invert_yaxis()
    save_figure(figure, path)


make = NeighboursExperiment
