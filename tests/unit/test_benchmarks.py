"""The arithmetic of the benchmarks. What they measure is not tested."""

import pytest

from benchmarks.curves import Group, Log, row_of, updates_to
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


@pytest.mark.parametrize(
    ("target", "updates"), [(4.5, 100), (3.75, 150), (3.0, 250), (2.5, 300), (2.4, None)]
)
def test_updates_to_a_loss_are_linear_between_validations(target, updates):
    assert updates_to(target, CURVE) == updates
    assert updates_to(3.0, {1: 4.0, 3: 2.0, 4: 5.0, 5: 1.0}) == 2  # though it rises again


def test_a_row_tells_updates_and_seconds_over_the_seeds():
    """Two seeds: 250 and 350 updates of 700 tokens, at 1,400 tokens a second."""
    logs = [Log(CURVE, 700), Log({u + 100: nll for u, nll in CURVE.items()}, 700)]
    row = row_of(Group("ours", logs, 1400.0))
    assert row["updates to 3.0"] == {"median": 300, "min": 250, "max": 350}
    assert row["seconds to 3.0"] == {"median": 150, "min": 125, "max": 175}
