"""Text files for the tests."""

from pathlib import Path


def write(path: Path, *lines: str) -> Path:
    """Write a file with these lines, making its folder; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
