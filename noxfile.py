"""The one matrix: the tests on both stacks. ``nox -s tests-3.10`` runs one, ``nox`` runs all.

The environments are made by ``make setup``, as for everybody else, and are kept until the pinned
versions change: in ``.nox/PYTHON``, or in the folder that VASWANI_ENVIRONMENTS names.
"""

import os
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.10"]  # modern stack, modern stack, official stack
ENVIRONMENTS = Path(os.environ.get("VASWANI_ENVIRONMENTS", ".nox"))


@nox.session(python=PYTHONS, venv_backend="none")
def tests(session: nox.Session) -> None:
    """The default tests; ``-- test-all`` runs every one."""
    target = session.posargs[0] if session.posargs else "test"
    version = str(session.python)
    session.run("make", target, f"PYTHON={version}", f"VENV={ENVIRONMENTS / version}")
