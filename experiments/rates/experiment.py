"""Each model at its own best learning rate, and every cell of the table: model × rate.

A cell may be taken from another record (``borrowed`` in rows.yaml), which has trained the same with
another question, as long as fewer of its seeds are trained here: so all its runs are of one place.
Cells that nobody has trained are left out. A model's best
rate is the one of its cells whose mean validation loss is lowest; the test plays no part in it.
"""

import statistics
from pathlib import Path
from typing import Any

from experiments.fairseq_runs import rate_text
from experiments.harness import HERE
from experiments.intervals import Difference, mean_text, rule, signed_text
from experiments.pictures import figure_of, save_figure
from experiments.records import PICTURE, Record, read_record
from experiments.since2017.experiment import cell
from experiments.system_tables import (
    OVER_BOTH,
    SystemsExperiment,
    add_widths_over_both,
    bits_of,
    both_note,
    by_seed,
    minus_first,
    over_both,
    rule_of,
    values_of,
)
from experiments.tables import Table

PAPER = "paper"
"""The model that others are compared with."""
OF_THEIR_RECORD = ("bleu_p", "chrf_p", "operations", "processor_seconds", "batches_per_update")
"""Of a run: comparisons with a row of its record, and costs where that was made."""


class RatesExperiment(SystemsExperiment):
    """Models at several peak rates each; a row's name is ``MODEL, RATE``."""

    def complete(self, record: Record, earlier: Path | None) -> None:
        """Take cells of other records where this one has fewer seeds.

        Their costs are not measured.
        """
        rows: dict[str, Any] = {}
        for name, row in record["rows"].items():
            own_runs = [run for run in row["runs"] if "record" not in run]  # not the earlier's
            if own_runs:
                rows[name] = {**row, "runs": own_runs}
        for name, source in self.table["borrowed"].items():
            borrowed = borrowed_row(source["record"], source["row"])
            own_runs = rows.get(name, {"runs": []})["runs"]
            if len(own_runs) < len(borrowed["runs"]):
                rows[name] = borrowed
        order = [name for name in self.plans if name in rows]
        record["rows"] = {name: rows[name] for name in order}

    def derive(self, record: Record, folder: Path) -> None:
        """Compute the widths of differences between models at their best rates."""
        for row in record["rows"].values():
            row.pop(OVER_BOTH, None)
        add_widths_over_both(best_cells(record), folder)

    def tables(self, record: Record) -> list[Table]:
        """Return the table of each model at its best rate, and that of all cells."""
        return [best_table(record), cell_table(record)]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw validation loss and BLEU against the rate."""
        draw_rates(record, folder / PICTURE)


def borrowed_row(record: str, name: str) -> dict[str, Any]:
    """Return a row of another record, each of whose runs names that record.

    Args:
        record: its folder, below ``experiments/``
        name: of the row there
    """
    row = read_record(HERE / record)["rows"][name]
    runs = []
    for run in row["runs"]:
        figures = {key: value for key, value in run.items() if key not in OF_THEIR_RECORD}
        runs.append({**figures, "record": record})
    return {"rate": row["rate"], "runs": runs}


# ---- the best rates ----------------------------------------------------------------------------


def cells_by_model(record: Record) -> dict[str, dict[str, dict[str, Any]]]:
    """Return each model's cells by name; the paper's model comes first."""
    models: dict[str, dict[str, dict[str, Any]]] = {PAPER: {}}
    for name, row in record["rows"].items():
        model, _, _ = name.rpartition(", ")
        models.setdefault(model, {})[name] = row
    return {model: cells for model, cells in models.items() if cells}


def best_cell(cells: dict[str, dict[str, Any]]) -> str:
    """Return the name of the cell with the lowest validation loss, the mean over its seeds."""
    losses = {name: statistics.mean(bits_of(row).values()) for name, row in cells.items()}
    return min(losses, key=losses.__getitem__)


def best_cells(record: Record) -> Record:
    """Return a record whose rows are the models, each at its best rate; rows are shared."""
    models = cells_by_model(record)
    return {"rows": {model: cells[best_cell(cells)] for model, cells in models.items()}}


# ---- tables ------------------------------------------------------------------------------------


def best_table(record: Record) -> Table:
    """Return the table of each model at its own best rate, minus the paper's model at its own."""
    models = cells_by_model(record)
    best = best_cells(record)
    bleu_minus = minus_first(best, "bleu")
    bits_minus = minus_first(best, "bits")
    columns = ["model", "peak rates tried", "best rate", "seeds", "trained on", "BLEU"]
    columns += [f"BLEU minus {PAPER}", "± over seeds and sentences"]
    columns += ["validation loss, bits", f"loss minus {PAPER}"]
    lines = []
    for model, row in best["rows"].items():
        tried = ", ".join(rate_text(each) for each in models[model].values())
        cells = [model, tried, rate_text(row), str(len(row["runs"])), machines(row)]
        cells.append(mean_text(list(by_seed(row, "bleu").values())))
        cells += [cell(bleu_minus.get(model), better=1), over_both(row)]
        cells.append(f"{statistics.mean(bits_of(row).values()):.3f}")
        cells.append(cell(bits_minus.get(model), better=-1, form="+.3f"))
        lines.append(cells)
    note = (
        f"{verdict(best, bleu_minus)} {limits(record)}\n\n"
        "Each model has the rate that gave it the lowest validation loss. This choice makes the "
        "loss look a little better than it is. "
        f"{rule(values_of(best, 'bits'), PAPER)} {both_note(best)}"
    )
    return Table(columns, lines, note)


