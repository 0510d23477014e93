"""Systems or variations that translate one text: scores, differences, costs, a picture.

Beside what ``vaswani score`` reports stand

- the peak learning rate of each row;
- operations counted, and the processor's minutes for the same passes (costs.py), of all rows on the
  machine that made the record. Rows are compared at equal updates: minutes of one row differ by a
  fifth between measurements on one machine;
- on the demo's text, sentences exactly right and numbers right;
- each row minus the first, by the rule of intervals.py, and how far the difference in BLEU would
  move with other test sentences, too (sentences.py);
- each seed with its 95 % interval, and p of its difference from the first row's of the same seed:
  two-sided, by sacreBLEU's approximate randomisation on the sentences of the test.
"""

import statistics
from collections import defaultdict
from math import log2
from pathlib import Path
from typing import Any

from experiments.costs import costs_of, passes_of
from experiments.demo_measures import number_rows, numbers_right, share
from experiments.fairseq_runs import (
    FairseqExperiment,
    FairseqRow,
    config_of,
    rate_text,
    result,
)
from experiments.harness import Row
from experiments.intervals import Difference, Values, differences, mean_text, rule
from experiments.pictures import draw_costs
from experiments.record_files import record_files, recorded_translations
from experiments.records import Record
from experiments.sentences import bleu_of, keep_counts, read_counts, widths_over_both
from experiments.tables import Table
from vaswani.common.files import read_json
from vaswani.common.find import DEMO_TEXT, find_config
from vaswani.data.text import read_lines
from vaswani.scoring import report
from vaswani.scoring.score_input import ScoreInput, input_of_run

OUTSIDE = "parameters outside embeddings"
PARAMETERS = ("parameters", OUTSIDE)
"""Of a row of a record; earlier records lack the first."""
METRICS = ("bleu", "chrf")
SIGNIFICANCE = "two-sided, approximate randomisation"
OVER_BOTH = "bleu_width_over_seeds_and_sentences"
"""Of a row: half the 95 % interval of its BLEU minus the first row's."""


class SystemsExperiment(FairseqExperiment):
    """Systems, or variations of one, or one in several recipes, on one text."""

    def measure(self, run: Path) -> dict[str, Any]:
        """Return scores, accuracy on the demo's text, and what the training cost."""
        return {**result(run)._asdict(), **accuracy_on_the_demo(run)}

    def describe(self, row: Row) -> dict[str, Any]:
        """Describe a row, with the paper's row that it stands for."""
        return {"paper": self.plans[row.name].paper, **super().describe(row)}

    def complete(self, record: Record, earlier: Path | None) -> None:
        """Add the costs of all rows, and the intervals and p of their differences."""
        add_costs(record, self.plans)
        record["significance"] = SIGNIFICANCE
        compared = comparisons(record, earlier)
        for row in record["rows"].values():
            for run in row["runs"]:
                run |= compared.get(run["run"], {})

    def derive(self, record: Record, folder: Path) -> None:
        """Add to each row the width of its difference in BLEU over seeds and test sentences."""
        add_widths_over_both(record, folder)

    def tables(self, record: Record) -> list[Table]:
        """Return the table of rows, and that of each seed."""
        return [systems_table(record), *seed_tables(record)]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw final BLEU and validation nll on the way, against what the training cost by then."""
        draw_costs(record, folder)


# ---- figures -----------------------------------------------------------------------------------


def add_costs(record: Record, plans: dict[str, FairseqRow]) -> None:
    """Add to each row of a record its numbers of parameters, and to its runs their cost here."""
    rows = record["rows"]
    trainings = []
    for name in rows:
        plan = plans[name]
        trainings.append(passes_of(config_of(find_config(plan.base).resolve(), tuple(plan.change))))
    for row, training, cost in zip(rows.values(), trainings, costs_of(trainings), strict=True):
        row |= training.parameters
        for run in row["runs"]:
            run["operations"] = cost.operations * run["updates"]
            run["processor_seconds"] = cost.seconds * run["updates"]
            run["batches_per_update"] = cost.batches


def add_widths_over_both(record: Record, folder: Path) -> None:
    """Add to rows with counts the width of their difference over other seeds and sentences.

    Args:
        record: is changed; may have some of the rows of the one in ``folder``
        folder: of the record, which gets the counts if references are here
    """
    rows = record["rows"]
    runs = [run for row in rows.values() for run in row["runs"]]
    counts_by_run = counts_of_runs(folder, runs)
    if len(counts_by_run) < len(runs):
        keep_counts(folder, [Path(run["run"]).name for run in runs])
        counts_by_run = counts_of_runs(folder, runs)
    values: Values = {}
    counts = {}
    for name, row in rows.items():
        row.pop(OVER_BOTH, None)
        if all(run["run"] in counts_by_run for run in row["runs"]):
            values[name] = by_seed(row, "bleu")
            for run in row["runs"]:
                counts[name, seed_of(run)] = counts_by_run[run["run"]]
    reference = next(iter(rows))
    if reference in values:
        for name, width in widths_over_both(values, counts, reference).items():
            rows[name][OVER_BOTH] = round(width, 3)


def counts_of_runs(folder: Path, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return run → its counts of sentences, of the runs whose BLEU they give."""
    counts_by_name = read_counts(folder)
    counts = {}
    for run in runs:
        of_run = counts_by_name.get(Path(run["run"]).name)
        if of_run is not None and abs(float(bleu_of(of_run.sum(0))) - run["bleu"]) < 0.01:
            counts[run["run"]] = of_run
    return counts


