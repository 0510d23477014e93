"""``fairseq-preprocess``, with one dictionary if the languages share a matrix (section 3.4)."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple

from vaswani.common import run_with_parent
from vaswani.common.environment import plugin_dir
from vaswani.common.errors import UserError
from vaswani.common.files import NO_SPACE
from vaswani.data.text import count_lines

#: fairseq's codes for the integer types in which token numbers may be stored
NUMBERS = {4: "<i4", 5: "<i8", 8: "<u2"}
HEADER = struct.Struct("<9sQBQ")
#: the numbers of fairseq's symbols in every dictionary
END, UNKNOWN = 2, 3
#: seconds between checks of fairseq's progress
LOOK_EVERY = 1.0


def binarise(
    bpe: Path,
    target: Path,
    langs: Iterable[str],
    splits: Sequence[str],
    workers: int = 1,
    dictionary: Optional[int] = None,
    progress: Callable[[int], Any] = lambda _: None,
    like: Optional[Path] = None,
    joined: bool = True,
) -> None:
    """Turn ``bpe/{SPLIT}.{LANG}`` into fairseq's binary files under ``target``.

    It runs in a separate process: fairseq's command sets up logging for the whole process. The
    dictionary keeps the ``dictionary`` most frequent types, or all; or it is that of other text,
    ``like``. ``joined``: it is one for both languages. ``progress(n)``: n more bytes were written.

    Raises:
        UserError: fairseq failed (with its last line of output), or lost lines.
    """
    source_lang, target_lang = langs
    command = [sys.executable, run_with_parent.__file__, "fairseq_cli.preprocess"]
    command += ["--user-dir", str(plugin_dir()), *["--joined-dictionary"] * joined]
    command += ["--source-lang", source_lang, "--target-lang", target_lang]
    for split in splits:
        command += [f"--{split}pref", str(bpe / split)]
    size = ["--nwordssrc", str(dictionary), "--nwordstgt", str(dictionary)] if dictionary else []
    command += ["--srcdict", str(like)] if like else size
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
            watch(process, target, progress)
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
        raise UserError(f"fairseq-preprocess failed on {bpe}: {words[-1]}")
    for split in splits:
        for lang in (source_lang, target_lang):
            lines = count_lines(bpe / f"{split}.{lang}")
            binarised = binary_lines(target / f"{split}.{source_lang}-{target_lang}.{lang}.idx")
            if lines != binarised:
                raise UserError(
                    f"{bpe / split}.{lang} has {lines:,} lines, but fairseq-preprocess left "
                    f"{binarised:,}: please report this as a bug"
                )


def watch(process: "subprocess.Popen[bytes]", target: Path, progress: Callable[[int], Any]) -> None:
    """Wait for fairseq, reporting how the files grow.

    It counts words first, without writing a file; with several processes it then writes parts and
    joins them.
    """
    seen = 0
    while True:
        try:
            process.wait(LOOK_EVERY)
            return
        except subprocess.TimeoutExpired:
            written = written_bytes(target)
            if written > seen:
                progress(written - seen)
                seen = written


def expected_bytes(files: Iterable[Path]) -> int:
    """About how much fairseq will write: two bytes per subword and per line end.

    (Four, with dictionaries of more than 65,500 types.)
    """
    total = 0
    for path in files:
        with open(path, "rb") as stream:
            for block in iter(partial(stream.read, 1 << 20), b""):
                total += 2 * (block.count(b" ") + 2 * block.count(b"\n"))
    return total


def written_bytes(folder: Path) -> int:
    """The total size of a folder's .bin files; one that vanishes meanwhile counts as 0."""
    total = 0
    for path in folder.glob("*.bin"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def binary_lines(index: Path) -> int:
    """The number of sentences in one of fairseq's ``.idx`` files."""
    return read_header(index)[1]


def read_header(index: Path) -> Tuple[int, int]:
    """The number type (see ``NUMBERS``) and sentence count in one of fairseq's ``.idx`` files.

    Its header is nine letters, a version (8 bytes), a type (1 byte) and the count (8 bytes). (The
    plugin's reader, which checks everything, would need to import fairseq and torch for this.)
    """
    with open(index, "rb") as stream:
        _, _, kind, count = HEADER.unpack(stream.read(HEADER.size))
    return kind, count


def count_unknown(
    folder: Path, langs: Iterable[str], splits: Iterable[str]
) -> Dict[str, Tuple[int, int]]:
    """For each side of each set, as ``valid.de``: unknown and total subwords, without line ends."""
    import numpy

    source, target = langs
    counts = {}
    for split in splits:
        for lang in (source, target):
            file = folder / f"{split}.{source}-{target}.{lang}"
            kind, _ = read_header(Path(f"{file}.idx"))
            unknown = total = 0
            with open(f"{file}.bin", "rb") as stream:
                while len(block := numpy.fromfile(stream, NUMBERS[kind], 1 << 22)):
                    unknown += int((block == UNKNOWN).sum())
                    total += int((block != END).sum())
            counts[f"{split}.{lang}"] = (unknown, total)
    return counts
