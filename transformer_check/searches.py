"""Correct and wrong beam searches, run with the model's own forward pass (6.1).

Shape letters: N hypotheses, V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Row = tuple[int, ...]
Penalty = Callable[[float], float]


def gnmt(length: float) -> float:
    """Return the length penalty ((5 + length) / 6)^0.6, by which log P is divided."""
    return ((5 + length) / 6) ** 0.6


PENALTIES: dict[str, Penalty] = {
    "has no length penalty": lambda length: 1.0,
    "divides log P by the length": lambda length: length,
    "divides log P by length^0.6": lambda length: length**0.6,
    "divides log P by length^0.7": lambda length: length**0.7,
    "has α = 1 in the length penalty": lambda length: (5 + length) / 6,
    "has α = 0.2 in the length penalty": lambda length: ((5 + length) / 6) ** 0.2,
    "has α = 2 in the length penalty": lambda length: ((5 + length) / 6) ** 2,
    "multiplies log P by the length penalty": lambda length: 1 / gnmt(length),
    "multiplies log P by the length": lambda length: 1 / length,
    "divides log P by ((5 + length) / 5)^0.6": lambda length: ((5 + length) / 5) ** 0.6,
    "divides log P by ((5 + length)^0.6) / 6": lambda length: (5 + length) ** 0.6 / 6,
}


@dataclass(frozen=True)
class Search:
    """Options of a beam search; the defaults are the paper's."""

    beam: int = 4
    penalty: Penalty = gnmt
    stop: str = "no better one"
    """when it stops: no better one, first end, beam ends, twice the beam ends, or limit"""
    adds_scores: bool = True
    """whether the score of a hypothesis includes those of its earlier tokens"""
    numbers: str = "log-probabilities"
    """what is added: log-probabilities, logits or probabilities"""
    end: str = "ends"
    """what the end token does: it ends, it is ignored, or it is never chosen"""
    chooses: str = "best"
    """which finished hypothesis it returns: best, first, last or worst"""
    divides_again: str = ""
    """whether every step divides by the penalty the scores that it carries over, or all scores"""
    temperature: float = 1.0
    """by which logits are divided"""
    goes_on_with_best: bool = False
    """whether each hypothesis has only its most probable token as next, except at the first step"""
    repeats: bool = True
    """whether a token may come twice"""
    narrows: bool = False
    """whether each finished hypothesis makes the beam smaller by one"""


Tables = Callable[[list[Row]], Tensor]
"""hypotheses → logits of their next tokens [N, V]"""


def numbers_of(logits: Tensor, kind: str) -> Tensor:
    """Return the scores of next tokens [N, V] that a search adds up."""
    if kind == "logits":
        return logits.clone()
    return logits.softmax(-1) if kind == "probabilities" else logits.log_softmax(-1)


def score_tokens(search: Search, rows: list[Row], tables: Tables, end: int, pad: int) -> Tensor:
    """Return what a search adds to the score of each hypothesis for each next token [N, V]."""
    scores = numbers_of(tables(rows) / search.temperature, search.numbers)
    scores[:, pad] = float("-inf")
    if search.end == "never":
        scores[:, end] = float("-inf")
    if not search.repeats:
        for number, row in enumerate(rows):
            scores[number, torch.tensor(row, dtype=torch.long)] = float("-inf")
    if search.goes_on_with_best and rows[0]:
        best = scores.amax(-1, keepdim=True)
        scores = scores.masked_fill(scores < best, float("-inf"))
    return scores


def run_search(search: Search, tables: Tables, limit: int, end: int, pad: int) -> list[int]:
    """Translate one source, and return its ids, with the end token if there is one.

    Args:
        search: the options
        tables: the model, for this source
        limit: the greatest length
        end: id of the end token
        pad: id of padding, which is never chosen
    """
    return search_with_steps(search, tables, limit, end, pad)[0]


