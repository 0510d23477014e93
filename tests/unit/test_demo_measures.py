"""What is measured of translations of the demo's text."""

import pytest

from experiments.demo_measures import has_number, numbers_right, share


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("47", "Es sind 47 Äpfel.", True),
        ("47", "Es sind 147 Äpfel.", False),
        ("47", "47,5 Grad", False),
        ("47", "1 047 Grad", False),
        ("47", "um 47.", True),
        ("deux cent trois", "deux cent trois pommes", True),
        ("deux cent trois", "mille deux cent trois pommes", False),
        ("vingt", "vingt et un jours", False),
    ],
)
def test_a_number_counts_where_it_is_complete(number, text, expected):
    assert has_number(number, text) is expected


def test_shares_are_in_per_cent():
    assert share([True, False, False]) == 33.3
    assert numbers_right([(0, "3"), (1, "4")], ["3 Tage", "40 Tage"]) == 50.0
