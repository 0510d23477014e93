"""The first check of a sentence pair: readable, normalised if asked, safe, and not blank."""

from typing import Callable, List, Optional, Tuple

from vaswani.common.errors import UserError
from vaswani.data import clean
from vaswani.data.parallel import Chunk, Outcome
from vaswani.data.text import decode, is_blank, safe_line


def normaliser(lang: str) -> Callable[[str], str]:
    """Moses' normalize-punctuation, then remove-non-printing-char, as fairseq's scripts run them.

    ``perl_parity`` does what the Perl script does even where sacremoses would do better: the recipe
    that normalises is the one that reproduces fairseq's.
    """
    import regex
    from sacremoses import MosesPunctNormalizer

    moses = MosesPunctNormalizer(lang, perl_parity=True)
    control = regex.compile(r"\p{C}")
    return lambda line: str(control.sub(" ", moses.normalize(line)))


class Sentences:
    """Processes chunks of raw text.

    Args:
        names: the two files' names in errors and examples.
        langs: their languages, for the normalisation.
        clean_up: leave out pairs with a blank side (else a blank line is kept, empty: every line
            of a test set must have a translation).
        lenient: leave out pairs that are not UTF-8 (else: an error).
        normalise: run Moses' normalisation.
        valid_every: hold out pairs number n, 2n, 3n, …, counted over all parts of the set.
        before: number of pairs in the parts before this one.
    """

    def __init__(
        self,
        names: Tuple[str, str],
        langs: Tuple[str, str],
        clean_up: bool,
        lenient: bool = False,
        normalise: bool = False,
        valid_every: Optional[int] = None,
        before: int = 0,
    ) -> None:
        self.names = names
        self.clean_up, self.lenient = clean_up, lenient
        self.normalisers = [normaliser(lang) for lang in langs] if normalise else None
        self.valid_every, self.before = valid_every, before

    def sentence(self, side: int, line: bytes, number: int) -> str:
        """One side of a pair, empty if it is blank; UserError if it is not UTF-8."""
        text = decode(line, self.names[side], number).rstrip("\r")
        if self.normalisers:
            text = self.normalisers[side](text)
        return "" if is_blank(text) else safe_line(text)

    def __call__(self, chunk: Chunk) -> Outcome:
        """The sentences of a chunk that are kept, and those held out."""
        kept: Tuple[List[str], List[str]] = ([], [])
        held: Tuple[List[str], List[str]] = ([], [])
        report = clean.Report(seen=chunk.lines)
        rows = zip(*(side.split(b"\n")[:-1] for side in chunk.sides), strict=True)
        for number, row in enumerate(rows, chunk.first):
            place = f"{self.names[0]}, line {number:,}"
            try:
                pair = [self.sentence(side, line, number) for side, line in enumerate(row)]
            except UserError:
                if not self.lenient:
                    raise
                shown = [line.decode("utf-8", "replace") for line in row]
                report.drop(clean.NOT_UTF8, place, shown[0], shown[1])
                continue
            if self.clean_up and not all(pair):
                report.drop(clean.EMPTY, place, pair[0], pair[1])
            elif self.valid_every and (self.before + number) % self.valid_every == 0:
                report.held_out += 1
                for text, lines in zip(pair, held, strict=True):
                    lines.append(text + "\n")
            else:
                report.kept += 1
                for text, lines in zip(pair, kept, strict=True):
                    lines.append(text + "\n")
        return Outcome(as_bytes(kept), as_bytes(held), report)


def as_bytes(sides: Tuple[List[str], List[str]]) -> List[bytes]:
    """Lists of lines as bytes."""
    return ["".join(lines).encode("utf-8") for lines in sides]
