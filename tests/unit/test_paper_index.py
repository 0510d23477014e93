"""docs/paper.md: every part of the paper has code and tests, and the page names them."""

import subprocess
import sys


def test_the_page_is_true() -> None:
    """Names exist once, marks name items, and the page is what they make."""
    command = [sys.executable, "scripts/paper_index.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
