"""Correct and wrong beam searches, run with the model's own forward pass (6.1).

Shape letters: N hypotheses, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .subject import Config

Row = tuple[int, ...]
Penalty = Callable[[float], float]


def gnmt(length: float) -> float:
    """Return the length penalty ((5 + length) / 6)^0.6, by which log P is divided."""
    return ((5 + length) / 6) ** 0.6


PENALTIES: dict[str, Penalty] = {
    "has no length penalty": lambda length: 1.0,
    "counts the start token in the length": lambda length: gnmt(length + 1),
    "does not count the end token in the length": lambda length: gnmt(length - 1),
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
    "divides log P by (5 + length / 6)^0.6": lambda length: (5 + length / 6) ** 0.6,
    "divides log P by the square root of the length": lambda length: length**0.5,
}


@dataclass(frozen=True)
class Search:
    """Options of a beam search; the defaults are the paper's."""

    beam: int = 4
    penalty: Penalty = gnmt
    stop: str = "no better one"
    """when it stops: no better one, better than live (whose scores are not divided), first end,
    beam ends, twice the beam ends, or limit"""
    adds_scores: bool = True
    """whether the score of a hypothesis includes those of its earlier tokens"""
    numbers: str = "log-probabilities"
    """what is added: log-probabilities, those of the best tokens alone, logits or probabilities"""
    end: str = "ends"
    """what the end token does: it ends, it is ignored, or it is never chosen"""
    chooses: str = "best"
    """which finished hypothesis it returns: best, second, first, last or worst"""
    divides_again: str = ""
    """whether every step divides by the penalty the scores that it carries over, or all scores"""
    temperature: float = 1.0
    """by which logits are divided"""
    goes_on_with_best: bool = False
    """whether each hypothesis has only its most probable token as next, except at the first step"""
    repetition: float = 1.0
    """by which log-probabilities of tokens that the hypothesis has already are multiplied"""
    blocks: int = 0
    """of how many tokens sequences are that a hypothesis has at most once; 0 if it may have all"""
    first_is_greedy: bool = False
    """whether only the most probable first token is gone on with"""
    shortest: int = 0
    """number of tokens before which there is no end token"""
    counts_end: bool = True
    """whether the score of a finished hypothesis includes that of the end token"""
    rank: float = 0.0
    """what the second best token of a hypothesis loses, the third twice"""
    mixes_hypotheses: bool = False
    """whether the k-th best token is put behind the k-th hypothesis, not behind its own"""
    narrows: bool = False
    """whether each finished hypothesis makes the beam smaller by one"""


Tables = Callable[[list[Row]], Tensor]
"""hypotheses → logits of their next tokens [N, V]"""


def numbers_of(logits: Tensor, kind: str) -> Tensor:
    """Return the scores of next tokens [N, V] that a search adds up."""
    if kind == "logits":
        return logits.clone()
    if kind == "best log-probabilities":
        best, places = logits.topk(8)  # twice the beam
        none = torch.full_like(logits, float("-inf"))
        return none.scatter(-1, places, best.log_softmax(-1))
    return logits.softmax(-1) if kind == "probabilities" else logits.log_softmax(-1)


def score_tokens(search: Search, rows: list[Row], tables: Tables, end: int, pad: int) -> Tensor:
    """Return what a search adds to the score of each hypothesis for each next token [N, V]."""
    scores = numbers_of(tables(rows) / search.temperature, search.numbers)
    scores[:, pad] = float("-inf")
    if search.end == "never":
        scores[:, end] = float("-inf")
    if len(rows[0]) < search.shortest:
        scores[:, end] = float("-inf")
    if search.repetition != 1.0:
        for number, row in enumerate(rows):
            scores[number, torch.tensor(row, dtype=torch.long)] *= search.repetition
    for number, row in enumerate(rows if search.blocks else []):
        before = row[len(row) - search.blocks + 1 :]
        for place in range(len(row) - search.blocks + 1):
            if row[place : place + search.blocks - 1] == before:
                scores[number, row[place + search.blocks - 1]] = float("-inf")
    if search.rank:
        scores -= search.rank * scores.argsort(-1, descending=True).argsort(-1)
    if search.goes_on_with_best if rows[0] else search.first_is_greedy:
        best = scores.amax(-1, keepdim=True)
        scores = scores.masked_fill(scores < best, float("-inf"))
    return scores


