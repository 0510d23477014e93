"""Plant a fault in a style, check the result, and say whether the card names it."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from transformer_check import AdapterError, Card, check
from transformer_check.card import Problem
from transformer_check.subject import load
from transformer_check.tiny_model import TinyModel

from .faults.fault import Fault

FOLDER = Path(__file__).parent
STYLES = ("batch_first", "multihead", "sequence_first")


def text_of(style: str, fault: Fault | None = None) -> str:
    """Return a style's text, with a fault if one is given.

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
    """Return the card of a style with a fault; without ``translate`` unless ``searches``."""
    text = text_of(style, fault)
    if not searches:
        text += "\n\ntranslate = None\n"
    with tempfile.TemporaryDirectory() as folder, train_once(text):
        path = Path(folder) / f"{style}.py"
        path.write_text(text, encoding="utf-8")
        return check(path)


TRAINED: dict[str, dict[str, Any]] = {}
"""text of a style above its search → what a tiny model learned, and how well"""


@contextmanager
def train_once(text: str) -> Iterator[None]:
    """Train the tiny model once for all faults in the search of one model.

    The training is deterministic, and depends on the text above the search alone.
    """
    key = text.partition("@torch.no_grad()")[0]
    teach = TinyModel.teach

    def teach_or_copy(model: TinyModel) -> None:
        if key not in TRAINED:
            teach(model)
            TRAINED[key] = {
                "state": {
                    name: tensor.clone() for name, tensor in model.model.state_dict().items()
                },
                "failed": model.failed,
                "scores": model.scores,
            }
        model.model.load_state_dict(TRAINED[key]["state"])
        model.model.eval()
        model.failed = TRAINED[key]["failed"]
        model.scores = TRAINED[key]["scores"]

    with mock.patch.object(TinyModel, "teach", teach_or_copy):
        yield


@dataclass(frozen=True)
class Score:
    """What a card says of a planted fault."""

    style: str
    fault: Fault
    problems: list[str]
    """id and text of each problem that the clean style does not have, as the card orders them"""
    ids: list[str]

    @property
    def is_found(self) -> bool:
        """Whether the card has another problem than that of the clean style."""
        return bool(self.problems)

    @property
    def is_named(self) -> bool:
        """Whether the first problem has the expected id, and says what is wrong."""
        if not self.problems or self.ids[0] not in self.fault.id.split("|"):
            return False
        return re.search(self.fault.says, self.problems[0], re.IGNORECASE) is not None


def text_of_problem(problem: Problem) -> str:
    """Join what the card prints of a problem."""
    parts = [problem.check.id, problem.sentence]
    for _, finding in problem.results:
        parts += [finding.found, f"expected {finding.expected}", finding.fix]
        parts += [", ".join(finding.modules)]
    return " / ".join(dict.fromkeys(filter(None, parts)))


def score(style: str, fault: Fault, clean: Card) -> Score:
    """Plant a fault and look at the problems that the clean style does not have."""
    known = [text_of_problem(problem) for problem in clean.problems]
    try:
        card = card_of(style, fault, fault.searches)
    except AdapterError as error:
        return Score(style, fault, [str(error)], ["adapter"])
    problems = [p for p in card.problems if text_of_problem(p) not in known]
    texts = [text_of_problem(problem) for problem in problems]
    return Score(style, fault, texts, [problem.check.id for problem in problems])


SIZES: dict[str, dict[str, Any]] = {
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "six layers": {"layers": 6},
    "eight heads": {"heads": 8},
    "five heads": {"heads": 5, "d_model": 40},
    "seven heads": {"heads": 7, "d_model": 56},
    "one head": {"heads": 1},
    "wide": {"d_model": 64, "d_ff": 256},
    "narrow": {"d_model": 16, "d_ff": 40, "heads": 2},
    "wide network": {"d_ff": 128},
    "many types": {"vocabulary": 1000},
    "few types": {"vocabulary": 18},
    "short": {"max_length": 48},
}


def card_of_size(style: str, size: str) -> Card:
    """Return the card of a clean style, built with another size; without ``translate``."""
    text = text_of(style) + "\n\ntranslate = None\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{style}.py"
        path.write_text(text, encoding="utf-8")
        adapter = load(path)
        return check(adapter, replace(adapter.CONFIG, **SIZES[size]))
