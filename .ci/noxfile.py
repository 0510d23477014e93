"""The test matrix: the tests on both stacks.

    nox -f .ci/noxfile.py                    all
    nox -f .ci/noxfile.py -s tests-3.10      one

``make setup`` makes the environments, as for everybody else, and keeps them until the pinned
versions change: in ``.nox/PYTHON``, or in the folder that VASWANI_ENVIRONMENTS names.
"""

import os
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.10"]  # modern stack, modern stack, official stack
ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = Path(os.environ.get("VASWANI_ENVIRONMENTS", ".nox"))


for python in PYTHONS:
    # Named explicitly: without its own environment, a session's name does not include the Python.
    @nox.session(name=f"tests-{python}", venv_backend="none")
    def tests(session: nox.Session, python: str = python) -> None:
        """Run the default tests on this Python; ``-- test-all`` runs all tests."""
        session.chdir(ROOT)  # nox starts in the folder of this file
        target = session.posargs[0] if session.posargs else "test"
        session.run("make", target, f"PYTHON={python}", f"VENV={ENVIRONMENTS / python}")
