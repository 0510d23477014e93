"""What becomes of sentence pairs on their way to subwords: changed, kept or left out, counted.

A function named ``…_work`` returns the function that a process applies to one chunk after another.
"""

import contextlib
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vaswani.common.errors import UserError
from vaswani.common.processes import map_ordered
from vaswani.data.text import LONGEST_WORD, Chunk, decode
from vaswani.data.tokenisation import TextFunction, cleaner, splitter, tokeniser
from vaswani.folders.recipe import BPE, SENTENCEPIECE, Recipe, TextRecipe

#: examples kept per reason, and characters kept per side
EXAMPLES, EXAMPLE_LENGTH = 100, 200

EMPTY = "with an empty side"
NOT_UTF8 = "not UTF-8"
_BPE_MARK = re.compile(rb"[^ \n]*@@(?=[ \n])")
_LINE_WITH_BPE_MARK = re.compile(rb"^.*[^ \n@]@@ [^ \n]", re.MULTILINE)
#: the share of lines with BPE's mark from which raw text is subwords: of subwords, most lines
BPE_SHARE = 0.1


@dataclass(frozen=True)
class Limits:
    """Words per side (least and most), ratio of longer to shorter side; None: no limit."""

    min_words: int | None = None
    max_words: int | None = None
    ratio: float | None = None

    def reason(self, source: str, target: str) -> str | None:
        """Return why a pair is left out, or None if it is kept. Words are separated by spaces."""
        first, second = source.split(), target.split()
        short, long = sorted((len(first), len(second)))
        if short == 0:
            return EMPTY
        if self.min_words is not None and short < self.min_words:
            return f"of fewer than {self.min_words} words"
        if self.max_words is not None and long > self.max_words:
            return f"of more than {self.max_words} words"
        if self.ratio is not None and long > self.ratio * short:
            return f"more than {self.ratio:g} times longer on one side"
        if max(map(len, first)) > LONGEST_WORD or max(map(len, second)) > LONGEST_WORD:
            return f"with a word of more than {LONGEST_WORD:,} letters"
        return None


def limits_of(recipe: Recipe, stage: str) -> dict[str, Limits]:
    """Return the limits on the pairs of each set after a stage ("tok" or "bpe").

    With SentencePiece it applies to pieces: between spaces there may be a whole sentence.
    """
    limits = Limits(recipe.min_words, recipe.max_words, recipe.ratio)
    if recipe.subword == SENTENCEPIECE:
        limited = limits if stage == "bpe" else None
    elif stage == recipe.clean_after:
        limited = limits
    else:  # extremely long words are kept from the BPE in any case
        limited = Limits() if stage == "tok" else None
    return {split: limited for split in recipe.splits if limited and recipe.is_cleaned(split)}