def search_with_steps(
    search: Search, tables: Tables, limit: int, end: int, pad: int
) -> tuple[list[int], int]:
    """Return what :func:`run_search` does, and the number of steps."""
    live: list[tuple[Row, float]] = [((), 0.0)]
    finished: list[tuple[float, Row]] = []
    for length in range(1, limit + 1):
        scores = score_tokens(search, [row for row, _ in live], tables, end, pad)
        before = torch.tensor([score for _, score in live])
        totals = (before[:, None] if search.adds_scores else 0.0) + scores
        count = min(2 * search.beam, totals.numel() - 1)
        top, places = totals.flatten().topk(count)
        rows = []
        for score, place in zip(top.tolist(), places.tolist(), strict=True):
            if score > float("-inf"):
                rows.append(((*live[place // totals.size(1)][0], place % totals.size(1)), score))
        last = live
        live = []
        for row, score in rows:
            again = search.penalty(length) if search.divides_again else 1.0
            if row[-1] == end and search.end == "ends":
                once = score / search.penalty(length)
                finished.append((once / again if search.divides_again == "all" else once, row))
            elif len(live) < search.beam - (len(finished) if search.narrows else 0):
                live.append((row, score / again))
        if is_done(search, finished, live, limit):
            break
    if not finished:
        return list((live or last)[0][0]), length
    if search.chooses in ("first", "last"):
        return list(finished[0 if search.chooses == "first" else -1][1]), length
    choose = min if search.chooses == "worst" else max
    return list(choose(finished)[1]), length


def is_done(
    search: Search, finished: list[tuple[float, Row]], live: list[tuple[Row, float]], limit: int
) -> bool:
    """Return whether a search stops after this step."""
    if not live:
        return True
    needed = {"first end": 1, "beam ends": search.beam, "twice the beam ends": 2 * search.beam}
    if search.stop in needed:
        return len(finished) >= needed[search.stop]
    if search.stop == "limit" or not finished:
        return False
    return max(finished)[0] > live[0][1] / search.penalty(limit)


RIGHT = Search()


def equivalents() -> Iterator[Search]:
    """Yield the searches that count as the paper's: other beam sizes, too."""
    yield RIGHT
    for beam in (5, 8, 10, 3, 2):
        yield replace(RIGHT, beam=beam)


BEAM_ENDS = ("twice the beam ends", "beam ends")
"""stops that lose a better hypothesis"""


def wrong_searches() -> Iterator[tuple[str, str, Search]]:
    """Yield (id, predicate of a sentence, search) of usual mistakes, the most usual first.

    Searches up to the limit are left out where scores only decrease: they find what RIGHT finds.
    """
    greedy = "is greedy: its beam has a size of 1, or its hypotheses are all equal"
    yield "beam-search", greedy, replace(RIGHT, beam=1)
    for name, penalty in PENALTIES.items():
        falls = penalty(2) >= penalty(1)
        for stop in (RIGHT.stop, *BEAM_ENDS) if falls else (RIGHT.stop, "limit", *BEAM_ENDS):
            yield "length-penalty", name, replace(RIGHT, penalty=penalty, stop=stop)
    for says, search in wrong_scores():
        yield "beam-search", says, search
    yield "beam-search", "goes on after the end token", replace(RIGHT, end="ignored")
    yield "beam-search", "never chooses the end token", replace(RIGHT, end="never")
    for beam in (4, 5, 8):
        stops = replace(RIGHT, beam=beam)
        first = "stops at the first finished hypothesis"
        yield "beam-search", first, replace(stops, stop="first end")
        for stop in BEAM_ENDS:
            some = "stops before a better hypothesis has ended"
            yield "beam-search", some, replace(stops, stop=stop)
    for stop in (RIGHT.stop, "limit"):
        worst = "returns the worst finished hypothesis"
        yield "beam-search", worst, replace(RIGHT, chooses="worst", stop=stop)


def wrong_scores() -> Iterator[tuple[str, Search]]:
    """Yield (predicate of a sentence, search) of mistakes in scores and hypotheses."""
    lost = "does not add up scores: only the last token's score counts"
    for stop in (RIGHT.stop, *BEAM_ENDS, "first end", "limit"):
        base = replace(RIGHT, stop=stop)
        yield lost, replace(base, adds_scores=False)
        for numbers in ("logits", "probabilities"):
            yield f"adds {numbers} in place of log-probabilities", replace(base, numbers=numbers)
    first = "returns the first finished hypothesis, not the best"
    yield first, replace(RIGHT, chooses="first")
    for stop in (RIGHT.stop, *BEAM_ENDS, "limit"):
        base = replace(RIGHT, stop=stop)
        yield "returns the last finished hypothesis, not the best", replace(base, chooses="last")
        again = "divides scores by the length penalty again at every step"
        yield again, replace(base, divides_again="carried")
        yield again, replace(base, divides_again="all")
    for stop in (RIGHT.stop, "beam ends"):
        base = replace(RIGHT, stop=stop)
        best = "goes on with one token per hypothesis, its most probable one: each stays greedy"
        yield best, replace(base, goes_on_with_best=True)
        yield "never repeats a token", replace(base, repeats=False)
        narrows = "makes its beam smaller with each finished hypothesis"
        yield narrows, replace(base, narrows=True)
        for temperature in (2.0, 0.5, 0.7, 0.8, 1.5):
            says = f"divides the logits by a temperature of {temperature:g}"
            yield says, replace(base, temperature=temperature)
