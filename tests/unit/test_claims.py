"""README, docs/results.md, experiments/README.md: each interval and verdict is the records'.

A claim is a piece of a document, with ``{}`` where a difference and its interval stand,
``{value}`` for the difference alone, or ``{p}``. What it says of the difference, the row minus the
reference, is ``more``, ``less`` or ``not shown``. An interval that no claim accounts for is an
error.
"""

import re
import runpy
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import pytest

from experiments.intervals import Difference, differences
from experiments.neighbours.experiment import values_of as neighbours_values
from experiments.rates.experiment import best_cells
from experiments.system_tables import OVER_BOTH, minus_first, values_of
from tests.files import needs_records

pytestmark = needs_records
ROOT = Path(__file__).resolve().parents[2]
RECORD = runpy.run_path(str(ROOT / "scripts" / "results.py"))["record"]
README, RESULTS, EXPERIMENTS = "README.md", "docs/results.md", "experiments/README.md"
INTERVAL = re.compile(r"\d+(?:\.\d+)? ± \d+(?:\.\d+)?")
BLOCK = re.compile(r"<!-- results:(.*?) -->.*?<!-- /results:\1 -->", re.DOTALL)

FAIRSEQ, LSTM, RELATIVE = (
    "fairseq's Transformer",
    "LSTM, additive attention",
    "ours, relative positions",
)
BOTH, SWIGLU, WIDE = "all that pay", "SwiGLU", "fconv, wide"
ROTARY = "rotary positions"
TABLE3 = "table 3, Multi30k"


class Claim(NamedTuple):
    """A piece of a document, and the difference that it states: of a row from the reference."""

    document: str
    text: str
    record: str
    key: str
    row: str
    verdict: str
    decimals: int = 1


