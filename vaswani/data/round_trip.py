"""What text loses on its way to tokens and back: how good a perfect system's score can be."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import BLEU

from vaswani.data.text import read_lines
from vaswani.data.tokenisation import TargetText, TextFunction, hardly_spaced, splitter, tokeniser
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import SENTENCEPIECE, Name, Recipe

#: the first lines of a set, which are tried
MOST_LINES = 5000
#: of a hundred lines, how many have to come back as they were
ENOUGH_LINES = 99.0
#: BLEU below which scores say more about the tokens than about a system
LOW = 98.0
#: kinds of differences that are shown
SHOWN = 3


class Difference(NamedTuple):
    """A piece of text, and what is restored from its tokens."""

    written: str
    restored: str

    @property
    def kind(self) -> tuple[str, ...]:
        """What changes, with the character before and after: the same for all that differ alike."""
        before = commonprefix(self)
        rest = [side.removeprefix(before) for side in self]
        after = commonprefix([side[::-1] for side in rest])[::-1]
        changed = [side.removesuffix(after) for side in rest]
        return tuple(map(shape, (before[-1:], *changed, after[:1])))


def shape(text: str) -> str:
    """Return a text with its words and numbers replaced, so that only its form remains."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text))


@dataclass(frozen=True)
class RoundTrip:
    """A set's text, restored from its tokens."""

    #: "valid" or "test", and what split it
    split: str
    subword: Name
    #: how many of a hundred lines come back as they were, but for spaces in a row
    lines: float
    #: sacreBLEU's, from 0 to 100
    bleu: float
    #: an example of each kind, the commonest first, and how many there are
    differences: list[tuple[Difference, int]]

    def report(self) -> Iterator[str]:
        """Yield the lines to print about the round trip."""
        yield (
            f"restoring the text of {self.split} from its tokens: {self.lines:.2f} % of the lines "
            f"come back unchanged; BLEU {self.bleu:.2f}, the most that a perfect system could get"
        )
        for (written, restored), count in self.differences[:SHOWN]:
            yield f"  {count:,} × “{written}” becomes “{restored}”, or the like"
        if is_low(self.lines, self.bleu):
            yield f"warning: {limit(self.lines, self.bleu, self.subword)}"


def is_low(lines: float | None, bleu: float) -> bool:
    """Return whether a round trip loses too much; text of earlier versions has no count of
    lines.
    """
    return bleu < LOW if lines is None else lines < ENOUGH_LINES


def limit(lines: float | None, bleu: float, subword: Name) -> str:
    """Return what a low score of a round trip means, and what to do."""
    share = "" if lines is None else f" and {lines:.2f} % of the lines right"
    meaning = (
        f"a perfect system would get BLEU {bleu:.2f}{share}, because the text cannot be restored "
        "exactly from its tokens"
    )
    if subword == SENTENCEPIECE:
        return f"{meaning}: it normalises text (NFKC)"
    return f"{meaning}: prepare it with --subword {SENTENCEPIECE}, which loses less"


def measure_round_trip(recipe: Recipe, prepared: PreparedText) -> RoundTrip | None:
    """Measure the round trip of the target side; return None if the text has only tokens or trees.

    Args:
        recipe: how it was prepared
        prepared: its folder
    """
    split = "valid" if "valid" in recipe.splits else "test"
    path = prepared.sentences(split, recipe.target_lang)
    if recipe.tokenised or recipe.trees or not path.is_file():
        return None
    lower = str.lower if recipe.lowercase else str  # capitals are not what tokens lose
    written = [lower(line) for line in islice(read_lines(path), MOST_LINES) if line]
    if not written:
        return None
    there_and_back = round_trip(recipe, prepared.subword_file(recipe.subword), split)
    restored = [there_and_back(line) for line in written]
    changes = differences(written, restored)
    unchanged = unchanged_share(written, restored)
    return RoundTrip(split, recipe.subword, unchanged, bleu(restored, written), changes)


def round_trip(recipe: Recipe, codes: Path, split: str) -> TextFunction:
    """Return a function that tokenises and restores a target sentence of a set."""
    text = recipe.text
    if split != "test":
        text = replace(text, straight_apostrophes=False)
    if recipe.subword == SENTENCEPIECE:
        tokens = splitter(text, codes)
    else:  # subwords are undone exactly
        tokens = tokeniser(text, text.target_lang)
    restore = TargetText(text, codes).text
    return lambda line: restore(tokens(line))


def unchanged_share(written: list[str], restored: list[str]) -> float:
    """Return the percentage of unchanged lines; spaces in a row count as one, as for Moses.

    Rounded down, so that 100 means all.
    """
    same = [
        before.split() == after.split() for before, after in zip(written, restored, strict=True)
    ]
    return math.floor(10_000 * sum(same) / len(same)) / 100


def bleu(restored: list[str], written: list[str]) -> float:
    """Return sacreBLEU's score of the restored text."""
    metric = BLEU(tokenize="char" if hardly_spaced(written) else "13a")
    return round(float(metric.corpus_score(restored, [written]).score), 2)


def differences(written: Iterable[str], restored: Iterable[str]) -> list[tuple[Difference, int]]:
    """Return the kinds of differences, most frequent first: an example and the count of each."""
    counts: Counter[tuple[str, ...]] = Counter()
    examples: dict[tuple[str, ...], Difference] = {}
    for before, after in zip(written, restored, strict=True):
        if before == after:
            continue
        for difference in differences_in(before.split(), after.split()):
            counts[difference.kind] += 1
            examples.setdefault(difference.kind, difference)
    return [(examples[kind], count) for kind, count in counts.most_common()]


def differences_in(written: list[str], restored: list[str]) -> Iterator[Difference]:
    """Yield the words of a line that differ."""
    matcher = SequenceMatcher(None, written, restored, autojunk=False)
    for kind, first, last, other_first, other_last in matcher.get_opcodes():
        if kind != "equal":
            yield Difference(
                " ".join(written[first:last]), " ".join(restored[other_first:other_last])
            )
