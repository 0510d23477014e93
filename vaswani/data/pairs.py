"""What becomes of sentence pairs on their way to subwords: changed, kept or left out, counted.

A function named ``…_work`` returns the function that a process applies to one chunk after another.
"""

import re
from functools import partial
from pathlib import Path
from typing import Callable, Sequence

from vaswani.common.errors import UserError
from vaswani.data.parallel import EMPTY, NOT_UTF8, Chunk, Limits, Outcome, Report
from vaswani.data.subwords import BPE
from vaswani.data.text import decode
from vaswani.data.text_recipe import TextFunction, TextRecipe, cleaner, splitter, tokeniser

Work = Callable[[Chunk], Outcome]
_BPE_MARK = re.compile(rb"[^ \n]*@@(?=[ \n])")


def cleaning_work(
    recipe: TextRecipe,
    names: tuple[str, str],
    clean_up: bool,
    lenient: bool = False,
    valid_every: int | None = None,
    before: int = 0,
) -> Work:
    """Raw lines to clean sentences.

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
        kept: list[list[str]] = []
        held: list[list[str]] = []
        report = Report(seen=chunk.lines)
        rows = zip(*(side.split(b"\n")[:-1] for side in chunk.sides), strict=True)
        for number, row in enumerate(rows, chunk.first):
            place = f"{names[0]}, line {number:,}"
            try:
                decoded = [
                    decode(line, name, number) for line, name in zip(row, names, strict=True)
                ]
            except UserError:
                if not lenient:
                    raise
                report.drop(NOT_UTF8, place, *(line.decode("utf-8", "replace") for line in row))
                continue
            pair = [clean(line) for clean, line in zip(cleaners, decoded, strict=True)]
            if clean_up and not all(pair):
                report.drop(EMPTY, place, *pair)
            elif valid_every and (before + number) % valid_every == 0:
                held.append(pair)
            else:
                kept.append(pair)
        report.kept, report.held_out = len(kept), len(held)
        return Outcome(as_bytes(kept), as_bytes(held), report)

    return work


def tokenising_work(
    recipe: TextRecipe, name: str, limits: Limits | None, files: tuple[str, str]
) -> Work:
    """Clean sentences to tokens, leaving out pairs of the set ``name`` outside the limits."""
    sides = [tokeniser(recipe, lang) for lang in recipe.langs]

    def work(chunk: Chunk) -> Outcome:
        if recipe.tokeniser == "none" and recipe.bpe == BPE:  # Moses' tokens have no such mark
            refuse_bpe(chunk, files)
        return change(chunk, name, sides, limits)

    return work


def splitting_work(
    recipe: TextRecipe, name: str, codes: Path, limits: Limits | None, both: bool = True
) -> Work:
    """Tokens, or raw text, to subwords; ``both``: the target too, which else stays as it is."""
    split = splitter(recipe, codes)
    return partial(change, name=name, sides=[split, split if both else str], limits=limits)


def change(
    chunk: Chunk, name: str, sides: Sequence[TextFunction], limits: Limits | None
) -> Outcome:
    """Both sides of a chunk's pairs, changed; pairs outside the limits are left out."""
    kept = []
    report = Report(seen=chunk.lines)
    rows = zip(*(side.decode("utf-8").split("\n")[:-1] for side in chunk.sides), strict=True)
    for number, row in enumerate(rows, chunk.first):
        pair = [change_line(line) for change_line, line in zip(sides, row, strict=True)]
        reason = limits.reason(*pair) if limits else None
        if reason:
            report.drop(reason, f"{name}, line {number:,}", *pair)
        else:
            kept.append(pair)
    report.kept = len(kept)
    return Outcome(as_bytes(kept), [], report)


def as_bytes(pairs: list[list[str]]) -> list[bytes]:
    """The two sides of pairs as lines."""
    return ["".join(pair[side] + "\n" for pair in pairs).encode("utf-8") for side in (0, 1)]


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
