"""Joint byte pair encoding (section 5.1), using subword-nmt as a library.

Its command line is not used: it reads with ``codecs.open``, which also breaks lines at U+2028 and
the like.
"""

import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write
from vaswani.common.processes import map_ordered
from vaswani.data.text import LONGEST_WORD, Chunk, chunks

MARK = "@@ "
#: distinct words that codes are learned from; if more, the most frequent (this bounds memory)
MOST_WORDS = 2_000_000
#: what fairseq reads as its own symbols: end, start, padding, unknown
_FAIRSEQS = re.compile(r"(?<![^ \n])(?:</s>|<s>|<pad>|<unk>)(?![^ \n])")
#: distinct words whose subwords each process caches
CACHED_WORDS = 300_000


def counting_work() -> Callable[[Chunk], Counter[str]]:
    """Return a function that counts the words of a chunk, in order of first occurrence."""

    def work(chunk: Chunk) -> Counter[str]:
        words = Counter(chunk.sides[0].decode("utf-8").replace("\n", " ").split(" "))
        del words[""]
        return words

    return work


def vocabulary(
    sources: Sequence[Path], workers: int, progress: Callable[[int], object]
) -> Counter[str]:
    """Return the words of all ``sources`` together, with their counts, in order of first
    occurrence.

    Beyond twice ``MOST_WORDS`` distinct words the rarest are dropped along the way, and
    ``MOST_WORDS`` are left at the end: words that rare decide hardly any merge.
    """
    words: Counter[str] = Counter()
    parts: Iterator[Chunk] = (part for source in sources for part in chunks([source]))
    for counted in map_ordered(counting_work, parts, workers):
        words.update(counted)
        if len(words) > 2 * MOST_WORDS:
            words = most_frequent(words, MOST_WORDS)
        progress(1)
    return most_frequent(words, MOST_WORDS)


def most_frequent(words: Counter[str], most: int) -> Counter[str]:
    """Return the ``most`` most frequent words, in their original order."""
    if len(words) <= most:
        return words
    frequent = {word for word, _ in words.most_common(most)}
    return Counter({word: count for word, count in words.items() if word in frequent})


def between_digits(words: Counter[str]) -> Counter[str]:
    """Return what remains of words without their digits, with its counts."""
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in re.split(r"\d", word):
            parts[part] += count
    del parts[""]
    return parts


def learn(
    sources: Sequence[Path],
    codes: Path,
    size: int,
    types: bool = False,
    workers: int = 1,
    split_digits: bool = False,
) -> None:
    """Learn codes with ``size`` merges on the words of all ``sources`` together.

    With ``types``, ``size`` counts merges and single characters together, so it is roughly the
    size of the dictionary. Learning from word counts gives the same codes as the running text in a
    fraction of the memory. With ``split_digits`` no merge has a digit, so that whoever applies the
    codes leaves digits one by one.
    """
    # here: --help does without tqdm and subword-nmt
    from subword_nmt.learn_bpe import learn_bpe

    from vaswani.common.progress import stage_bar

    with stage_bar("count words", None, "chunks") as bar:  # closed before subword-nmt draws its own
        words = vocabulary(sources, workers, bar.update)
    if split_digits:
        words = between_digits(words)
    if max(map(len, words), default=0) < 2:
        raise UserError(
            f"--bpe: every word of {' and '.join(map(str, sources))} is a single character, so "
            "there is nothing to merge: give text with spaces between words, or use --subword "
            "sentencepiece"
        )
    dictionary = io.StringIO(
        "".join(f"{word} {count}\n" for word, count in words.items()), newline="\n"
    )
    del words
    # subword-nmt draws its own bar on stderr: useful on a terminal, noise in a log
    quiet = contextlib.nullcontext() if sys.stderr.isatty() else quietly()
    with atomic_write(codes) as stream, quiet:
        learn_bpe(dictionary, stream, size, is_dict=True, total_symbols=types)


def quietly() -> contextlib.AbstractContextManager[object]:
    """Discard what the block prints on stderr."""
    return contextlib.redirect_stderr(io.StringIO())


def escaped_symbols(line: str, between: str = MARK) -> str:
    """Return a line with fairseq's own symbols spelt out as single letters."""
    return _FAIRSEQS.sub(lambda match: between.join(match[0]), line) if "<" in line else line


def splitter(codes: Path, dropout: float = 0.0) -> Callable[[str], str]:
    """Return a function that splits the words of a line; subwords inside a word end in ``@@``.

    With ``dropout`` each merge is left out with this probability, by ``random``'s own generator.
    Extremely long words are split in several steps, since BPE is quadratic in word length. Text to
    be binarised also goes through ``escaped_symbols``.

    Raises:
        UserError: the file is not one of BPE codes.
    """
    from subword_nmt.apply_bpe import BPE  # here: --help does without subword-nmt

    try:
        # subword-nmt prints what is wrong, and exits
        with open(codes, encoding="utf-8", newline="\n") as stream, quietly():
            bpe: Any = BPE(stream)
    except (SystemExit, ValueError, IndexError) as error:
        raise UserError(
            f"{codes} is not a file of BPE codes, or is damaged: restore the file, or prepare the "
            "text again"
        ) from error

    def split_part(text: str) -> str:
        return str(bpe.process_line(text, dropout))

    def split_word(word: str) -> str:
        starts = range(0, len(word), LONGEST_WORD)
        return MARK.join(split_part(word[start : start + LONGEST_WORD]) for start in starts)

    def split(line: str) -> str:
        if len(bpe.cache) > CACHED_WORDS:
            bpe.cache.clear()
        if len(line) > LONGEST_WORD and max(map(len, line.split(" "))) > LONGEST_WORD:
            return " ".join(split_word(word) for word in line.split(" ") if word)
        return split_part(line)

    return split


def undo(line: str) -> str:
    """Join subwords into words, even if the last subword is marked as continuing."""
    return (line + " ").replace(MARK, "").strip()
