"""Plant a fault in a style, check the result, and say whether the card names it."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from transformer_check import Card, check
from transformer_check.card import DIFFERS, ERROR, ON_PURPOSE

from .faults.fault import Fault

FOLDER = Path(__file__).parent
STYLES = ("batch_first", "multihead", "sequence_first")


def text_of(style: str, fault: Fault | None = None) -> str:
    """A style's text, with a fault.

    Raises:
        ValueError: the text that the fault replaces is not there
    """
    text = (FOLDER / f"{style}.py").read_text(encoding="utf-8")
    for old, new in getattr(fault, style) if fault else []:
        if old not in text:
            raise ValueError(f"{fault.name}: {style} has no {old!r}")
        text = text.replace(old, new)
    return text


def card_of(style: str, fault: Fault | None = None, searches: bool = False) -> Card:
    """The card of a style with a fault; without ``translate`` unless it is asked for."""
    text = text_of(style, fault)
    if not searches:
        text += "\n\ntranslate = None\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{style}.py"
        path.write_text(text, encoding="utf-8")
        return check(path)


@dataclass(frozen=True)
class Score:
    """What a card says of a planted fault."""

    style: str
    fault: Fault
    is_found: bool
    is_named: bool
    findings: list[str]


def findings_of(card: Card) -> dict[str, str]:
    """The id and the text of each finding."""
    findings = {}
    for check_, result in card.results:
        if result.status in (DIFFERS, ERROR, ON_PURPOSE):
            findings[check_.title] = " / ".join([check_.title, result.seen, result.meaning])
    return findings


def score(style: str, fault: Fault, clean: dict[str, str]) -> Score:
    """Plant a fault and look at the findings that the clean style does not have."""
    findings = findings_of(card_of(style, fault, fault.searches))
    new = {name: text for name, text in findings.items() if clean.get(name) != text}
    names = fault.id.split("|")
    is_named = any(
        name in names and re.search(fault.says, text, re.IGNORECASE) for name, text in new.items()
    )
    return Score(style, fault, bool(new), is_named, list(new.values()))