def verdict(best: Record, minus: dict[str, Difference]) -> str:
    """Return the answer to the question, in BLEU: which models are ahead at their own best
    rates.
    """
    groups: dict[str, list[str]] = {}
    for model, difference in minus.items():
        group = "no significant difference"
        if difference.shown:
            group = "significantly higher" if difference.value > 0 else "significantly lower"
        rate = rate_text(best["rows"][model])
        groups.setdefault(group, []).append(f"{model} ({signed_text(difference.value)}, at {rate})")
    parts = [f"{group}: {', '.join(models)}" for group, models in groups.items()]
    paper_rate = rate_text(best["rows"][PAPER])
    return (
        f"**BLEU of each model at its best rate, minus the paper's model at {paper_rate}:** "
        f"{'; '.join(parts)}."
    )


def limits(record: Record) -> str:
    """Say which models have not been tried on both sides of their best rate."""
    open_models = []
    for model, cells in cells_by_model(record).items():
        rates = [row["rate"] for row in cells.values()]
        best = cells[best_cell(cells)]["rate"]
        if best in (min(rates), max(rates)):
            open_models.append(model)
    if not open_models:
        return "Each model's best rate lies between two other rates that were tried."
    models = ", ".join(open_models)
    return (
        "The best rate of these models is the lowest or the highest that was tried, so another "
        f"rate may be better: {models}."
    )


def cell_table(record: Record) -> Table:
    """Return the table of every cell, minus the paper's model at its best rate."""
    reference = best_cell(cells_by_model(record)[PAPER])
    bleu_minus = minus_first(record, "bleu", reference)
    bits_minus = minus_first(record, "bits", reference)
    columns = ["cell", "rate", "seeds", "trained on", "BLEU", f"minus {reference}"]
    columns += ["validation, bits", f"minus {reference}"]
    lines = []
    for name, row in record["rows"].items():
        cells = [name, rate_text(row), str(len(row["runs"])), machines(row)]
        cells.append(mean_text(list(by_seed(row, "bleu").values())))
        cells.append(cell(bleu_minus.get(name), better=1))
        cells.append(f"{statistics.mean(bits_of(row).values()):.3f}")
        cells.append(cell(bits_minus.get(name), better=-1, form="+.3f"))
        lines.append(cells)
    return Table(columns, lines, f"All cells. {sources(record)}{rule_of(record, reference)}")


def sources(record: Record) -> str:
    """Say which cells come from which other record."""
    cells: dict[str, list[str]] = {}
    for name, row in record["rows"].items():
        for source in {run["record"] for run in row["runs"] if "record" in run}:
            cells.setdefault(source, []).append(name)
    texts = [f"`{source}` has trained {'; '.join(names)}. " for source, names in cells.items()]
    return "".join(texts)


def machines(row: dict[str, Any]) -> str:
    """Describe the machines that trained a cell's runs."""
    devices = {", ".join(run.get("gpus", [])) or run.get("cpu", "–") for run in row["runs"]}
    return "; ".join(sorted(devices))


# ---- the picture -------------------------------------------------------------------------------


def draw_rates(record: Record, path: Path) -> None:
    """Draw the lowest validation loss and BLEU by peak rate: each seed, and the mean."""
    figure, axes = figure_of(1, 2, size=(10, 4))
    for number, (model, cells) in enumerate(cells_by_model(record).items()):
        color = f"C{number}"
        rates = [row["rate"] for row in cells.values()]
        for axis, values in (
            (axes[0], [list(bits_of(row).values()) for row in cells.values()]),
            (axes[1], [list(by_seed(row, "bleu").values()) for row in cells.values()]),
        ):
            means = [statistics.mean(each) for each in values]
            axis.plot(rates, means, "o-", color=color, label=model)
            for rate, each in zip(rates, values, strict=True):
                axis.plot([rate] * len(each), each, ".", color=color, alpha=0.5)
    for axis, title in zip(axes, ("validation nll, bits", "BLEU"), strict=True):
        axis.set_xscale("log", base=2)
        ticks = sorted({row["rate"] for row in record["rows"].values()})
        axis.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
        axis.set_xlabel("peak learning rate")
        axis.set_ylabel(title)
    axes[0].legend(fontsize=8)
    save_figure(figure, path)


make = RatesExperiment
