"""Peak learning rates: of every row of every record, and of the experiment that asks for them."""

from math import isclose
from pathlib import Path
from typing import Any

import pytest

from experiments import harness, records
from experiments.curves import numbers_in_line, recorded_log_path
from experiments.fairseq_runs import FairseqExperiment, FairseqRow, config_of, peak_rate
from experiments.rates import experiment as rates
from experiments.record_files import record_file, record_lines
from tests.files import needs_records, write
from tests.records import experiment_of, records_of_experiments
from vaswani.common.environment import machine
from vaswani.common.find import find_config

TRAINED_BY_FAIRSEQ = [
    folder
    for folder in records_of_experiments()
    if isinstance(experiment_of(folder), FairseqExperiment)
]


def config_at(plan: FairseqRow, rate: float) -> Any:
    """Return the configuration of a row at one of the rates that it may choose."""
    change = plan.rates.get(rate, [])
    return config_of(find_config(plan.base).resolve(), (*plan.change, *change))


@pytest.mark.parametrize("folder", TRAINED_BY_FAIRSEQ, ids=lambda path: "_".join(path.parts[-3::2]))
def test_a_records_rates_are_those_of_its_rows_and_of_its_logs(folder: Path) -> None:
    """The rate that a log has after the warm-up, or in it, is the schedule's with this peak."""
    experiment = experiment_of(folder)
    assert isinstance(experiment, FairseqExperiment)
    for name, row in records.read_record(folder)["rows"].items():
        config = config_at(experiment.plans[name], row["rate"])
        assert peak_rate(config) == pytest.approx(row["rate"])
        warm_up = config.lr_scheduler.warmup_updates
        for run in row["runs"]:
            log = recorded_log_path(folder, run)
            lines = [numbers_in_line(line) for line in record_lines(log.parent, log.name)]
            last = [line for line in lines if "train_lr" in line][-1]
            update = last["train_num_updates"]
            expected = row["rate"] * min(update / warm_up, (warm_up / update) ** 0.5)
            assert isclose(last["train_lr"], expected, rel_tol=0.002), run["run"]


# ---- the experiment ----------------------------------------------------------------------------


def row(rate: float, *figures: tuple[float, float]) -> dict[str, Any]:
    """Return a cell with BLEU and perplexity of each seed."""
    runs = []
    for seed, (bleu, perplexity) in enumerate(figures, 1):
        runs.append({"run": f"runs/r/x_{rate}_seed{seed}", "bleu": bleu, "perplexity": perplexity})
    return {"rate": rate, "runs": runs}


RECORD = {
    "rows": {
        "paper, 0.002": row(0.002, (33.0, 5.2), (32.0, 5.1), (33.2, 5.2)),
        "paper, 0.004": row(0.004, (34.0, 5.0), (33.1, 5.0), (34.2, 5.1)),
        "paper, 0.008": row(0.008, (35.0, 5.4), (36.0, 5.5), (35.5, 5.5)),
        "rotary positions, 0.002": row(0.002, (36.0, 4.6), (35.2, 4.5), (36.3, 4.6)),
        "rotary positions, 0.008": row(0.008, (34.3, 5.0)),
        "pre-norm, 0.008": row(0.008, (34.1, 5.1), (33.0, 5.1), (34.1, 5.0)),
    }
}


def test_the_best_rate_is_chosen_by_validation() -> None:
    """The paper's model has its best test score at another rate than its best validation loss."""
    best = rates.best_cells(RECORD)["rows"]
    assert {model: cell["rate"] for model, cell in best.items()} == {
        "paper": 0.004,
        "rotary positions": 0.002,
        "pre-norm": 0.008,
    }


