"""The rule for differences and intervals (experiments/), on data whose answer is known."""

import io
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from experiments import harness, records
from experiments.intervals import (
    Difference,
    Layout,
    differences,
    holm,
    mean_text,
    rule,
    signed_text,
)
from experiments.record_files import write_record_files
from experiments.sentences import (
    COUNTS,
    bleu_of,
    counts_of,
    keep_counts,
    read_counts,
    widths_over_both,
)
from experiments.system_tables import OVER_BOTH, add_widths_over_both
from tests.files import write
from vaswani.common.files import sha256_of
from vaswani.scoring.score_input import AlignedLines

ROOT = Path(__file__).resolve().parents[2]
COUNTED = [
    path.parent
    for path in sorted(ROOT.glob("experiments/**/records/*/record.json"))
    if OVER_BOTH in path.read_text(encoding="utf-8")
]

# yields of penicillin by four processes, from five blends of corn liquor: Box, Hunter and Hunter,
# Statistics for Experimenters, table 4.4; their analysis of variance has s² = 18.83, 12 degrees
PENICILLIN = {
    "A": {1: 89.0, 2: 84.0, 3: 81.0, 4: 87.0, 5: 79.0},
    "B": {1: 88.0, 2: 77.0, 3: 87.0, 4: 92.0, 5: 81.0},
    "C": {1: 97.0, 2: 92.0, 3: 87.0, 4: 89.0, 5: 80.0},
    "D": {1: 94.0, 2: 79.0, 3: 85.0, 4: 84.0, 5: 88.0},
}


def test_a_textbooks_two_way_layout() -> None:
    """C - A is 89 - 84; ± is t(12) = 2.179 times √(2 s² / 5)."""
    layout = Layout(PENICILLIN)
    assert layout.degrees == 12
    assert layout.variance == pytest.approx(226 / 12)
    minus_a = differences(PENICILLIN, "A")
    assert {row: d.value for row, d in minus_a.items()} == {"B": 1.0, "C": 5.0, "D": 2.0}
    for difference in minus_a.values():
        assert difference.width == pytest.approx(2.1788 * math.sqrt(2 * 226 / 12 / 5), abs=1e-3)
        assert difference.degrees == 12 and difference.seeds == 5 and not difference.shown


def test_two_rows_are_a_paired_t_test() -> None:
    """Also if each lacks a seed: of seeds 1 and 3, whose differences are 1 and 3, t = 12.71."""
    values = {"ours": {1: 1.0, 3: 1.0, 4: 7.0}, "theirs": {1: 2.0, 2: 9.0, 3: 4.0}}
    difference = differences(values, "ours")["theirs"]
    assert difference.value == 2.0 and difference.degrees == 1 and difference.seeds == 2
    assert difference.width == pytest.approx(12.706, abs=1e-3)
    assert difference.p == pytest.approx(1 - 2 / math.pi * math.atan(2.0), abs=1e-6)  # Cauchy's


def test_a_missing_cell_is_compared_by_the_seeds_of_all_rows() -> None:
    """Without errors the rows differ by what they were made with, whatever is missing."""
    rows = {"ours": 30.0, "a": 31.0, "b": 28.0}
    seeds = {1: 0.0, 2: 1.5, 3: -4.0}
    values = {row: {seed: r + s for seed, s in seeds.items()} for row, r in rows.items()}
    del values["ours"][1], values["a"][2], values["b"][1], values["b"][2]
    minus = differences(values, "ours")
    assert minus["a"].value == pytest.approx(1.0) and minus["b"].value == pytest.approx(-2.0)
    assert (minus["a"].seeds, minus["b"].seeds) == (1, 1)


def test_rows_without_a_common_seed_are_not_compared() -> None:
    assert differences({"ours": {1: 1.0}, "theirs": {2: 1.0}}, "ours") == {}
    assert mean_text([]) == "–"


def test_one_seed_each_has_a_difference_and_no_interval() -> None:
    (difference,) = differences({"ours": {1: 30.0}, "theirs": {1: 31.0}}, "ours").values()
    assert difference == Difference(1.0, None, 0, None, 1)
    assert difference.text() == "+1.00" and not difference.shown


