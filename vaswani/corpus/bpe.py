"""Joint byte pair encoding (section 5.1), by subword-nmt's library.

The library and not its command line: the latter reads with ``codecs.open``, which also breaks
lines at U+2028 and its like.
"""

import contextlib
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

from vaswani.corpus.clean import LONGEST_WORD, Limits
from vaswani.corpus.parallel import Chunk, Outcome, chunks, in_order
from vaswani.corpus.tokenise import within
from vaswani.errors import UserError
from vaswani.files import atomic_write

MARK = "@@ "
#: different words that codes are learned from; of more, the most frequent (bounds the memory)
MOST_WORDS = 2_000_000
#: what fairseq reads as its own symbols: an end, a start, nothing, unknown
_FAIRSEQS = re.compile(r"(?<![^ ])(?:</s>|<s>|<pad>|<unk>)(?![^ ])")
#: different words each process remembers the subwords of
CACHED_WORDS = 300_000


def count_words(chunk: Chunk) -> "Counter[str]":
    """How often each word of a chunk occurs, in order of first occurrence."""
    words = Counter(chunk.sides[0].decode("utf-8").replace("\n", " ").split(" "))
    del words[""]
    return words


def word_counter() -> Callable[[Chunk], "Counter[str]"]:
    """What a worker process counts with."""
    return count_words


def vocabulary(
    sources: Sequence[Path], workers: int, progress: Callable[[int], Any]
) -> "Counter[str]":
    """The words of all ``sources`` together, with their counts, in order of first occurrence.

    Of more than twice ``MOST_WORDS`` different ones the rarest are let go as they come, and
    ``MOST_WORDS`` are left at the end: words that rare decide hardly any merge.
    """
    words: "Counter[str]" = Counter()
    parts: Iterator[Chunk] = (part for source in sources for part in chunks([source]))
    for counted in in_order(word_counter, parts, workers):
        words.update(counted)
        if len(words) > 2 * MOST_WORDS:
            words = most_frequent(words, MOST_WORDS)
        progress(1)
    return most_frequent(words, MOST_WORDS)


def most_frequent(words: "Counter[str]", most: int) -> "Counter[str]":
    """The ``most`` most frequent words, in the order they had."""
    if len(words) <= most:
        return words
    kept = {word for word, _ in words.most_common(most)}
    return Counter({word: count for word, count in words.items() if word in kept})


def learn(
    sources: Sequence[Path],
    codes: Path,
    size: int,
    types: bool = False,
    workers: int = 1,
    progress: Callable[[int], Any] = lambda _: None,
) -> None:
    """Learn codes of ``size`` merges on the words of all ``sources`` together.

    With ``types``, ``size`` counts merges and single characters together, so that it is about the
    size of the dictionary. Learned from counted words, which gives the same codes as the running
    text in a fraction of the memory. ``progress(1)`` is called for every chunk read.

    Raises:
        UserError: the text has nothing to merge.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words = vocabulary(sources, workers, progress)
    if not any(len(word) > 1 for word in words):
        raise UserError(f"{sources[0]}: no word has two letters, so there is no BPE to learn")
    dictionary = io.StringIO(
        "".join(f"{word} {count}\n" for word, count in words.items()), newline="\n"
    )
    del words
    # subword-nmt draws its own bar on stderr: wanted on a terminal, noise in a log
    quiet = contextlib.nullcontext() if sys.stderr.isatty() else io.StringIO()
    with atomic_write(codes) as stream, contextlib.ExitStack() as stack:
        if isinstance(quiet, io.StringIO):
            stack.enter_context(contextlib.redirect_stderr(quiet))
        learn_bpe(dictionary, stream, size, is_dict=True, total_symbols=types)


def spelt_out(line: str) -> Tuple[str, int]:
    """Subwords that fairseq would read as its own symbols in single letters, and how many."""
    if "<" not in line:
        return line, 0
    return _FAIRSEQS.subn(lambda found: MARK.join(found[0]), line)


def splitter(codes: Path) -> Callable[[str], str]:
    """A function that splits the words of a line; subwords that go on end in ``@@``.

    Words without an end are split in several steps, since BPE is quadratic in a word. What is to
    be binarised goes through ``spelt_out`` too.
    """
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8", newline="\n") as stream:
        bpe: Any = BPE(stream)

    def split_word(word: str) -> str:
        starts = range(0, len(word), LONGEST_WORD)
        return MARK.join(bpe.process_line(word[start : start + LONGEST_WORD]) for start in starts)

    def split(line: str) -> str:
        if len(bpe.cache) > CACHED_WORDS:
            bpe.cache.clear()
        if len(line) > LONGEST_WORD and max(map(len, line.split(" "))) > LONGEST_WORD:
            return " ".join(split_word(word) for word in line.split(" ") if word)
        return str(bpe.process_line(line))

    return split


class Subwords:
    """Work on chunks of tokens: their subwords, of the pairs within the limits."""

    def __init__(self, name: str, codes: Path, limits: Optional[Limits]) -> None:
        self.name, self.limits = name, limits
        self.split = splitter(codes)
        self.spelt = 0

    def subwords(self, side: int, line: str) -> str:
        """The subwords of one side of a pair, none of which fairseq misreads."""
        line, count = spelt_out(self.split(line))
        self.spelt += count
        return line

    def __call__(self, chunk: Chunk) -> Outcome:
        """The subwords of a chunk."""
        self.spelt = 0
        outcome = within(self.limits, chunk, self.name, self.subwords)
        outcome.report.spelt = self.spelt
        return outcome


def undo(line: str) -> str:
    """Join the subwords of words again, also where a subword that goes on is the last one."""
    return (line + " ").replace(MARK, "").strip()
