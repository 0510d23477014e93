"""What is measured of translations of the demo's text beside BLEU: sentences and numbers."""

import re
from collections.abc import Iterable
from pathlib import Path

from vaswani.data.text import read_lines

# What makes a number longer than it looks: a digit after a mark or a space, or in French, where
# the words of a number are separate, another such word.
_FRENCH_NUMBER = (
    "deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|"
    "vingts?|trente|quarante|cinquante|soixante|cents?|mille"
)
_GOES_ON_BEFORE = re.compile(rf"(\d[.,: ]|\b({_FRENCH_NUMBER}) )$")
_GOES_ON_AFTER = re.compile(rf"[.,: ]\d| ({_FRENCH_NUMBER}|et un)\b")


def share(truths: Iterable[bool]) -> float:
    """Return the share of true values, in percent with one decimal."""
    values = list(truths)
    return round(100.0 * sum(values) / len(values), 1)


def number_rows(path: Path) -> list[tuple[int, str]]:
    """Read the number that each test sentence must show.

    Returns:
        pairs (index of the sentence from 0, number as the target must show it)
    """
    rows = [line.split("\t") for line in list(read_lines(path))[1:]]
    return [(int(row[0]) - 1, row[2]) for row in rows]


def numbers_right(rows: list[tuple[int, str]], translations: list[str]) -> float:
    """Return the share of the test's numbers that the translations contain, in percent."""
    return share(has_number(number, translations[sentence]) for sentence, number in rows)


def has_number(surface: str, text: str) -> bool:
    """Return whether ``text`` contains ``surface`` as a complete number.

    "47" is not in "147", "47,5" or "1 047", nor "deux cent trois" in "mille deux cent trois".
    """
    for match in re.finditer(r"(?<![\w-])" + re.escape(surface) + r"(?![\w-])", text):
        before = text[: match.start()]
        after = text[match.end() :]
        if not (_GOES_ON_BEFORE.search(before) or _GOES_ON_AFTER.match(after)):
            return True
    return False