def test_fewer_than_three_seeds_show_nothing() -> None:
    """However small p is; the third seed of the other rows makes the variance no smaller."""
    noise = {1: 0.0, 2: 0.01, 3: -0.02}
    values = {
        "ours": {seed: 30.0 + seed for seed in noise},
        "two": {seed: 35.0 + seed + noise[seed] for seed in (1, 2)},
        "three": {seed: 25.0 + seed - noise[seed] for seed in noise},
    }
    minus = differences(values, "ours")
    two_p, three_p = minus["two"].p, minus["three"].p
    assert two_p is not None and three_p is not None and max(two_p, three_p) < 0.001
    assert not minus["two"].shown and minus["three"].shown


def test_holms_method_by_an_example() -> None:
    """The smallest of four times 4, the next times 3; none below the one before it."""
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert corrected == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.6}) == {"b": 1.0, "a": 1.0}


def simulated(rng: Any, effects: dict[str, float], missing: bool) -> dict[str, dict[int, float]]:
    """Return a random table of three seeds: effects of rows and seeds, errors of deviation 0.4."""
    seeds = {seed: rng.normal(0, 1) for seed in (1, 2, 3)}
    values = {}
    for row, effect in effects.items():
        cells = {seed: effect + s + rng.normal(0, 0.4) for seed, s in seeds.items()}
        values[row] = cells
    if missing:
        del values["b"][3], values["c"][1], values["c"][2]
    return values


@pytest.mark.parametrize("missing", [False, True])
def test_nineteen_of_twenty_intervals_have_the_true_difference(missing: bool) -> None:
    """The share of 800 tables, of each row, is binomial: within four deviations of 95 %."""
    effects = {"ours": 30.0, "a": 31.0, "b": 30.0, "c": 28.0, "d": 30.5}
    tables = 800
    covered = dict.fromkeys([row for row in effects if row != "ours"], 0)
    rng = np.random.default_rng(1)
    for _ in range(tables):
        for row, minus in differences(simulated(rng, effects, missing), "ours").items():
            assert minus.width is not None
            covered[row] += abs(minus.value - (effects[row] - effects["ours"])) < minus.width
    deviation = (0.95 * 0.05 / tables) ** 0.5
    for row, count in covered.items():
        assert abs(count / tables - 0.95) < 4 * deviation, row


def test_a_table_of_equal_rows_shows_a_difference_in_one_of_twenty() -> None:
    """In any of its rows: without Holm's method it would be one of eight."""
    rng = np.random.default_rng(2)
    equal = dict.fromkeys(("ours", "a", "b", "c", "d"), 30.0)
    tables = 800
    corrected = 0
    for _ in range(tables):
        minus = differences(simulated(rng, equal, missing=False), "ours").values()
        corrected += any(difference.shown for difference in minus)
    assert 0.01 < corrected / tables < 0.05 + 4 * (0.95 * 0.05 / tables) ** 0.5


def test_a_difference_is_printed_with_its_interval_and_p() -> None:
    assert Difference(1.766, 0.758, 12, 0.00157, 3).text() == "+1.77 ± 0.76 (p 0.0016)"
    assert Difference(-0.001, 0.6, 12, 1e-9, 3).text() == "+0.00 ± 0.60 (p < 0.001)"
    assert signed_text(-20.0, "+.0f") == "-20" and signed_text(-0.04, "+.1f") == "+0.0"
    text = rule(PENICILLIN, "A")
    assert "12 degrees of freedom" in text and "Holm's method for 3 rows" in text
    assert "two-sided t test" in text


def test_a_mean_is_printed_with_each_value_and_no_other_interval() -> None:
    assert mean_text([1, 2, 3]) == "2.00 (1.00, 2.00, 3.00)"
    assert mean_text([1, 2], ".0f") == "2 (1, 2)"
    assert mean_text([4], ".1f") == "4.0"


# ---- the bootstrap over seeds and sentences ----------------------------------------------------


def counts(matches: Any) -> Any:
    """Return BLEU's counts of sentences of 13 words, with ``matches`` of 10 of each n-gram."""
    length = np.full(len(matches), 13)
    lines = [length, length, *[matches] * 4, *[np.full(len(matches), 10)] * 4]
    return np.stack(lines, axis=1)


def test_bleu_of_counts_is_sacrebleus() -> None:
    hypotheses = ["the cat sat on the mat .", "a dog barks at me", "it's late today, isn't it?"]
    references = ["the cat sat on a mat .", "the dog barks at me now", "it is late, isn't it?"]
    lines = AlignedLines(hypotheses, references, (Path("h"), Path("r")))
    for tokenised, name in ((False, "13a"), (True, "none")):
        expected = BLEU(tokenize=name, force=True).corpus_score(hypotheses, [references]).score
        of_counts = bleu_of(counts_of(lines, tokenised).sum(0))
        assert of_counts == pytest.approx(expected)
    assert bleu_of(counts(np.array([5, 7, 0])).sum(0)) == pytest.approx(40.0)


