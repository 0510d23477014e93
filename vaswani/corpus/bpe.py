"""Joint byte pair encoding (section 5.1), by subword-nmt's library.

The library and not its command line: the latter reads with ``codecs.open``, which also breaks
lines at U+2028 and its like.
"""

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Sequence

from vaswani.corpus.text import read_lines, write_lines
from vaswani.corpus.tokenise import counted
from vaswani.errors import UserError
from vaswani.files import atomic_write

MARK = "@@ "


def learn(sources: Sequence[Path], codes: Path, merges: int) -> None:
    """Learn ``merges`` operations on the words of all ``sources`` together.

    Learned from counted words, which gives the same codes as the running text (ties are broken by
    first occurrence, and the counter keeps that order) in a fraction of the memory.

    Raises:
        UserError: the text has nothing to merge.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words: "Counter[str]" = Counter()
    for source in sources:
        for line in read_lines(source):
            words.update(word for word in line.strip("\r\n ").split(" ") if word)
    if not any(len(word) > 1 for word in words):
        raise UserError(f"{sources[0]}: no word has two letters, so there is no BPE to learn")
    dictionary = io.StringIO(
        "".join(f"{word} {count}\n" for word, count in words.items()), newline="\n"
    )
    # subword-nmt draws its own bar on stderr: wanted on a terminal, noise in a log
    quiet = contextlib.nullcontext() if sys.stderr.isatty() else io.StringIO()
    with atomic_write(codes) as stream, contextlib.ExitStack() as stack:
        if isinstance(quiet, io.StringIO):
            stack.enter_context(contextlib.redirect_stderr(quiet))
        learn_bpe(dictionary, stream, merges, is_dict=True)


def splitter(codes: Path) -> Callable[[str], str]:
    """A function that splits the words of a line; pieces that go on end in ``@@``."""
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8", newline="\n") as stream:
        bpe: Any = BPE(stream)
    return lambda line: str(bpe.process_line(line))


def apply(source: Path, target: Path, codes: Path, progress: Callable[[int], Any]) -> None:
    """Split the words of a file line by line; ``progress(1)`` is called for each."""
    write_lines(target, map(splitter(codes), counted(read_lines(source), progress)))


def undo(line: str) -> str:
    """Join the pieces of words again, also where a piece that goes on is the last one."""
    return (line + " ").replace(MARK, "").strip()