def test_each_model_is_compared_at_its_own_best_rate() -> None:
    """Cells that nobody has trained are left out; a best rate at the edge of those is named."""
    best = rates.best_table(RECORD).rows
    cells = rates.cell_table(RECORD).rows
    (rotary,) = [line for line in best if line[0] == "rotary positions"]
    assert rotary[1:4] == ["0.002, 0.008", "0.002", "3"]
    assert rotary[6].startswith("+2.07 ± ") and rotary[6].endswith(": better")
    (pre_norm,) = [line for line in best if line[0] == "pre-norm"]
    assert pre_norm[6].endswith(": not significant")
    assert [line[0] for line in cells] == list(RECORD["rows"])
    (one_seed,) = [line for line in cells if line[0] == "rotary positions, 0.008"]
    assert one_seed[2] == "1" and one_seed[5].endswith(": too few seeds")
    note = rates.best_table(RECORD).note
    assert "significantly higher: rotary positions (+2.07, at 0.002)" in note
    assert "no significant difference: pre-norm" in note
    assert "another rate may be better: rotary positions, pre-norm." in note


@needs_records
def test_a_record_of_the_rates_takes_cells_of_other_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a record is made of the files that it copies."""
    monkeypatch.chdir(tmp_path)
    experiment = harness.find("rates")
    facts = {**machine("cpu"), "command": "python -m experiments rates"}
    record: records.Record = {"machine": facts, "table": "rates", "expected": "", "rows": {}}
    experiment.complete(record, None)
    assert {"paper, 0.004", "rotary positions, 0.008"} <= record["rows"].keys()
    folder = records.write_record(experiment, record, tmp_path / "records", None)
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert "34.34 (34.48, 34.28, 34.26)" in page and "2.353" in page
    assert "| relative positions | 0.004, 0.008 | 0.004 | 3 |" in page
    assert "since2017/records/2026-11-27_nvidia-h100-80gb-hbm3` has trained paper, 0.004" in page
    assert record_file(folder, "rotary_positions_seed1.jsonl")
    before = (folder / "record.json").read_bytes()
    records.write_page(experiment, folder)
    assert (folder / "record.json").read_bytes() == before
    assert (folder / "page.md").read_text(encoding="utf-8") == page


@needs_records
def test_a_cell_that_is_trained_here_is_not_taken_from_elsewhere() -> None:
    """As soon as it has as many seeds; seeds of two places are not mixed."""
    experiment = harness.find("rates")
    here = row(0.004, (30.0, 6.0), (30.1, 6.0), (30.2, 6.0))
    two_seeds = row(0.004, (30.0, 6.0), (30.1, 6.0))
    one_seed = row(0.002, (33.0, 5.0))
    rows = {"paper, 0.004": here, "SwiGLU, 0.004": two_seeds, "pre-norm, 0.002": one_seed}
    record = {"rows": rows}
    experiment.complete(record, None)
    assert record["rows"]["paper, 0.004"] == here
    assert record["rows"]["pre-norm, 0.002"] == one_seed
    taken = record["rows"]["SwiGLU, 0.004"]["runs"]
    assert len(taken) == 3 and all("since2017" in run["record"] for run in taken)
    record["rows"]["SwiGLU, 0.004"]["runs"] += two_seeds["runs"]  # as with an earlier record
    experiment.complete(record, None)
    assert record["rows"]["SwiGLU, 0.004"]["runs"] == taken[:3]
    names = list(record["rows"])
    assert names.index("paper, 0.004") < names.index("pre-norm, 0.002")
    assert names.index("pre-norm, 0.002") < names.index("pre-norm, 0.008")


@needs_records
def test_cells_of_other_records_were_trained_as_the_rows_ask() -> None:
    """But for the folder of the runs and the seed; the rate is the one in the cell's name."""
    experiment = harness.find("rates")
    assert isinstance(experiment, FairseqExperiment)
    for name, source in experiment.table["borrowed"].items():
        other = harness.find(source["record"].partition("/records/")[0])
        assert isinstance(other, FairseqExperiment)
        plan = other.plans[source["row"]]
        rate = rates.borrowed_row(source["record"], source["row"])["rate"]
        assert f"{rate:g}" == name.rpartition(", ")[2]
        assert config_at(plan, rate) == config_at(experiment.plans[name], rate), name


def test_a_page_of_no_record_is_refused(tmp_path: Path) -> None:
    page = write(tmp_path / "page.md", "by hand")
    assert harness.main(["rates", "--page", str(tmp_path)]) == 1
    assert page.read_text(encoding="utf-8").strip() == "by hand"
