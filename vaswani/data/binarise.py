"""``fairseq-preprocess``, with one dictionary if the languages share a matrix (section 3.4)."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from vaswani.common import processes
from vaswani.common.environment import plugin_dir
from vaswani.common.errors import UserError
from vaswani.common.files import NO_SPACE
from vaswani.data.recipe import Recipe
from vaswani.data.text import count_lines

#: runs a module that ends with this process
RUN_WITH_PARENT = Path(processes.__file__).with_name("run_with_parent.py")


def binarise(
    source: Path, target: Path, recipe: Recipe, workers: int, dictionary: Path | None
) -> None:
    """Turn ``source/{SPLIT}.{LANG}`` into fairseq's binary files under ``target``.

    It runs in a separate process: fairseq's command sets up logging for the whole process, and its
    workers would outlive an interrupt. The dictionary has the recipe's size, or all types; of
    trees, each side has its own.

    Args:
        source: the folder of subwords
        target: is made
        recipe: with languages and sets
        workers: the number of processes
        dictionary: is used instead of one made from this text

    Raises:
        UserError: fairseq failed (with its last line of output).
    """
    command = [sys.executable, str(RUN_WITH_PARENT), "fairseq_cli.preprocess"]
    command += ["--user-dir", str(plugin_dir()), *["--joined-dictionary"] * (not recipe.trees)]
    command += ["--source-lang", recipe.source_lang, "--target-lang", recipe.target_lang]
    for split in recipe.splits:
        command += [f"--{split}pref", str(source / split)]
    if dictionary:
        command += ["--srcdict", str(dictionary)]
    elif recipe.dictionary:
        size = str(recipe.dictionary)
        command += ["--nwordssrc", size, "--nwordstgt", size]
    command += ["--destdir", str(target), "--workers", str(workers)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closes with this process: see run_with_parent.py
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        output.seek(0)
        words = output.read().decode("utf-8", "replace").strip().splitlines() or ["no output"]
    if process.returncode != 0:
        for code in NO_SPACE:
            if any(os.strerror(code) in line for line in words):
                raise OSError(code, os.strerror(code), str(target))
        raise UserError(f"fairseq-preprocess failed on {source}: {words[-1]}")


def count_unknown(source: Path, target: Path, recipe: Recipe) -> dict[str, tuple[int, int]]:
    """For each side of each set, as ``valid.de``: unknown and total subwords, without line ends.

    Raises:
        UserError: fairseq lost lines.
    """
    from vaswani.data.data_bin import check_text, read_index

    counts = {}
    for split in recipe.splits:
        for lang in recipe.langs:
            name = f"{split}.{lang}"
            known = target / f"dict.{lang}.txt"
            prefix = str(target / f"{split}.{'-'.join(recipe.langs)}.{lang}")
            lines, binarised = count_lines(source / name), len(read_index(prefix).sizes)
            if lines != binarised:
                raise UserError(
                    f"{source / name} has {lines:,} lines, but fairseq-preprocess left "
                    f"{binarised:,}: please report this as a bug"
                )
            counts[name] = check_text(prefix, 4 + count_lines(known), str(known))
    return counts
