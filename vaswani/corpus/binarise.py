"""``fairseq-preprocess`` with one dictionary for both languages (section 3.4 shares the matrix)."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterable

from vaswani.errors import UserError


def binarise(bpe: Path, target: Path, langs: Iterable[str], splits: Iterable[str]) -> None:
    """Turn ``bpe/{SPLIT}.{LANG}`` into fairseq's binary files under ``target``.

    A process of its own: fairseq's command sets up logging for the whole process.

    Raises:
        UserError: fairseq refused; with its last words.
    """
    source_lang, target_lang = langs
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--joined-dictionary"]
    command += ["--source-lang", source_lang, "--target-lang", target_lang]
    for split in splits:
        command += [f"--{split}pref", str(bpe / split)]
    command += ["--destdir", str(target), "--workers", str(min(8, os.cpu_count() or 1))]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise UserError(f"fairseq-preprocess failed on {bpe}: {said[-1]}")
