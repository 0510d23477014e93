"""The arithmetic of the benchmarks. What they measure is not tested."""

import json

import pytest

from benchmarks import compare as comparing
from benchmarks.curves import Group, Log, read_log, row_of, updates_to
from benchmarks.decode import configurations, sweep
from benchmarks.run import record_name
from benchmarks.table import compare, markdown, median_and_range

CURVE = {100: 4.0, 200: 3.5, 300: 2.5}


def test_ratio_is_taken_round_by_round():
    """A machine that is twice as slow in the second round changes no ratio."""
    rounds = {
        "theirs": [{"tokens": 100, "seconds": 2.0}, {"tokens": 100, "seconds": 4.0}],
        "ours": [{"tokens": 100, "seconds": 1.0}, {"tokens": 100, "seconds": 2.0}],
    }
    theirs, ours = compare(rounds)
    assert theirs["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert ours["ratio"] == {"median": 2.0, "min": 2.0, "max": 2.0}
    assert ours["tokens/s"] == {"median": 75.0, "min": 50.0, "max": 100.0}


def test_a_spread_is_one_cell_and_a_missing_figure_a_dash():
    ratio = median_and_range([1.0, 1.5, 1.25])
    rows = [{"system": "a", "ratio": ratio}, {"system": "b", "MB": 1234.5}]
    cells = ["| a | 1.25 (1–1.5) | – |", "| b | – | 1,234 |"]
    assert markdown(rows).splitlines()[2:] == cells


def test_each_system_uses_the_cores_as_is_best_for_it():
    tried = configurations("cpu", 4)
    assert tried == [(4, 1), (1, 1), (1, 4)] and configurations("cuda", 4) == [(4, 1)]

    class Timed:
        def __init__(self, *times):
            self.seconds = dict(zip(tried, times, strict=True))

        def translate(self, how, size, count):
            return {"tokens": 12, "seconds": self.seconds[how]}

    best, _ = sweep({"threads": Timed(1, 4, 2), "workers": Timed(3, 4, 2)}, tried, 32, 200)
    assert best == {"threads": (4, 1), "workers": (1, 4)}


def test_a_record_is_named_by_hardware_and_date():
    facts = {"device": "cpu", "cpu": "Intel(R) Xeon(R) CPU @ 2.70GHz", "gpus": [], "cores": 2}
    facts["time"] = "2026-11-21T10:00:00Z"
    assert record_name(facts, ["train"]) == "intel-xeon-cpu-2cpu_2026-11-21_train"


def test_two_records_are_compared_in_the_rows_that_both_have(tmp_path, capsys):
    for name, ratio in (("old", 1.0), ("new", 1.5)):
        rows = [{"work": "base", "system": "ours", "ratio": median_and_range([ratio])}]
        rows.append({"work": name, "system": "ours", "ratio": median_and_range([9.0])})
        record = {"machine": {}, "results": {"train": {"rows": rows}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    comparing.main([str(tmp_path / "old.json"), str(tmp_path / "new.json")])
    assert capsys.readouterr().out.splitlines()[2:] == ["| train base ours | 1 | 1.5 | 1.5 |"]


@pytest.mark.parametrize(
    ("target", "updates"), [(4.5, 100), (3.75, 150), (3.0, 250), (2.5, 300), (2.4, None)]
)
def test_updates_to_a_loss_are_linear_between_validations(target, updates):
    assert updates_to(target, CURVE) == updates
    assert updates_to(3.0, {1: 4.0, 3: 2.0, 4: 5.0, 5: 1.0}) == 2  # though it rises again


def test_a_log_is_read_in_the_order_of_its_updates(tmp_path):
    lines = [{"valid_nll_loss": str(CURVE[n]), "valid_num_updates": str(n)} for n in (200, 100)]
    lines.append({"train_wpb": 700.0, "train_num_updates": 9})
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    log = read_log(tmp_path)
    assert list(log.curve.items()) == [(100, 4.0), (200, 3.5)] and log.tokens == 700


def test_a_row_tells_updates_and_seconds_over_the_seeds():
    """Two seeds: 250 and 350 updates of 700 tokens, at 1,400 tokens a second."""
    logs = [Log(CURVE, 700), Log({u + 100: nll for u, nll in CURVE.items()}, 700)]
    row = row_of(Group("ours", logs, 1400.0))
    assert row["updates to 3.0"] == {"median": 300, "min": 250, "max": 350}
    assert row["seconds to 3.0"] == {"median": 150, "min": 125, "max": 175}
