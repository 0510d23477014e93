"""The folder of the demo's model, and its hashes for tests that change a copy of it."""

import hashlib
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo_en_de"


def sign(folder: Path) -> None:
    """Let the hashes be those of the files, as somebody would who changed them on purpose."""
    names = [line.partition("  ")[2] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    text = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (folder / "SHA256SUMS").write_text(text)
