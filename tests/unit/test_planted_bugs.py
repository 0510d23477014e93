"""The planted bugs still apply, their tests exist, and docs/bugs.md is true of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.bugs import page as bugs
from experiments.bugs import quiz
from experiments.records import read_record
from scripts import planted_bugs as mutants
from tests.files import needs_records

ALL = [mutants.read(name) for name in mutants.names()]


def test_every_planted_bug_applies_and_names_tests_that_exist():
    outdated = {}
    for mutant in ALL:
        missing = mutants.missing_tests(mutant)
        if missing:
            outdated[mutant.name] = missing
        check = ["git", "apply", "--check", "-C1", str(mutants.patch_of(mutant.name))]
        done = subprocess.run(check, cwd=mutants.ROOT, capture_output=True, text=True)
        if done.returncode:
            outdated[mutant.name] = [done.stderr]
    assert outdated == {}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """Make a project of one module and one test."""
    (tmp_path / "tests" / "mutants").mkdir(parents=True)
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "tests" / "test_a.py").write_text("import a\ndef test_x(): assert a.x == 1\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "COPIED", ("tests",))
    monkeypatch.setattr(mutants, "FILES", ("a.py",))
    monkeypatch.setattr(mutants, "PATCHES", tmp_path / "tests" / "mutants")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "test", "verdict"),
    [
        ("x = 1", "x = 2", "test_a.py::test_x", "caught"),
        ("x = 1", "x = 1 + 0", "test_a.py", "survived"),
        ("x = 1", "x = unknown", "test_a.py", "error: "),
        ("x = 0", "x = 2", "test_a.py", "does not apply"),
        ("x = 1", "x = 2", "test_a.py::test_z", "no such test: test_a.py::test_z"),
    ],
)
def test_only_a_failed_test_is_a_catch(project, old, new, test, verdict):
    diff = f"--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-{old}\n+{new}\n y = 2\n"
    header = f"breaks: a promise\ntests: {test}\n\n"
    (project / "tests" / "mutants" / "bug.patch").write_text(header + diff)
    assert mutants.try_out(mutants.read("bug")).startswith(verdict)
    assert (project / "a.py").read_text() == "x = 1\ny = 2\n"


def test_the_page_of_bugs_names_the_file_of_each():
    page = bugs.PAGE.read_text(encoding="utf-8")
    for name in bugs.QUIZ:
        assert f"`{name}`, `{mutants.read(name).file}`" in page


def diff_shown(page: str, name: str) -> list[str]:
    """Return the lines of the first diff below a bug's name; none if the next bug comes first."""
    _, _, text = page.partition(f"`{name}`, `{mutants.read(name).file}`")
    until_next_bug = re.split(r"^(?:### |## )", text, maxsplit=1, flags=re.MULTILINE)[0]
    diff = re.search(r"```diff\n(.*?)```", until_next_bug, re.DOTALL)
    return diff[1].splitlines() if diff else []


def test_the_page_of_bugs_shows_what_is_planted_in_the_code_of_today():
    page = bugs.PAGE.read_text(encoding="utf-8")
    outdated = {}
    for name in bugs.QUIZ:
        shown = diff_shown(page, name)
        patch = mutants.patch_of(name).read_text(encoding="utf-8").splitlines()
        planted = [line for line in patch if re.match(r"-(?!-- )|\+(?!\+\+ )", line)]
        changes = [line for line in shown if line.startswith(("-", "+"))]
        source = (mutants.ROOT / mutants.read(name).file).read_text(encoding="utf-8").splitlines()
        before = [line[1:] for line in shown if not line.startswith("+")]
        missing = [line for line in before if line not in source]
        if changes != planted or missing:
            outdated[name] = {"planted": planted, "not in the code": missing}
    assert outdated == {}


def test_the_quiz_does_not_name_a_bug_outside_its_answers():
    """A student who reads from the top meets no answer before the fold."""
    page = bugs.PAGE.read_text(encoding="utf-8")
    quiz, _, _ = page.partition("## Seen in published code")
    unfolded = re.sub(r"<details>.*?</details>", "", quiz, flags=re.DOTALL)
    assert [name for name in bugs.QUIZ if name in unfolded] == []


@needs_records
def test_the_pages_figures_are_those_of_the_records():
    page = bugs.PAGE.read_text(encoding="utf-8")
    assert bugs.fill_in_published(page, quiz.PUBLISHED_RECORDS) == page
    assert bugs.fill_in(page, quiz.RECORDS) == page


@needs_records
def test_the_page_of_bugs_names_what_no_curve_shows():
    """Which letters have wrong steps, and which depend on the batch."""
    properties = read_record(quiz.RECORDS)[bugs.PROPERTIES]
    assert all(properties[bugs.CORRECT].values())
    letters = dict(zip(bugs.QUIZ, bugs.LETTERS, strict=True))
    steps, batch = (
        [letters[name] for name in bugs.QUIZ if not properties[name][key]]
        for key in ("steps_are_one_pass", "neighbours_change_nothing")
    )
    text = " ".join(bugs.PAGE.read_text(encoding="utf-8").split())
    assert f"with {steps[0]}, {steps[1]} and {steps[2]}, decoding step by step does not" in text
    assert f"with {batch[0]} and {batch[1]}, a sentence's logits depend on its batch" in text
    assert (len(steps), len(batch)) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["causal-mask-mising"], "causal-mask-missing"),
        (["--updates", "20"], "give --out, too"),
    ],
)
def test_the_quiz_refuses_what_it_cannot_run(arguments, message):
    command = [sys.executable, "-m", "experiments.bugs.quiz", *arguments]
    done = subprocess.run(command, cwd=mutants.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bugs: ") and message in done.stderr
