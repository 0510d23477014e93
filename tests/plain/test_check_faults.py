"""Faults planted in models of three other styles: the card names each first, and says what it is.

The faults are in tests/plain/check_styles/faults; `python -m tests.plain.check_styles.score` prints
how many are found and named.
"""

from functools import lru_cache
from typing import Any

import pytest

from tests.plain.check_styles.faults import FAULTS, KINDS
from tests.plain.check_styles.faults.fault import Fault
from tests.plain.check_styles.planting import SIZES, STYLES, card_of, card_of_size, score, text_of
from transformer_check import Card
from transformer_check.card import Result, find_problems
from transformer_check.findings import DIFFERENCE, ERROR, Finding, differs
from transformer_check.registry import Check

QUICK = {
    "padding": "the mask is the first sentence's",
    "training loss": "the target is not shifted",
    "attention": "ReLU on queries and keys",
    "norms": "a norm of each sub-layer's output",
    "sharing": "one encoder layer n times",
    "training": "AMSGrad",
    "embeddings": "the exponent is doubled",
    "public models": "positions are added again in later layers",
    "public training": "training's softmax is over positions",
    "subtle models": "the mask of an earlier batch is used again",
    "subtle training": "training is in evaluation mode",
    "unseen": "mean and variance of the norm have no gradient",
}
"""kind → a fault of it that is planted in the default tests; decoding takes seconds"""
UNNAMED = {
    ("multihead", "training has a temperature"),
}
"""(style, fault): those known to be given another cause"""
PLANTED = [(style, fault) for fault in FAULTS for style in fault.styles()]


@lru_cache(maxsize=None)
def clean_card(style: str, searches: bool = False) -> Card:
    """Return the card of a clean style; with translate if ``searches``."""
    return card_of(style, searches=searches)


def id_of(value: Any) -> str:
    return value.name if isinstance(value, Fault) else str(value)


@pytest.mark.parametrize("style", STYLES)
def test_a_clean_model_has_no_difference(style: str) -> None:
    card = clean_card(style)
    assert not card.ids(DIFFERENCE, ERROR), card.text()


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", SIZES)
def test_a_clean_model_of_any_size_has_no_difference(style: str, size: str) -> None:
    card = card_of_size(style, size)
    assert not card.ids(DIFFERENCE, ERROR), card.text()


@pytest.mark.parametrize("kind", QUICK)
def test_a_fault_of_each_kind_is_named_first(kind: str) -> None:
    fault = next(fault for fault in KINDS[kind] if fault.name == QUICK[kind])
    style = fault.styles()[len(kind) % len(fault.styles())]
    result = score(style, fault, clean_card(style))
    assert result.is_named, result.problems


@pytest.mark.slow
@pytest.mark.parametrize(("style", "fault"), PLANTED, ids=id_of)
def test_a_planted_fault_is_named_first(style: str, fault: Fault) -> None:
    result = score(style, fault, clean_card(style, fault.searches))
    if (style, fault.name) in UNNAMED and not result.is_named:
        pytest.xfail("known to be unnamed")
    assert result.is_named, result.problems


def test_every_fault_changes_the_text() -> None:
    for style, fault in PLANTED:
        assert text_of(style, fault) != text_of(style), fault.name


def test_names_of_faults_are_unique() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names))
    assert {(style, fault.name) for style, fault in PLANTED} >= UNNAMED


def test_checks_that_explain_each_other_are_one_problem() -> None:
    def result(check_id: str, explained: str) -> Result:
        check = Check(check_id, "3", passes="", fails=f"{check_id}.", look=lambda _: Finding())
        return Result(check, differs("1", "2", explains=(explained,)))

    problems = find_problems([result("one", "two"), result("two", "one")])
    assert [problem.check.id for problem in problems] == ["one"]
    assert [each.check.id for each in problems[0].consequences] == ["two"]
