"""Preparing a text of one's own in tests: its options, its folder, and trouble with the disk."""

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

LANGS = ["--source-lang", "en", "--target-lang", "de"]
#: of the text that the fixture ``own`` writes
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]
HERE = ["prepare", *OWN, "--out", "data/own"]
STAGES = ["text", "tok", "codes", "bpe", "data-bin"]


def here(*more: str) -> list[str]:
    """Return ``HERE`` with further options, which replace those of the same name."""
    return ["prepare", *changed(HERE[1:], more)]


def changed(options: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return options, each with a value, and further ones, which replace those of the same name."""
    replaced = {word.partition("=")[0] for word in more}
    words = []
    for flag, value in zip(options[::2], options[1::2], strict=True):
        if flag not in replaced:
            words += [flag, value]
    return [*words, *more]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its bytes, except locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def sentence_of(capsys) -> str:
    """Return a command's output on stderr, which has to be one sentence."""
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "Traceback" not in message, message
    return message


@contextlib.contextmanager
def small_files(size: int) -> Iterator[None]:
    """Limit files in the block to ``size`` bytes: the error is like that of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