def mean_of(row: dict[str, Any], key: str) -> float:
    """Return a figure's mean over a row's runs."""
    return statistics.mean(run[key] for run in row["runs"])


def accuracy_on_the_demo(run: Path) -> dict[str, float]:
    """Return the per cent of sentences exactly right, and of numbers; empty for other text."""
    scores = read_json(run / "eval" / "test.score.json")
    text = Path(scores["translation"]["data"]).parent / "text"
    target = scores["pair"].split("-")[1]
    hypotheses = list(read_lines(run / "eval" / "test.hyp"))
    references = list(read_lines(text / f"test.{target}"))
    demo_text = DEMO_TEXT / f"test.{target}.xz"
    if not demo_text.is_file() or references != list(read_lines(demo_text)):
        return {}
    numbers = number_rows(DEMO_TEXT / f"test.values.{target}.tsv")
    pairs = zip(hypotheses, references, strict=True)
    return {
        "exactly_right": share(hypothesis == reference for hypothesis, reference in pairs),
        "numbers_right": numbers_right(numbers, hypotheses),
    }


def comparisons(record: Record, earlier: Path | None = None) -> dict[str, dict[str, float]]:
    """Return each run's 95 % intervals, and p of its difference from the first row's same seed.

    Translations are those of the ``earlier`` record where a run is not here. Nothing is compared
    if no run is here, as the references are those of a run.
    """
    first, *later = record["rows"].values()
    firsts = {Path(run["run"]).name.rpartition("_")[2]: run["run"] for run in first["runs"]}
    runs = [run["run"] for row in record["rows"].values() for run in row["runs"]]
    here = [run for run in runs if (Path(run) / "eval").is_dir()]
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    if not here:
        return figures
    template = input_of_run(here[0], "test")
    for run in [run["run"] for row in later for run in row["runs"]]:
        reference = firsts.get(Path(run).name.rpartition("_")[2])
        if reference is None:
            continue
        system = translations_of_run(run, earlier, template)
        other = translations_of_run(reference, earlier, template)
        if system is None or other is None:
            continue
        metrics = report.significance_of(system, other).metrics
        # text that was prepared as tokens has no other BLEU
        by_metric = {"bleu": metrics.get("bleu") or metrics["bleu_tokenised"]}
        by_metric["chrf"] = metrics["chrf"]
        for name, compared in by_metric.items():
            figures[reference][f"{name}_interval"] = compared.other_interval
            figures[run][f"{name}_interval"] = compared.interval
            figures[run][f"{name}_p"] = compared.p
    return figures


def translations_of_run(run: str, earlier: Path | None, template: ScoreInput) -> ScoreInput | None:
    """Return a run's translations, from its folder or a record; None if neither has them.

    Args:
        earlier: the folder of the record
        template: a run that translated the same test
    """
    if (Path(run) / "eval").is_dir():
        return input_of_run(run, "test")
    if earlier is None:
        return None
    return recorded_input(earlier, Path(run).name, template)


def recorded_input(record: Path, run_name: str, template: ScoreInput) -> ScoreInput | None:
    """Return a run's translations in a record, with the references of ``template``."""
    hypotheses, references = template.main.files
    name = f"{run_name}.{hypotheses.name}"
    if name not in record_files(record):
        return None
    lines = recorded_translations(record, name, references)
    return ScoreInput(record, text=lines) if template.text else ScoreInput(record, tokens=lines)


# ---- tables ------------------------------------------------------------------------------------


def seed_of(run: dict[str, Any]) -> int:
    """Return a run's seed."""
    return int(run["run"].rpartition("_seed")[2])


def by_seed(row: dict[str, Any], key: str) -> dict[int, float]:
    """Return a figure of each run of a row, by its seed."""
    return {seed_of(run): run[key] for run in row["runs"]}


def bits_of(row: dict[str, Any]) -> dict[int, float]:
    """Return the lowest validation loss of each run, by its seed."""
    return {seed: log2(perplexity) for seed, perplexity in by_seed(row, "perplexity").items()}


