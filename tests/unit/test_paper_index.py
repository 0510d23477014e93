"""docs/paper.md: every part of the paper has code and tests, and the page names them."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


def test_the_page_is_true() -> None:
    """Names exist once, marks name items, and the page is what they make."""
    command = [sys.executable, "scripts/paper_index.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_page_links_to_no_lines() -> None:
    """They change with every edit above them."""
    assert ".py#" not in PAGE.read_text(encoding="utf-8")
