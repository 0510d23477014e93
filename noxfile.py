"""The one matrix: the tests on both stacks. ``nox -s tests-3.10`` runs one, ``nox`` runs all.

The environments are made by ``make setup``, as for everybody else, and are kept until the pinned
versions change: in ``.nox/PYTHON``, or in the folder that VASWANI_ENVIRONMENTS names.
"""

import os
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.10"]  # modern stack, modern stack, official stack
ENVIRONMENTS = Path(os.environ.get("VASWANI_ENVIRONMENTS", ".nox"))


for python in PYTHONS:
    # Named by hand: without an environment of its own a session gets no Python in its name.
    @nox.session(name=f"tests-{python}", venv_backend="none")
    def tests(session: nox.Session, python: str = python) -> None:
        """The default tests on this Python; ``-- test-all`` runs every one."""
        target = session.posargs[0] if session.posargs else "test"
        session.run("make", target, f"PYTHON={python}", f"VENV={ENVIRONMENTS / python}")