def values_of(record: Record, key: str) -> Values:
    """Return a figure by row and seed; ``bits`` is the lowest validation loss."""
    rows = record["rows"].items()
    return {name: bits_of(row) if key == "bits" else by_seed(row, key) for name, row in rows}


def minus_first(record: Record, key: str, reference: str = "") -> dict[str, Difference]:
    """Return each row's figure minus the reference's, by the rule of intervals.py.

    Args:
        key: see :func:`values_of`
        reference: a row; the first if none is given
    """
    values = values_of(record, key)
    return differences(values, reference or next(iter(values)))


def rule_of(record: Record, reference: str = "") -> str:
    """Return the sentence on intervals, and on rates if they differ, for a table of the record."""
    text = rule(values_of(record, "bits"), reference or next(iter(record["rows"])))
    if len({rate_text(row) for row in record["rows"].values()}) > 1:
        text += " Rates differ: what two rows differ by may be due to them."
    return text


def difference_text(difference: Difference | None, form: str = "+.2f") -> str:
    """Format a difference with its interval and p; a dash for the reference."""
    return difference.text(form) if difference else "–"


def over_both(row: dict[str, Any]) -> str:
    """Return ``± 1.25``, the width over seeds and test sentences.

    It is a dash if no translations are counted.
    """
    return f"± {row[OVER_BOTH]:.2f}" if OVER_BOTH in row else "–"


def systems_table(record: Record) -> Table:
    """Return the table of means over the seeds, and differences from the first row."""
    rows = record["rows"]
    first = next(iter(rows))
    runs = [run for row in rows.values() for run in row["runs"]]
    accuracies = ["exactly_right", "numbers_right"] if "numbers_right" in runs[0] else []
    counts = [key for key in PARAMETERS if all(key in row for row in rows.values())]
    minus = {key: minus_first(record, key) for key in (*METRICS, "bits")}
    columns = ["system", "rate", *counts, "seeds", "BLEU", f"minus {first}"]
    columns += ["± over seeds and sentences", "chrF", f"minus {first}"]
    columns += [f"{key.replace('_', ' ')}, %" for key in accuracies]
    columns += ["validation, bits", f"minus {first}", "operations counted", "CPU minutes"]
    lines = []
    for name, row in rows.items():
        cells = [name, rate_text(row), *(f"{row[key]:,}" for key in counts), str(len(row["runs"]))]
        for key in METRICS:
            cells.append(mean_text(list(by_seed(row, key).values())))
            cells.append(difference_text(minus[key].get(name)))
            if key == "bleu":
                cells.append(over_both(row))
        for key in accuracies:
            cells.append(mean_text(list(by_seed(row, key).values()), ".1f"))
        cells.append(f"{statistics.mean(bits_of(row).values()):.3f}")
        cells.append(difference_text(minus["bits"].get(name), "+.3f"))
        cells.append(f"{mean_of(row, 'operations'):.1e}")
        cells.append(f"{mean_of(row, 'processor_seconds') / 60:.1f}")
        lines.append(cells)
    note = (
        f"{rule_of(record)} {both_note(record)} Rate: the peak learning rate. CPU minutes: of the "
        "forward and backward passes, measured once, on the machine that made the record."
    )
    return Table(columns, lines, note)


def both_note(record: Record) -> str:
    """Return the sentence on test sentences for a table."""
    if any(OVER_BOTH in row for row in record["rows"].values()):
        return (
            "Over seeds and sentences: the 95 % interval of BLEU by a bootstrap over both; p is of "
            "the seeds alone, on the sentences of this test."
        )
    return (
        "Over test sentences the differences have no interval: the record has no translations, or "
        "their references were not at hand."
    )


def seed_tables(record: Record) -> list[Table]:
    """Return tables of each seed's figures, and of the losses that chose the learning rates."""
    columns = ["seed", "BLEU, 95 % interval", "p", "chrF, 95 % interval", "p", "validation, bits"]
    lines = []
    for row in record["rows"].values():
        for run in row["runs"]:
            cells = [Path(run["run"]).name]
            for key in METRICS:
                interval = run.get(f"{key}_interval")
                cells.append(f"{run[key]:.2f}" + (f" ± {interval:.2f}" if interval else ""))
                p = run.get(f"{key}_p")
                cells.append("–" if p is None else f"{p:.3g}")
            lines.append([*cells, f"{log2(run['perplexity']):.2f}"])
    note = "No p: no translations were kept."
    if "significance" in record:
        note = f"p: {record['significance']}, against the first row's run of the same seed."
    tables = [Table(columns, lines, note)]
    rates = []
    for name, row in record["rows"].items():
        for short in row.get("rates", []):
            rates.append([name, f"{short['rate']:g}", f"{log2(short['perplexity']):.2f}"])
    if rates:
        tables.append(Table(["row", "rate", "bits"], rates, "Short trainings, by validation loss:"))
    return tables


make = SystemsExperiment