CLAIMS = [
    # README.md
    Claim(
        README,
        "significant difference, −{} BLEU on Multi30k",
        "equal updates",
        "bleu",
        FAIRSEQ,
        "not shown",
    ),
    Claim(README, "attention scores {} BLEU more than", "demo", "bleu", LSTM, "more"),
    Claim(README, "a convolutional model {} more", "demo", "bleu", "fconv", "more"),
    Claim(README, "add {} BLEU on everyday sentences", "everyday", "bleu", RELATIVE, "more"),
    Claim(README, "together with SwiGLU {}.", "since 2017", "bleu", BOTH, "more"),
    Claim(README, "Rotary positions add {}, but", "rates", "bleu", ROTARY, "more"),
    # docs/results.md, the summary
    Claim(
        RESULTS,
        "significant difference, −{} BLEU [after",
        "equal updates",
        "bleu",
        FAIRSEQ,
        "not shown",
    ),
    Claim(RESULTS, "with attention scores {} BLEU more", "demo", "bleu", LSTM, "more"),
    Claim(RESULTS, "and convolution {} more; our", "demo", "bleu", "fconv", "more"),
    Claim(RESULTS, "instead of three [costs {} BLEU]", TABLE3, "bleu", "C-n1", "less"),
    Claim(RESULTS, "relative positions add {} BLEU, and", "everyday", "bleu", RELATIVE, "more"),
    Claim(RESULTS, "together with SwiGLU [{}](", "since 2017", "bleu", BOTH, "more"),
    Claim(RESULTS, "rotary positions add {} BLEU. -", "rates", "bleu", ROTARY, "more"),
    Claim(
        RESULTS,
        "our model scores {} BLEU more than a GRU",
        "demo",
        "bleu",
        "GRU without attention",
        "less",
    ),
    # its sections
    Claim(RESULTS, "with attention scores {value} BLEU more", "demo", "bleu", LSTM, "more"),
    Claim(RESULTS, "and convolution {value} more (three", "demo", "bleu", "fconv", "more"),
    Claim(
        RESULTS, "and convolution {} more; on", "captions", "bleu", "fairseq's fconv", "not shown"
    ),
    Claim(
        RESULTS, "differ significantly: −{} BLEU for", "equal updates", "bleu", FAIRSEQ, "not shown"
    ),
    Claim(RESULTS, "positions add {} BLEU to our model", "everyday", "bleu", RELATIVE, "more"),
    Claim(RESULTS, "scores {} BLEU more than `fconv`", "everyday", "bleu", "fconv", "not shown"),
    Claim(RESULTS, "with {p} after the correction", "everyday", "bleu", "fconv", "not shown"),
    Claim(RESULTS, "significantly more than the LSTM, by {},", "everyday", "chrf", LSTM, "less"),
    Claim(RESULTS, "than `fconv`, by {}, but not", "everyday", "chrf", "fconv", "less"),
    Claim(RESULTS, "not than the wide `fconv` ({})", "everyday", "chrf", WIDE, "not shown"),
    Claim(RESULTS, "our model is {} bits lower", "everyday", "bits", "fconv", "more", decimals=3),
    Claim(RESULTS, "together, add {value} BLEU", "since 2017", "bleu", BOTH, "more"),
    Claim(RESULTS, "positions add {} BLEU and", "since 2017", "bleu", RELATIVE, "more", decimals=2),
    Claim(RESULTS, "SwiGLU {}, all at", "since 2017", "bleu", SWIGLU, "more", decimals=2),
    Claim(
        RESULTS, "costs {value} BLEU after these", "since 2017", "bleu", "BPE-dropout 0.1", "less"
    ),
    Claim(
        *(
            RESULTS,
            "validation loss falls by {} bits",
            "since 2017",
            "bits",
            "no label smoothing",
            "less",
        ),
        decimals=3,
    ),
    Claim(RESULTS, "they add {value} BLEU, at 0.008", "rates", "bleu", ROTARY, "more", decimals=2),
    Claim(RESULTS, "positions add {} BLEU to the", "rates", "bleu", ROTARY, "more", decimals=2),
    Claim(
        *(RESULTS, "model, relative positions {},", "rates", "bleu", "relative positions", "more"),
        decimals=2,
    ),
    Claim(RESULTS, "SwiGLU {}, relative", "rates", "bleu", SWIGLU, "more", decimals=2),
    Claim(
        *(RESULTS, "SwiGLU together {},", "rates", "bleu"),
        *("relative positions and SwiGLU", "more"),
        decimals=2,
    ),
    Claim(RESULTS, "and pre-norm {}.", "rates", "bleu", "pre-norm", "not shown", decimals=2),
    Claim(RESULTS, "{} fewer", "neighbours", "wrong_equal", "relative in both", "less"),
    Claim(RESULTS, "instead of three costs {} BLEU (", TABLE3, "bleu", "C-n1", "less"),
    Claim(RESULTS, "a d_k of 4 costs {} BLEU,", TABLE3, "bleu", "B-dk4", "not shown"),
    Claim(RESULTS, "one head scores {} BLEU more", TABLE3, "bleu", "A-h1", "not shown"),
    Claim(RESULTS, "no dropout {};", TABLE3, "bleu", "D-drop0", "not shown"),
    # experiments/README.md
    Claim(EXPERIMENTS, "ours by {} BLEU | 14", "captions", "bleu", "fairseq's fconv", "not shown"),
    Claim(EXPERIMENTS, "attention is ahead by {} BLEU", "demo", "bleu", LSTM, "more"),
    Claim(EXPERIMENTS, "BLEU, convolution by {} |", "demo", "bleu", "fconv", "more"),
    Claim(EXPERIMENTS, "positions add {} to ours", "everyday", "bleu", RELATIVE, "more"),
    Claim(EXPERIMENTS, "is shown, −{} BLEU", "equal updates", "bleu", FAIRSEQ, "not shown"),
    Claim(EXPERIMENTS, "depth, by {} BLEU", TABLE3, "bleu", "C-n1", "less"),
    Claim(EXPERIMENTS, "together {} BLEU;", "since 2017", "bleu", BOTH, "more"),
    Claim(EXPERIMENTS, "costs {}; two", "since 2017", "bleu", "BPE-dropout 0.1", "less"),
    Claim(EXPERIMENTS, "rotary positions, by {} BLEU, at", "rates", "bleu", ROTARY, "more"),
]
NOT_SHOWN = [
    # (record, figure, rows of which a document says that no difference is shown)
    ("captions", "bleu", [FAIRSEQ, LSTM, "fairseq's fconv"]),
    ("everyday", "bleu", [FAIRSEQ, LSTM, "fconv", WIDE]),
    ("since 2017", "bleu", ["RMSNorm", "no biases", "no label smoothing"]),
    ("since 2017", "bits", ["RMSNorm", "no biases", "pre-norm", ROTARY]),
]


def words(document: str) -> str:
    """Return a document's handwritten text, on one line."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return " ".join(BLOCK.sub("", text).split())


def difference_of(record: str, key: str, row: str) -> Difference:
    if key == "wrong_equal":  # sentences, which other records do not count
        return differences(neighbours_values(RECORD(record), key), "ours")[row]
    whole = RECORD(record)
    if record == "rates":  # each model at its best rate
        whole = best_cells(whole)
    return minus_first(whole, key)[row]


def verdict(difference: Difference) -> str:
    if not difference.shown:
        return "not shown"
    return "more" if difference.value > 0 else "less"


def filled(claim: Claim) -> str:
    """Return a claim's text with the figures of the record."""
    difference = difference_of(claim.record, claim.key, claim.row)
    assert difference.width is not None and difference.p is not None
    value = f"{abs(difference.value):.{claim.decimals}f}"
    interval = f"{value} ± {difference.width:.{claim.decimals}f}"
    p = f"p {difference.p:.2g}"
    return claim.text.replace("{}", interval).replace("{value}", value).replace("{p}", p)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.document}: {claim.text}")
