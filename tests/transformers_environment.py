"""An environment with transformers, and without fairseq and this project, for the slow tests.

``TRANSFORMERS_PYTHON`` names a Python that has torch, transformers, sentencepiece, sacremoses and
subword-nmt; without it they are installed into a fresh environment.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODERN = Path(__file__).resolve().parents[1] / "constraints" / "modern.txt"
PACKAGES = ["transformers>=5", "sentencepiece", "sacremoses", "subword-nmt"]


def make(folder: Path) -> str:
    """Its Python; skips the test where pip cannot install it."""
    given = os.environ.get("TRANSFORMERS_PYTHON")
    if given:
        return given
    torch = re.findall(r"^torch==\S+", MODERN.read_text(), re.MULTILINE)
    python = folder / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        # no torchaudio: beside a CPU build of torch it breaks the import of Marian
        [str(python), "-m", "pip", "install", "--quiet", *torch, *PACKAGES],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            pytest.skip(f"no transformers can be installed ({said}): exports to it are NOT tested")
    return str(python)
