"""The table of planted bugs is true of the sources, and its runner tells a catch from the rest."""

import pytest

from tests.mutants import MUTANTS
from tests.mutation import Mutant, judged, why_stale


def test_names_are_different_and_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_no_entry_is_stale(mutant: Mutant) -> None:
    """Its old text occurs once, the new one is another and is Python, its tests are there."""
    assert why_stale(mutant) == ""
    assert mutant.breaks


GOOD = Mutant("good", "a.py", "x = 1", "x = 2", "promise", ("unit/test_a.py::test_x[1]",))


@pytest.mark.parametrize(
    "changed, said",
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
def test_stale_entries_are_found(changed, said, tmp_path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").write_text("def test_x(): pass\n")
    (tmp_path / "a.py").write_text("x = 1\ny = x\n".replace("y = x", "y = -x"))
    found = why_stale(GOOD._replace(**changed), tmp_path)
    assert said in found and bool(said) == bool(found)


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