def test_a_documents_interval_and_verdict_are_the_records(claim: Claim) -> None:
    assert filled(claim) in words(claim.document)
    assert verdict(difference_of(claim.record, claim.key, claim.row)) == claim.verdict


@pytest.mark.parametrize("document", [README, RESULTS, EXPERIMENTS])
def test_every_interval_of_a_document_is_claimed(document: str) -> None:
    """As often as it occurs."""
    claimed = Counter()
    for claim in CLAIMS:
        if claim.document == document:
            claimed.update(INTERVAL.findall(filled(claim)))
    assert Counter(INTERVAL.findall(words(document))) == claimed


@pytest.mark.parametrize(("record", "key", "rows"), NOT_SHOWN)
def test_what_the_documents_call_not_shown_is_not(record: str, key: str, rows: list[str]) -> None:
    for row in rows:
        assert not difference_of(record, key, row).shown, row


def test_differences_in_bleu_that_are_shown_are_so_over_sentences_too() -> None:
    """Where translations are kept: the summary says so."""
    text = words(RESULTS)
    assert "every significant difference in BLEU excludes zero by this interval, too" in text
    compared = 0
    for record in ("everyday", "since 2017", "since 2017, on a CPU"):
        whole = RECORD(record)
        for row, difference in minus_first(whole, "bleu").items():
            if difference.shown:
                assert abs(difference.value) > whole["rows"][row][OVER_BOTH], row
                compared += 1
    assert compared >= 5


def test_means_of_each_rate_in_the_text_are_the_records() -> None:
    """On which the answer depends whether a change helps or needs another rate."""
    text = words(RESULTS)
    record = RECORD("rates")
    means = {name: f"{mean(row.values()):.2f}" for name, row in values_of(record, "bleu").items()}
    rotary, relative = means["rotary positions, 0.004"], means["relative positions, 0.004"]
    assert (
        f"At 0.004 rotary positions have {rotary} BLEU and relative positions {relative};" in text
    )
    rotary, relative = means["rotary positions, 0.008"], means["relative positions, 0.008"]
    assert f"at 0.008 they have {rotary} and {relative}, not significantly more" in text
    assert f"the paper's model at 0.004 ({means['paper, 0.004']})" in text
    low, high = means["pre-norm, 0.004"], means["pre-norm, 0.008"]
    assert f"Pre-norm has {low} at 0.004 and {high} at 0.008." in text
    minus = minus_first(record, "bleu", "paper, 0.004")
    assert f"at 0.008 {minus['rotary positions, 0.008'].value:.2f}." in text
    for name in ("rotary positions", "relative positions", "pre-norm"):
        assert not minus[f"{name}, 0.008"].shown
    assert not minus["pre-norm, 0.004"].shown
    losses = {name: mean(row.values()) for name, row in values_of(record, "bits").items()}
    assert losses["paper, 0.004"] < min(losses["paper, 0.002"], losses["paper, 0.008"])


def test_the_text_names_our_models_bleu_on_each_text() -> None:
    for record, text in (
        ("demo", "Our model has {} BLEU there"),
        ("captions", "4,000 updates) our model has {} BLEU"),
        ("everyday", "2,500 updates) our model has {} BLEU"),
    ):
        bleu = values_of(RECORD(record), "bleu")["ours"].values()
        assert text.format(f"{sum(bleu) / len(bleu):.1f}") in words(RESULTS)


def test_equal_neighbours_are_fewer_with_relative_positions() -> None:
    """In sentences, of 30."""
    wrong = neighbours_values(RECORD("neighbours"), "wrong_equal")
    texts = {}
    for row in ("ours", "relative in both"):
        one, two, three = wrong[row].values()
        texts[row] = f"{one}, {two} and {three}"
    text = words(RESULTS)
    assert f"our model gets {texts['ours']} of these sentences wrong" in text
    assert f"with relative positions {texts['relative in both']}: " in text


def test_the_text_names_the_minutes_of_the_records() -> None:
    """SwiGLU and relative positions, in each record that has measured them."""
    text = words(RESULTS)
    ratios: dict[str, list[float]] = {RELATIVE: [], SWIGLU: []}
    for record in ("since 2017", "since 2017, on a CPU", "everyday"):
        rows = RECORD(record)["rows"]
        ours = rows["ours"]["runs"][0]["processor_seconds"]
        for row in ratios.keys() & rows.keys():
            more = rows[row]["runs"][0]["processor_seconds"] / ours - 1
            ratios[row].append(100 * more)
    relative = [f"{percent:.0f}" for percent in ratios[RELATIVE]]
    assert f"cost {relative[0]}, {relative[1]} and {relative[2]} % more CPU time" in text
    less, more = ratios[SWIGLU]
    assert f"SwiGLU {more:.0f} % more in one and {-less:.0f} % less in another" in text
