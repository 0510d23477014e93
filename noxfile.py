"""The test matrix: the tests on both stacks. ``nox -s tests-3.10`` runs one, ``nox`` runs all.

``make setup`` makes the environments, as for everybody else, and keeps them until the pinned
versions change: in ``.nox/PYTHON``, or in the folder that VASWANI_ENVIRONMENTS names.
"""

import os
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.10"]  # modern stack, modern stack, official stack
ENVIRONMENTS = Path(os.environ.get("VASWANI_ENVIRONMENTS", ".nox"))


for python in PYTHONS:
    # Named explicitly: without its own environment, a session's name does not include the Python.
    @nox.session(name=f"tests-{python}", venv_backend="none")
    def tests(session: nox.Session, python: str = python) -> None:
        """The default tests on this Python; ``-- test-all`` runs all tests."""
        target = session.posargs[0] if session.posargs else "test"
        session.run("make", target, f"PYTHON={python}", f"VENV={ENVIRONMENTS / python}")
