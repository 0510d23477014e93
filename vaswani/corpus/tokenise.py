"""Moses tokenisation and its way back, by sacremoses."""

import html
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from vaswani.corpus.text import read_lines, write_lines


def tokeniser(lang: str) -> Callable[[str], str]:
    """A function from a sentence to its tokens joined by spaces (Moses rules, escapes included)."""
    from sacremoses import MosesTokenizer

    moses: Any = MosesTokenizer(lang)
    return lambda line: str(moses.tokenize(line, return_str=True))


def detokeniser(lang: str) -> Callable[[str], str]:
    """The way back, for the words of one language; punctuation joins its neighbours again."""
    from sacremoses import MosesDetokenizer

    moses: Any = MosesDetokenizer(lang)
    return lambda line: str(moses.detokenize(line.split(), return_str=True))


def unescape(token: str) -> str:
    """A token as it reads: Moses writes ``'`` as ``&apos;`` and the like."""
    return html.unescape(token)


def tokenise_file(source: Path, target: Path, lang: str, progress: Callable[[int], Any]) -> None:
    """Tokenise a file line by line; ``progress(1)`` is called for each."""
    tokenise = tokeniser(lang)
    write_lines(target, map(tokenise, counted(read_lines(source), progress)))


def counted(lines: Iterable[str], progress: Callable[[int], Any]) -> Iterator[str]:
    """The same lines, each reported to a progress bar as it passes."""
    for line in lines:
        yield line
        progress(1)