def search_with_steps(
    search: Search, tables: Tables, limit: int, end: int, pad: int
) -> tuple[list[int], list[list[Row]]]:
    """Translate one source, and return its ids, and the hypotheses that each step goes on with.

    Args:
        search: the options
        tables: the model, for this source
        limit: the greatest length
        end: id of the end token
        pad: id of padding, which is never chosen
    """
    live: list[tuple[Row, float]] = [((), 0.0)]
    steps: list[list[Row]] = []
    finished: list[tuple[float, Row]] = []
    for length in range(1, limit + 1):
        steps.append([row for row, _ in live])
        scores = score_tokens(search, steps[-1], tables, end, pad)
        before = torch.tensor([score for _, score in live])
        totals = (before[:, None] if search.adds_scores else 0.0) + scores
        count = min(2 * search.beam, totals.numel() - 1)
        top, places = totals.flatten().topk(count)
        rows = []
        for score, place in zip(top.tolist(), places.tolist(), strict=True):
            if score > float("-inf"):
                rows.append(((*live[place // totals.size(1)][0], place % totals.size(1)), score))
        last = live
        before_end = dict(last)
        live = []
        for row, score in rows:
            again = search.penalty(length) if search.divides_again else 1.0
            if row[-1] == end and search.end == "ends":
                score = score if search.counts_end else before_end[row[:-1]]
                once = score / search.penalty(length)
                finished.append((once / again if search.divides_again == "all" else once, row))
            elif len(live) < search.beam - (len(finished) if search.narrows else 0):
                if search.mixes_hypotheses:
                    row = (*last[min(len(live), len(last) - 1)][0], row[-1])
                live.append((row, score / again))
        if is_done(search, finished, live, limit):
            break
    if not finished:
        return list((live or last)[0][0]), steps
    if search.chooses in ("first", "last"):
        return list(finished[0 if search.chooses == "first" else -1][1]), steps
    finished.sort(reverse=True)
    place = {"best": 0, "second": min(1, len(finished) - 1), "worst": -1}[search.chooses]
    return list(finished[place][1]), steps


def run_to_end(search: Search, tables: Tables, limit: int, config: Config) -> list[int]:
    """Translate one source, and leave out what follows the first end token."""
    row = search_with_steps(search, tables, limit, config.end, config.pad)[0]
    return row[: row.index(config.end) + 1] if config.end in row else row


def finds(
    search: Search, tables: Tables, limit: int, config: Config, translation: list[int]
) -> bool:
    """Return whether a search for one source finds a translation.

    Translations without an end may differ in length.
    """
    row = run_to_end(search, tables, limit, config)
    if config.end in row or config.end in translation:
        return row == translation
    shortest = min(len(row), len(translation))
    return abs(len(row) - len(translation)) <= 2 and row[:shortest] == translation[:shortest]


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
    if search.stop == "better than live":
        return max(finished)[0] > live[0][1]
    return max(finished)[0] > live[0][1] / search.penalty(limit)


RIGHT = Search()


def equivalents() -> Iterator[Search]:
    """Yield the searches that count as the paper's: other beam sizes, too."""
    yield RIGHT
    for beam in (5, 8, 10, 3, 2):
        yield replace(RIGHT, beam=beam)


BEAM_ENDS = ("twice the beam ends", "beam ends")
"""stops that lose a better hypothesis"""
EARLY_STOPS = ("first end", "better than live")
"""stops that may lose a better hypothesis of one sentence, and go on for other sentences"""


def wrong_searches(temperature: float, size: int) -> Iterator[tuple[str, str, Search]]:
    """Yield (id, predicate of a sentence, search) of usual mistakes, the most usual first.

    Args:
        temperature: what the search divides the logits by

    Searches up to the limit are left out where scores only fall: they find what RIGHT finds.
    """
    greedy = "is greedy: its beam has a size of 1, or its hypotheses are all equal"
    yield "beam-search", greedy, replace(RIGHT, beam=1)
    for name, penalty in PENALTIES.items():
        falls = penalty(2) >= penalty(1)
        for stop in (RIGHT.stop, *BEAM_ENDS) if falls else (RIGHT.stop, "limit", *BEAM_ENDS):
            yield "length-penalty", name, replace(RIGHT, penalty=penalty, stop=stop)
    for says, search in wrong_scores(temperature, size):
        yield "beam-search", says, search
    yield "beam-search", "goes on after the end token", replace(RIGHT, end="ignored")
    yield "beam-search", "never chooses the end token", replace(RIGHT, end="never")
    for beam in (4, 5, 8):
        stops = replace(RIGHT, beam=beam)
        first = "stops at the first finished hypothesis"
        yield "beam-search", first, replace(stops, stop="first end")
        bound = "stops too early: it compares finished scores with unfinished ones without penalty"
        yield "beam-search", bound, replace(stops, stop="better than live")
        for stop in BEAM_ENDS:
            some = "stops before a better hypothesis has ended"
            yield "beam-search", some, replace(stops, stop=stop)
    for stop in (RIGHT.stop, "limit"):
        worst = "returns the worst finished hypothesis"
        yield "beam-search", worst, replace(RIGHT, chooses="worst", stop=stop)
        second = "returns the second best finished hypothesis"
        yield "beam-search", second, replace(RIGHT, chooses="second", stop=stop)


def wrong_scores(temperature: float, size: int) -> Iterator[tuple[str, Search]]:
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
        only = "is greedy at the first step: all hypotheses begin with the same token"
        yield only, replace(base, first_is_greedy=True)
        yield "never repeats a token", replace(base, repetition=math.inf)
        for size_of in (2, 3, 4):
            blocks = f"never repeats {size_of} consecutive tokens (n-gram blocking)"
            yield blocks, replace(base, blocks=size_of)
        for factor in (2.0, 1.2, 1.5):
            repeated = "lowers the probability of tokens that it has already (repetition penalty)"
            yield repeated, replace(base, repetition=factor)
        renormalised = (
            "normalises the probabilities of the best tokens again, without the other tokens"
        )
        yield renormalised, replace(base, numbers="best log-probabilities")
        narrows = "makes its beam smaller with each finished hypothesis"
        yield narrows, replace(base, narrows=True)
        yield "leaves out the probability of the end token", replace(base, counts_end=False)
        rank = "lowers the scores of a hypothesis's tokens by their rank (diverse beam search)"
        yield from ((rank, replace(base, rank=loss)) for loss in (0.5, 1.0, 0.2))
        mixed = "appends tokens to another hypothesis than the one they were chosen for"
        yield mixed, replace(base, mixes_hypotheses=True)
        long = "does not end a translation before it is as long as its source"
        yield from ((long, replace(base, shortest=size + more)) for more in (-1, 0, 1))
        if temperature != 1:
            says = f"divides the logits by a temperature of {temperature:g}"
            yield says, replace(base, temperature=temperature)
