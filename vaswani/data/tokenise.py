"""Moses tokenisation and detokenisation, using sacremoses."""

import html
import re
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

from vaswani.common.errors import UserError
from vaswani.data.clean import Limits, Report
from vaswani.data.parallel import Chunk, Outcome

#: more letters than a word has on average in any language: in scripts without spaces between words,
#: and in others
LONGEST = {
    r"[\p{Han}\p{Hiragana}\p{Katakana}]": 4,
    r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]": 8,
}
LONGEST_ELSEWHERE = 15
_BPE_MARK = re.compile(rb"[^ \n]*@@(?=[ \n])")


def tokeniser(lang: str, split_hyphens: bool = False) -> Callable[[str], str]:
    """A function from a sentence to its tokens joined by spaces (Moses rules, escapes included).

    ``split_hyphens`` is Moses' ``-a``: "well-known" becomes "well @-@ known".
    """
    from sacremoses import MosesTokenizer

    moses: Any = MosesTokenizer(lang)
    return lambda line: str(
        moses.tokenize(line, aggressive_dash_splits=split_hyphens, return_str=True)
    )


def lacks_rules(lang: str) -> bool:
    """Whether sacremoses has no abbreviations for a language, and uses the English ones."""
    from sacremoses.corpus import NonbreakingPrefixes

    return lang not in NonbreakingPrefixes().available_langs


def hardly_spaced(lines: Iterable[str]) -> bool:
    """Whether text has hardly any spaces: more letters from one to the next than words have."""
    import regex

    words = [word for line in lines for word in line.split()]
    text = "".join(words)
    mostly = (
        most for script, most in LONGEST.items() if 2 * len(regex.findall(script, text)) > len(text)
    )
    return len(text) > next(mostly, LONGEST_ELSEWHERE) * len(words)


def detokeniser(lang: str) -> Callable[[str], str]:
    """A detokeniser for one language, which joins punctuation to its neighbours again."""
    from sacremoses import MosesDetokenizer

    moses: Any = MosesDetokenizer(lang)
    return lambda line: str(moses.detokenize(line.split(), return_str=True))


def unescape(token: str) -> str:
    """A token without escapes: Moses writes ``'`` as ``&apos;`` and the like."""
    return html.unescape(token)


class Tokens:
    """Tokenises chunks of sentences, keeping the pairs within the limits.

    Args:
        name: the set's name in examples.
        langs: the two languages; None if the text is already tokenised.
        split_hyphens: as in ``tokeniser``.
        straight_apostrophes: ’ becomes ' first.
        limits: what pairs must satisfy; None keeps all.
        files: the two files' names in errors; None: for SentencePiece, which has no mark '@@'.
    """

    def __init__(
        self,
        name: str,
        langs: Optional[Tuple[str, str]],
        split_hyphens: bool,
        straight_apostrophes: bool,
        limits: Optional[Limits],
        files: Optional[Tuple[str, str]] = ("source", "target"),
    ) -> None:
        self.name, self.limits, self.files = name, limits, files
        self.straight_apostrophes = straight_apostrophes
        self.tokenisers = [tokeniser(lang, split_hyphens) for lang in langs] if langs else None

    def tokens(self, side: int, line: str) -> str:
        """The tokens of one side of a pair."""
        if self.straight_apostrophes:
            line = line.replace("’", "'")
        return self.tokenisers[side](line) if self.tokenisers else line

    def __call__(self, chunk: Chunk) -> Outcome:
        """The tokens of a chunk."""
        if not self.tokenisers and self.files:  # Moses' tokens never have this mark
            refuse_bpe(chunk, self.files)
        return transform_within(self.limits, chunk, self.name, self.tokens)


def refuse_bpe(chunk: Chunk, files: Sequence[str]) -> None:
    """Raises UserError if words are already split by BPE: undoing this BPE would join them."""
    for side, file in zip(chunk.sides, files, strict=True):
        match = _BPE_MARK.search(side)
        if match:
            number = chunk.first + side.count(b"\n", 0, match.start())
            raise UserError(
                f"{file}, line {number:,}: '{match[0].decode('utf-8')}' ends in '@@', BPE's mark "
                "for an unfinished word: join the subwords first (sed -E 's/@@( |$)//g')"
            )


def transform_within(
    limits: Optional[Limits], chunk: Chunk, name: str, change: Callable[[int, str], str]
) -> Outcome:
    """``change(side, line)`` for every line of a chunk, leaving out pairs outside the limits."""
    kept: Tuple[List[str], List[str]] = ([], [])
    report = Report(seen=chunk.lines)
    rows = zip(*(side.decode("utf-8").split("\n")[:-1] for side in chunk.sides), strict=True)
    for number, row in enumerate(rows, chunk.first):
        source, target = (change(side, line) for side, line in enumerate(row))
        reason = limits.reason(source, target) if limits else None
        if reason:
            report.drop(reason, f"{name}, line {number:,}", source, target)
            continue
        report.kept += 1
        kept[0].append(source + "\n")
        kept[1].append(target + "\n")
    return Outcome(["".join(lines).encode("utf-8") for lines in kept], [], report)
