"""Scores: BLEU against its formula, and what cannot be scored."""

import json
import math

import pytest

from vaswani import cli
from vaswani.demo_report import nearest, number_rows, numbers_right, share
from vaswani.errors import UserError
from vaswani.generate import in_order
from vaswani.score import score_files


def write(path, *lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_tokenised_bleu_is_the_geometric_mean_with_brevity_penalty(tmp_path):
    """6 of 6, 4 of 5, 2 of 4 and 1 of 3 n-grams match; 6 tokens against 7."""
    hypotheses = write(tmp_path / "h", "a b c d f g")
    references = write(tmp_path / "r", "a b c d e f g")
    precisions = (6 / 6, 4 / 5, 2 / 4, 1 / 3)
    expected = 100 * math.prod(precisions) ** 0.25 * math.exp(1 - 7 / 6)
    found = score_files(hypotheses, references, tokenised=True)["bleu_tokenised"]
    assert found["score"] == pytest.approx(expected, abs=0.005)
    assert "tok:none" in found["signature"]


def test_equal_files_score_100_with_a_signature(tmp_path, capsys):
    lines = ["Das kostet 3,50 €, sagte er.", "Am 3. März 1987 war es kalt."]
    hypotheses, references = write(tmp_path / "h", *lines), write(tmp_path / "r", *lines)
    arguments = ["--hypotheses", str(hypotheses), "--references", str(references)]
    assert cli.main(["score", *arguments]) == 0
    assert "tok:13a" in capsys.readouterr().out
    left = json.loads((tmp_path / "h.score.json").read_text(encoding="utf-8"))
    assert left["bleu"]["score"] == left["chrf"]["score"] == 100.0
    assert left["bleu"]["lines"] == 2


@pytest.mark.parametrize(
    ("hypotheses", "references", "said"),
    [(["a"], ["a", "b"], "1 lines"), ([], ["a"], "is empty"), (["", " "], ["a", "b"], "is empty")],
)
def test_what_cannot_be_scored(tmp_path, hypotheses, references, said):
    with pytest.raises(UserError, match=said):
        score_files(write(tmp_path / "h", *hypotheses), write(tmp_path / "r", *references), True)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="no file .*nowhere"):
        score_files(tmp_path / "nowhere", tmp_path / "r", False)


def test_translations_come_back_in_order_and_none_is_lost():
    """Batches come in any order, n-best in groups; 2 is blank, 4 was too long."""
    found = ["S-1\tx y\n", "H-1\t-0.5\tb@@ c d\n", "H-1\t-0.9\tworse\n", "S-0\tx\n", "H-0\t-1\ta\n"]
    found += ["S-2\t\n", "H-2\t-1\tnoise\n", "S-4\tx\n", "H-4\t-1\te@@\n"]
    assert in_order(found, 5) == (["a", "bc d", "", "", "e"], [4])


def test_nearest_is_the_largest_dice_coefficient():
    """2·2/(3+3) for the first and third, 2·3/(3+4) for the second; the first of equals."""
    known = ["the red house", "the blue house stands", "the blue car"]
    assert nearest(["the blue house", "entirely unknown"], known) == [1, 0]


def test_numbers_are_counted_each(tmp_path):
    table = write(tmp_path / "v.tsv", "sentence\tvalue\ttext", "1\tn:7\tsieben", "1\tn:8\tacht")
    rows = number_rows(write(table, *table.read_text().splitlines(), "2\tn:47\t47"))
    assert rows == [(0, "sieben"), (0, "acht"), (1, "47")]
    assert numbers_right(rows, ["sieben oder neun", "147"]) == 33.3
    assert share([True, True, True, False]) == 75.0
