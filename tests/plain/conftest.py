"""The fixture that the tests of damaged and of packed folders share."""

import shutil
from pathlib import Path

import pytest

from tests.plain.small import DEMO


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copy the demo's model into a folder of the test."""
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))
