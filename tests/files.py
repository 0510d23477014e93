"""Files for the tests."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: a mark for tests that read the records of benchmarks and experiments
needs_records = pytest.mark.skipif(
    not (ROOT / "benchmarks" / "results").is_dir(),
    reason="a source distribution has no records: they are NOT tested",
)


def write(path: Path, *lines: str) -> Path:
    """Write a file with these lines, making its folder, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