@dataclass
class Report:
    """What became of the pairs of one set: seen, kept, and left out by reason, with examples."""

    seen: int = 0
    kept: int = 0
    #: pairs held out as the validation set (neither kept here nor left out)
    held_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    #: by reason: the pair's place, and its two sides
    examples: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    def drop(self, reason: str, place: str, source: str, target: str) -> None:
        """Count a pair that is left out; the first few for each reason are kept as examples."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES:
            shown.append((place, source[:EXAMPLE_LENGTH], target[:EXAMPLE_LENGTH]))

    def add(self, other: "Report") -> None:
        """Add the counts of a later chunk of the same set."""
        self.seen += other.seen
        self.kept += other.kept
        self.held_out += other.held_out
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        for reason, examples in other.examples.items():
            shown = self.examples.setdefault(reason, [])
            shown.extend(examples[: EXAMPLES - len(shown)])

    def summary(self) -> str:
        """Summarise the counts: ``4,500 pairs of 4,512; left out: 10 with an empty side``."""
        text = f"{self.kept:,} pairs"
        if self.kept != self.seen:
            text += f" of {self.seen:,}"
        if self.held_out:
            text += f"; held out: {self.held_out:,}"
        if self.dropped:
            most = sorted(self.dropped.items(), key=lambda item: -item[1])
            counts = [f"{count:,} {reason}" for reason, count in most]
            text += f"; left out: {', '.join(counts)}"
        return text


class Outcome(NamedTuple):
    """The result of work on a chunk: the new sides, those of the pairs held out, the counts."""

    sides: list[bytes]
    report: Report


Work = Callable[[Chunk], Outcome]


def cleaning_work(
    recipe: TextRecipe,
    names: tuple[str, str],
    clean_up: bool,
    lenient: bool = False,
    valid_every: int | None = None,
    before: int = 0,
) -> Work:
    """Return the work of turning raw lines into clean sentences.

    Args:
        recipe: how the text is prepared
        names: the two files' names in errors and examples
        clean_up: leave out pairs with a blank side (else a blank line is kept, empty: every line
            of a test set must have a translation)
        lenient: leave out pairs that are not UTF-8 (else: an error)
        valid_every: hold out pairs number n, 2n, 3n, …, counted over all parts of the set
        before: number of pairs in the parts before this one
    """
    cleaners = [cleaner(recipe, lang) for lang in recipe.langs]

    def work(chunk: Chunk) -> Outcome:
        pairs: list[list[str]] = []
        held_out: list[list[str]] = []
        report = Report(seen=chunk.lines)
        rows = zip(*(side.split(b"\n")[:-1] for side in chunk.sides), strict=True)
        for number, row in enumerate(rows, chunk.first):
            place = f"{names[0]}, line {number:,}"
            try:
                pair = [
                    clean(decode(line, name, number))
                    for clean, line, name in zip(cleaners, row, names, strict=True)
                ]
            except UserError:
                if not lenient:
                    raise
                report.drop(NOT_UTF8, place, *(line.decode("utf-8", "replace") for line in row))
                continue
            if clean_up and not all(pair):
                report.drop(EMPTY, place, *pair)
            elif valid_every and (before + number) % valid_every == 0:
                held_out.append(pair)
            else:
                pairs.append(pair)
        report.kept = len(pairs)
        report.held_out = len(held_out)
        sides = as_bytes(pairs)
        if valid_every:
            sides += as_bytes(held_out)
        return Outcome(sides, report)

    return work


def tokenising_work(
    recipe: TextRecipe, name: str, limits: Limits | None, files: tuple[str, str]
) -> Work:
    """Return the work of tokenising clean sentences, and leaving out pairs outside the limits."""
    sides = [tokeniser(recipe, lang) for lang in recipe.langs]

    # undoing this BPE would join words that end so; of raw text, a few such words are no subwords
    share = 0.0 if recipe.tokeniser == "none" and recipe.subword == BPE else BPE_SHARE

    def work(chunk: Chunk) -> Outcome:
        refuse_bpe(chunk, files, share)
        return change(chunk, name, sides, limits)

    return work


def splitting_work(
    recipe: TextRecipe, name: str, codes: Path, limits: Limits | None, both: bool = True
) -> Work:
    """Return the work of splitting tokens, or raw text, into subwords.

    If ``both`` is False, the target stays as it is.
    """
    split = splitter(recipe, codes)
    return partial(change, name=name, sides=[split, split if both else str], limits=limits)


def dropout_work(
    recipe: TextRecipe,
    name: str,
    codes: Path,
    limits: Limits | None,
    both: bool,
    dropout: float,
    copy: int,
) -> Work:
    """Return the work of splitting tokens into subwords, with BPE-dropout.

    Args:
        recipe, name, codes, limits, both: as in :func:`splitting_work`
        dropout: probability with which a merge is left out
        copy: the number of the copy of the text. With the number of the chunk's first line it seeds
            the random generator, so that copies differ, and any number of processes writes the
            same.
    """
    split = splitter(recipe, codes, dropout)
    sides = [split, split if both else str]

    def work(chunk: Chunk) -> Outcome:
        state = random.getstate()  # subword-nmt draws from this generator
        random.seed(f"copy {copy}, from line {chunk.first}")
        try:
            return change(chunk, name, sides, limits)
        finally:
            random.setstate(state)

    return work


def change(
    chunk: Chunk, name: str, sides: Sequence[TextFunction], limits: Limits | None
) -> Outcome:
    """Change both sides of a chunk's pairs, and leave out pairs outside the limits."""
    pairs = []
    report = Report(seen=chunk.lines)
    rows = zip(*(side.decode("utf-8").split("\n")[:-1] for side in chunk.sides), strict=True)
    for number, row in enumerate(rows, chunk.first):
        pair = [change_line(line) for change_line, line in zip(sides, row, strict=True)]
        reason = limits.reason(*pair) if limits else None
        if reason:
            report.drop(reason, f"{name}, line {number:,}", *pair)
        else:
            pairs.append(pair)
    report.kept = len(pairs)
    return Outcome(as_bytes(pairs), report)


def as_bytes(pairs: list[list[str]]) -> list[bytes]:
    """Return the two sides of pairs as lines."""
    return ["".join(pair[side] + "\n" for pair in pairs).encode("utf-8") for side in (0, 1)]


def refuse_bpe(chunk: Chunk, files: Sequence[str], share: float = 0.0) -> None:
    """Raise UserError for words that BPE has already split: they would be split again.

    Args:
        chunk: the lines
        files: the names of the two sides
        share: of the lines that may have such a word
    """
    for side, file in zip(chunk.sides, files, strict=True):
        match = _BPE_MARK.search(side)
        marked = len(_LINE_WITH_BPE_MARK.findall(side)) if match and share else bool(match)
        if match and marked > share * chunk.lines:
            number = chunk.first + side.count(b"\n", 0, match.start())
            raise UserError(
                f"{file}, line {number:,}: '{match[0].decode('utf-8')}' ends in '@@', BPE's mark "
                "for an unfinished word: join the subwords first (sed -E 's/@@( |$)//g')"
            )


def transform(
    make: Callable[[], Work],
    parts: Iterable[Chunk],
    targets: Sequence[Path],
    workers: int,
    progress: Callable[[int], object],
) -> Report:
    """Append the sides of each chunk's result to ``targets``, and add up the reports.

    ``progress(n)`` is called for every n pairs seen.
    """
    total = Report()
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open(path, "ab")) for path in targets]
        for outcome in map_ordered(make, parts, workers):
            for stream, side in zip(streams, outcome.sides, strict=True):
                stream.write(side)
            total.add(outcome.report)
            progress(outcome.report.seen)
    return total
