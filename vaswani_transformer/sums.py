"""SHA256SUMS, the hashes of a folder's files. Needs no torch."""

from pathlib import Path


def read_sums(path: Path) -> dict[str, str]:
    """The hashes in a file in ``sha256sum``'s format, by name."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
