"""Files of text for the tests."""

from pathlib import Path


def write(path: Path, *lines: str) -> Path:
    """Make a file of these lines, and its folder; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
