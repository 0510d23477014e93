"""The table of planted bugs is true of the sources, and its runner tells a catch from the rest."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bugs import (
    LETTERS,
    PAGE,
    PUBLISHED,
    PUBLISHED_RESULTS,
    QUIZ,
    curves,
    fill_in,
    fill_in_published,
    names_to_run,
)
from tests import mutation
from tests.mutants import MUTANTS
from tests.mutation import Mutant, chosen, judged, main, why_stale
from vaswani.common.errors import UserError


def test_names_are_different_and_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_no_entry_is_stale() -> None:
    """Its old text occurs once, the new one is another and is Python, its tests are there."""
    assert {mutant.name: why for mutant in MUTANTS if (why := why_stale(mutant))} == {}
    assert all(mutant.breaks for mutant in MUTANTS)


GOOD = Mutant("good", "a.py", "x = 1", "x = 2", "promise", ("unit/test_a.py::test_x[1]",))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({}, ""),
        ({"tests": ("unit/test_a.py",)}, ""),
        ({"file": "b.py"}, "there is no file b.py"),
        ({"old": "x = 3"}, "occurs 0 times in a.py"),
        ({"old": "x"}, "occurs 2 times in a.py"),
        ({"new": "x = 1"}, "is the old one"),
        ({"new": "x = = 2"}, "is not Python"),
        ({"tests": ()}, "no test is named"),
        ({"tests": ("unit/test_b.py",)}, "there is no file tests/unit/test_b.py"),
        ({"tests": ("unit/test_a.py::test_y",)}, "there is no test unit/test_a.py::test_y"),
    ],
)
def test_stale_entries_are_found(changed, message, tmp_path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").write_text("def test_x(): pass\n")
    (tmp_path / "a.py").write_text("x = 1\ny = x\n".replace("y = x", "y = -x"))
    found = why_stale(GOOD._replace(**changed), tmp_path)
    assert message in found and bool(message) == bool(found)


@pytest.mark.parametrize(
    "code, output, verdict",
    [
        (1, "FAILED tests/a.py::test_x[a b] - assert 1 == 2\n1 failed in 0.1s", "caught"),
        (1, "FAILED tests/a.py::test_x\n1 failed, 3 passed in 0.1s", "caught"),
        (1, "FAILED tests/a.py::test_x - NameError: name 'y'\n1 failed in 0.1s", "error"),
        (1, "FAILED tests/a.py::test_x - ImportError: y\n1 failed in 0.1s", "error"),
        (1, "ERROR tests/a.py::test_x - fixture\n1 error in 0.1s", "error"),
        (2, "ERROR tests/a.py - SyntaxError\n1 error in 0.1s", "error"),
        (4, "ERROR: not found: tests/a.py::test_x", "error"),
        (-1, "not done after 300 seconds", "error"),
        (0, "3 passed, 1 skipped in 0.1s", "survived"),
        (0, "4 skipped in 0.1s", "skipped"),
    ],
)
def test_only_a_failed_test_is_a_catch(code, output, verdict) -> None:
    assert judged(code, output)[0] == verdict


def test_one_bug_from_planting_to_verdict(tmp_path, monkeypatch, capsys) -> None:
    """A small project: one bug is caught, one survives, one's test fails without it."""
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "COPIED", ("tests", "a.py"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    text = "import a\ndef test_x(): assert a.x == 1\ndef test_z(): assert a.y == 3\n"
    (tmp_path / "tests" / "test_a.py").write_text(text)
    of_x = Mutant("x", "a.py", "x = 1", "x = 2", "promise of x", ("test_a.py::test_x",))
    table = [
        of_x,
        of_x._replace(name="y", old="y = 2", new="y = 4", breaks="promise of y"),
        of_x._replace(name="z", tests=("test_a.py::test_z",)),
        of_x._replace(name="slip", new="x = unknown"),
    ]
    monkeypatch.setattr(mutation, "why_stale", lambda mutant: "")
    assert main(table, ["--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "caught   x " in out and "promise of x" not in out
    assert "survived y " in out and "promise of y" in out
    assert "test_a.py::test_z fails without it" in out
    assert "error    slip " in out
    assert out.rstrip().splitlines()[-2] == "1 caught, 1 survived, 2 error"
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\n"


def test_an_interrupt_leaves_nothing_behind(tmp_path) -> None:
    """No copy in the temporary folder, and no pytest that goes on."""
    command = [sys.executable, "-m", "tests.mutants", "relu-missing"]
    process = subprocess.Popen(
        command,
        cwd=mutation.ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout.readline() == "1 tests with nothing planted\n"
    (folder,) = tmp_path.iterdir()
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message == "mutants: interrupted; nothing is left behind\n"
    assert not folder.exists()
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # another one has ended meanwhile
            assert str(folder).encode() not in command_line.read_bytes()


def test_names_of_bugs() -> None:
    assert [mutant.name for mutant in chosen(MUTANTS, ["relu-missing"])] == ["relu-missing"]
    with pytest.raises(UserError, match="no planted bug 'relu-mising': .* 'relu-missing'"):
        chosen(MUTANTS, ["relu-mising"])


def test_the_quiz_is_about_entries_of_the_table() -> None:
    """docs/bugs.md: each answer names the bug, its file and its test as the table has them."""
    page = PAGE.read_text(encoding="utf-8")
    table = {mutant.name: mutant for mutant in MUTANTS}
    for letter, name in zip(LETTERS, QUIZ, strict=True):
        section = page.partition(f"\n### {letter}\n")[2].partition("</details>")[0]
        assert f"`{name}`, `{table[name].file}`:" in section
        assert all(f"`{test}`" in section for test in table[name].tests)
    assert names_to_run([]) == ["right", *QUIZ]


def test_bugs_from_published_code() -> None:
    """docs/bugs.md names the bug, file and test of each, and its table is what the records say."""
    page = PAGE.read_text(encoding="utf-8")
    table = {mutant.name: mutant for mutant in MUTANTS}
    for name in (*PUBLISHED, "softmax-without-the-maximum"):
        section = page.partition(f"** (`{name}`, ")[2].partition("\n**")[0]
        assert section.startswith(f"`{table[name].file}`")
        assert all(f"`{test}`" in section for test in table[name].tests)
    assert fill_in_published(page, PUBLISHED_RESULTS) == page
    assert page.count("<!-- results:published") == 1


def test_figures_of_the_quiz(tmp_path) -> None:
    """They are read off the training's log, and put where the page has a place for them."""
    rows = [
        {"tag": "train_inner", "num_updates": 100, "nll_loss": 9.5},
        {"tag": "valid", "valid_num_updates": 100, "valid_nll_loss": 9.25},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = curves(tmp_path / "train.jsonl")
    assert found == {"train": [(100, 9.5)], "valid": [(100, 9.25)]}
    result = {"curves": found, "bleu": {"score": 12.345}, "exact_match": 1.0}
    examples = [{"source": "one", "translation": "eins", "reference": "eins"}]
    (tmp_path / f"{QUIZ[0]}.json").write_text(json.dumps({**result, "examples": examples}))
    (tmp_path / f"{QUIZ[1]}.json").write_text(json.dumps({**result, "failed": "NaN"}))
    page = fill_in(PAGE.read_text(encoding="utf-8"), tmp_path)
    first = page.partition("results:A -->")[2].partition("<!-- /results:A")[0]
    assert "| 9.50 | – | – | – | – | 9.25 | 12.35 | 1.0% |" in first and "> one<br>→ eins" in first
    second = page.partition("results:B -->")[2].partition("<!-- /results:B")[0]
    assert second.rstrip().endswith("`NaN`")
    assert page.count("Not run yet.") == 9