@pytest.mark.parametrize("seed_error", [0.0, 0.5])
def test_the_width_over_both_is_that_of_the_sentences_and_of_the_seeds(seed_error: float) -> None:
    """BLEU is a mean over sentences here, so that its variance is known; seeds add theirs."""
    rng = np.random.default_rng(3)
    sentences = 2000
    ours = rng.integers(2, 8, sentences)
    theirs = np.clip(ours + rng.integers(-2, 4, sentences), 0, 10)
    seeds = range(1, 21)
    matches = {"ours": ours, "theirs": theirs}
    of_cell = {(row, seed): counts(each) for row, each in matches.items() for seed in seeds}
    values: dict[str, dict[int, float]] = {"ours": {}, "theirs": {}}
    for row, seed in of_cell:
        values[row][seed] = 10 * float(matches[row].mean()) + rng.normal(0, seed_error)
    of_sentences = float(10 * (theirs - ours).std()) / sentences**0.5
    of_seeds = 0.0
    if seed_error:
        paired = [values["theirs"][seed] - values["ours"][seed] for seed in seeds]
        of_seeds = statistics.stdev(paired) / len(paired) ** 0.5
    expected = 1.96 * math.hypot(of_sentences, of_seeds)
    assert widths_over_both(values, of_cell, "ours")["theirs"] == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("folder", COUNTED, ids=lambda folder: folder.parents[1].name)
def test_a_records_counts_are_those_of_its_scores(folder: Path) -> None:
    """And the widths over seeds and sentences follow from them."""
    record = records.read_record(folder)
    bleu = {}
    for row in record["rows"].values():
        for run in row["runs"]:
            bleu[Path(run["run"]).name] = run["bleu"]
    for name, of_run in read_counts(folder).items():
        assert float(bleu_of(of_run.sum(0))) == pytest.approx(bleu[name], abs=0.006)
    written = {name: row.get(OVER_BOTH) for name, row in record["rows"].items()}
    assert any(written.values())
    name = folder.parents[1].relative_to(ROOT / "experiments").as_posix()
    harness.find(name).derive(record, folder)
    for name, row in record["rows"].items():
        assert row.get(OVER_BOTH) == pytest.approx(written[name], abs=0.002)


def test_counts_are_kept_where_the_references_are_here(tmp_path: Path) -> None:
    """Those that are there stay: references may be elsewhere the next time."""
    references = write(tmp_path / "data" / "test.de", "a b c d\ne f g h")
    sides = {
        "hypotheses": {"file": "eval/test.hyp"},
        "references": {"file": str(references), "sha256": sha256_of(references)},
    }
    scores = json.dumps({"files": {"text": sides}}).encode()
    files = {"x_seed1.test.hyp": b"a b c d\ne f g x\n", "x_seed1.score.json": scores}
    write_record_files(tmp_path, files)
    keep_counts(tmp_path, ["x_seed1"])
    (name,) = kept = read_counts(tmp_path)
    assert name == "x_seed1" and kept[name][:, 2].tolist() == [4, 3]
    references.unlink()
    keep_counts(tmp_path, ["x_seed1", "y_seed1"])
    assert list(read_counts(tmp_path)) == ["x_seed1"]
    assert read_counts(tmp_path / "data") == {}


def test_counts_of_other_translations_are_not_used(tmp_path: Path) -> None:
    """A record may be written anew, where references are not at hand."""
    matches = {"ours_seed1": 40.0, "ours_seed2": 40.0, "a_seed1": 50.0, "a_seed2": 60.0}
    arrays = {}
    for name, bleu in matches.items():
        arrays[name] = counts(np.full(20, round(bleu / 10)))
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    write_record_files(tmp_path, {COUNTS: stream.getvalue()})
    rows: dict[str, Any] = {"ours": {"runs": []}, "a": {"runs": []}}
    for name, bleu in matches.items():
        rows[name.partition("_")[0]]["runs"].append({"run": f"runs/{name}", "bleu": bleu})
    record = {"rows": rows}
    add_widths_over_both(record, tmp_path)
    assert rows["a"][OVER_BOTH] > 0
    rows["a"]["runs"][0]["bleu"] = 51.0
    add_widths_over_both(record, tmp_path)
    assert OVER_BOTH not in rows["a"]
