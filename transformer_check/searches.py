"""Correct and wrong beam searches, run with the model's own forward pass (6.1).

Shape letters: N hypotheses, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .scores import slope_of
from .trace import SOFTMAX
from .wiring import HIDDEN

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
    repetition: float = 1.0
    """by which log-probabilities of tokens that the hypothesis has already are multiplied"""
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
    if search.rank:
        scores -= search.rank * scores.argsort(-1, descending=True).argsort(-1)
    if search.goes_on_with_best if rows[0] else search.first_is_greedy:
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
) -> tuple[list[int], list[list[Row]]]:
    """Return what :func:`run_search` does, and the hypotheses that each step goes on with."""
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
    choose = min if search.chooses == "worst" else max
    return list(choose(finished)[1]), steps


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
        for factor in (2.0, 1.2, 1.5):
            repeated = "lowers the probability of tokens that it has already (repetition penalty)"
            yield repeated, replace(base, repetition=factor)
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


class LogitsOfSearch(TorchDispatchMode):
    """Keeps the logits of each step of a search: what it takes a softmax of over V types [N, V].

    Args:
        first: the logits of the first token [V], by which the softmaxes of attention are told
    """

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.first = first
        self.vocabulary = len(first)
        self.inputs: list[Tensor] = []
        """the input [N, V] of each softmax over V types"""
        self.last_rows: list[Tensor] = []
        """the last of the first dimension of each input of three, which may be the position"""
        self.translations: list[list[int]] = []
        """what the search returns"""
        self.dimensions: set[int] = set()
        """the dimensions of the softmaxes, of inputs [N, V]: -1, or those of another one"""
        self.dims = 0
        """how many dimensions the input of a softmax over V types has; 0 before the first one"""
        self.longest = 0
        """the size of the largest softmax before it"""
        self.has_log = False
        """whether a logarithm is taken of what may be probabilities"""

    @cached_property
    def begin(self) -> tuple[int, float]:
        """Number of the input that has the first token's logits, and its factor; 0 if none has."""
        for number, rows in enumerate(self.inputs):
            factor = slope_of(rows[0], self.first)
            if factor is not None and factor > 0:
                return number, factor
        return 0, 0.0

    @property
    def temperature(self) -> float:
        """What logits are divided by; 1 if it is not known."""
        factor = self.begin[1]
        return round(1 / factor, 2) if factor else 1.0

    @property
    def steps(self) -> list[Tensor]:
        """The logits [N, V] of each step, without a temperature; none if the first is not there."""
        number, factor = self.begin
        return [rows / factor for rows in self.inputs[number:]] if factor else []

    @property
    def first_steps(self) -> list[Tensor]:
        """The logits [N, V] of the first two steps, those of a wrong start token included."""
        return (self.steps or self.inputs)[:2]

    @property
    def rows(self) -> Tensor:
        """The logits of all hypotheses [N, V], and perhaps of others; none as for ``steps``."""
        number, factor = self.begin
        if not factor:
            return self.first.new_zeros(0, self.vocabulary)
        return torch.cat(self.inputs[number:] + self.last_rows[number:]) / factor

    @property
    def numbers(self) -> str:
        """What the search adds up, as in :class:`Search`; empty if it is not known."""
        if not self.inputs:
            return "logits"
        if not self.begin[1]:
            return ""
        return "log-probabilities" if self.has_log else "probabilities"

    def agrees(self, search: Search) -> bool:
        """Return whether a search adds up the same numbers, as far as they are known.

        Greedy decoding needs no sums.
        """
        has_numbers = self.numbers in ("", search.numbers) or search.beam == 1
        return has_numbers and search.temperature == self.temperature

    @property
    def length(self) -> int:
        """The number of steps, for a beam of 4 if its hypotheses are computed one by one."""
        widest = max((len(step) for step in self.steps), default=1)
        return len(self.steps) if widest > 1 else (len(self.steps) + 3) // 4

    def is_of_tokens(self, scores: Tensor) -> bool:
        """Return whether a softmax is over V types, and not over V keys of attention.

        Attention has V keys only after a step with V - 1 keys.
        """
        size = scores.size(-1)
        if self.dims == 0:
            is_keys = self.longest >= self.vocabulary - 1
            self.longest = max(self.longest, size)
            if size == self.vocabulary and not is_keys:
                self.dims = scores.dim()
        return size == self.vocabulary and scores.dim() == self.dims

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in (*SOFTMAX, "_log_softmax") and self.is_of_tokens(args[0]):
            length = args[0].size(-2) if args[0].dim() > 2 else 1
            rows = args[0].detach().reshape(-1, length, self.vocabulary)
            self.inputs.append(rows[:, -1].clone())
            self.last_rows.append(rows[-1].clone())
            dims = args[0].dim()
            self.dimensions.add(args[1] % dims - dims)
            self.has_log |= name == "_log_softmax"
        elif name in ("log", "log_") and self.inputs and args[0].size(-1) == self.vocabulary:
            self.has_log = True
        return func(*args, **(kwargs or {}))


def is_among(rows: Tensor, known: Tensor) -> Tensor:
    """Return for each row of logits [M, V] whether it is among others [N, V], except for rounding.

    A number that is added to all logits of a row changes nothing.

    Returns:
        [M], true or false
    """
    visible = (rows > HIDDEN).all(0)  # [V]; a search may forbid tokens in all rows
    rows = rows[:, visible]
    known = known[:, visible]
    rows = rows - rows.mean(-1, keepdim=True)
    known = known - known.mean(-1, keepdim=True)
    away = torch.cdist(rows, known, p=float("inf")).amin(1)
    return away < 1e-3 * known.std()
