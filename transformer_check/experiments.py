"""Experiments with a search: its hypotheses get chosen probabilities while translate() runs (6.1).

A trained model shows a mistake of a search only if its probabilities happen to let it matter. An
experiment replaces the input of the softmax over V types, so that two translations compete, and
every other hypothesis is hopeless. Which of the two is returned shows the search's scores. A series
of experiments measures the length penalty.

Shape letters: N hypotheses, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .search_logits import ChosenLogits, LogitsOfSearch
from .searches import PENALTIES, Penalty, Row, Search, Tables, finds, gnmt
from .subject import AdapterError, Subject

NEVER = -30.0
"""log P of special tokens that have no chosen probability"""
SHORT, MIDDLE, LONG = 2, 5, 12
"""lengths of translations that compete, the end included"""


class Experiment:
    """Two translations that compete, and the probabilities of their tokens.

    Args:
        subject: the implementation
        shares: hypothesis → next token → its probability; other tokens share what is left
        says: the predicate of a sentence, if a search fails in this experiment alone
        mistake: the translation by a search with that mistake, if there is only one
    """

    def __init__(
        self,
        subject: Subject,
        shares: dict[Row, dict[int, float]],
        says: str = "",
        mistake: list[int] | None = None,
    ) -> None:
        self.subject = subject
        self.shares = shares
        self.says = says
        self.mistake = mistake

    @cached_property
    def chosen(self) -> dict[Row, Tensor]:
        """Hypothesis → log-probabilities of its next tokens [V]."""
        rows = {}
        for row, shares in self.shares.items():
            tokens = torch.tensor(list(shares))
            left = max(1 - sum(shares.values()), 1e-6)
            logits = self.hopeless.index_fill(0, tokens, float("-inf"))
            logits = logits.log_softmax(-1) + math.log(left)
            logits[tokens] = torch.tensor(list(shares.values())).log()
            rows[row] = logits.log_softmax(-1)
        return rows

    @cached_property
    def hopeless(self) -> Tensor:
        """The log-probabilities [V] of the next tokens of all other hypotheses, which never end."""
        c = self.subject.config
        logits = torch.zeros(c.vocabulary)
        logits[[c.pad, c.start, c.end]] = NEVER
        return logits.log_softmax(-1)

    def tables(self, rows: list[Row]) -> Tensor:
        """Return the log-probabilities [N, V] of the next tokens of N hypotheses."""
        return torch.stack([self.chosen.get(row, self.hopeless) for row in rows])


def compete(subject: Subject, lengths: tuple[int, int], ratio: float, cost: float) -> Experiment:
    """Return an experiment with two translations of different lengths.

    Args:
        subject: the implementation
        lengths: of the two, the end included
        ratio: log P of the longer one, divided by that of the shorter one
        cost: -log P of the shorter one
    """
    c = subject.config
    tokens = subject.words(1, sum(lengths) - 2, seed=10)[0].tolist()
    shorter = [*tokens[: lengths[0] - 1], c.end]
    longer = [*tokens[lengths[0] - 1 :], c.end]
    first = 1.0 if cost < 2.5 else 2.5  # the first tokens' probabilities sum to less than 1
    shares: dict[Row, dict[int, float]] = {}
    for row, total, begin in ((shorter, cost, first), (longer, ratio * cost, 0.5)):
        begin = min(begin, total)
        later = (total - begin) / (len(row) - 1)
        for place, token in enumerate(row):
            hypothesis = shares.setdefault(tuple(row[:place]), {})
            hypothesis[token] = math.exp(-later if place else -begin)
    return Experiment(subject, shares)


def repeat(subject: Subject) -> Experiment:
    """Return an experiment with a translation that repeats a token, the more probable one."""
    c = subject.config
    again, *others = subject.words(1, MIDDLE + 1, seed=11)[0].tolist()
    shares: dict[Row, dict[int, float]] = {(): {again: 0.5, others[0]: 0.45}}
    for row in ([again] * MIDDLE, others):
        for place in range(1, MIDDLE):
            shares[tuple(row[:place])] = {row[place]: 0.6}
        shares[tuple(row)] = {c.end: 0.999}
    says = "lowers the probability of tokens that it has already (repetition penalty)"
    return Experiment(subject, shares, says, [*others, c.end])


def repeat_certainly(subject: Subject) -> Experiment:
    """Return an experiment with one translation that repeats a token; all others are improbable."""
    token = int(subject.words(1, 1, seed=11))
    shares: dict[Row, dict[int, float]] = {
        (token,) * place: {token: 1 - 1e-6} for place in range(MIDDLE)
    }
    shares[(token,) * MIDDLE] = {subject.config.end: 1 - 1e-6}
    return Experiment(subject, shares, "never repeats tokens that it has already")


def spread(subject: Subject) -> Experiment:
    """Return an experiment with many improbable tokens, whose sum is large."""
    c = subject.config
    first, of_first, second, of_second = subject.words(1, 4, seed=12)[0].tolist()
    shares: dict[Row, dict[int, float]] = {
        (): {first: 0.5, second: 0.36},
        (first,): {of_first: 0.4},
        (second,): {of_second: 0.98},
        (first, of_first): {c.end: 0.999},
        (second, of_second): {c.end: 0.999},
    }
    says = "normalises the probabilities of the best tokens again, without the other tokens"
    return Experiment(subject, shares, says, [first, of_first, c.end])


def endless(subject: Subject, token: int, length: int) -> Experiment:
    """Return an experiment with one translation, which does not end before a length."""
    shares = {(token,) * place: {token: 1 - 1e-6} for place in range(length)}
    return Experiment(subject, shares)


def usual_experiments(subject: Subject) -> list[Experiment]:
    """Return experiments that show the usual mistakes of searches."""
    right = gnmt(MIDDLE) / gnmt(SHORT)
    return [
        compete(subject, (SHORT, MIDDLE), right * 0.99, 1.0),
        compete(subject, (SHORT, MIDDLE), right * 1.01, 1.0),
        compete(subject, (SHORT, MIDDLE), 0.2, 3.0),
        repeat_certainly(subject),
        repeat(subject),
        spread(subject),
    ]


class Trials:
    """Experiments with translate() of one source.

    Args:
        subject: the implementation
        translate: returns the translation of the source
        tables: the model's logits, for this source
        seen: the logits of translate() without an experiment
    """

    def __init__(
        self,
        subject: Subject,
        translate: Callable[[], list[int]],
        tables: Tables,
        seen: LogitsOfSearch,
    ) -> None:
        self.subject = subject
        self.translate = translate
        self.tables = tables
        self.seen = seen

    def run(self, experiment: Experiment) -> tuple[list[int] | None, int]:
        """Return the result of translate() with the probabilities of an experiment.

        Returns:
            the translation, None if no logits were replaced; the number of hypotheses of the
            experiment that the search went on with
        """
        if not self.seen.steps or self.seen.dimensions != {-1}:
            return None, 0
        known = torch.cat([self.tables([row]) for row in experiment.shares])
        chosen = torch.cat([experiment.tables([row]) for row in experiment.shares])
        factor = self.seen.begin[1]
        replaced = ChosenLogits(known, chosen, experiment.hopeless, factor, self.seen.dims)
        try:
            with replaced:
                translation = self.translate()
        except AdapterError:  # a search may not expect such probabilities
            return None, 0
        return (translation if 0 in replaced.seen else None), len(replaced.seen)

    @cached_property
    def results(self) -> list[tuple[Experiment, list[int]]]:
        """The usual experiments, and the translation in each; none if logits are not replaced."""
        results = []
        for experiment in usual_experiments(self.subject):
            translation = self.run(experiment)[0]
            if translation is None:
                return []
            results.append((experiment, translation))
        return results

    def failed(self, search: Search, limits: set[int]) -> Iterator[Experiment]:
        """Yield the usual experiments in which a search does not find the translation."""
        for experiment, translation in self.results:
            if not any(
                finds(search, experiment.tables, limit, self.subject.config, translation)
                for limit in limits
            ):
                yield experiment

    def describe_penalty(self) -> str | None:
        """Return the predicate of a sentence about the length penalty, as experiments measure it.

        Returns:
            empty for the paper's penalty; None if it is not known
        """

        def is_long(experiment: Experiment, length: int) -> bool:
            translation = self.run(experiment)[0]
            return translation is not None and len(translation) == length

        return describe_penalty(measure(self.subject, is_long)) if self.results else None


class Measured(NamedTuple):
    """The ratios of log P at which a search changes from the longer translation to the shorter.

    They are 0 if the longer translation is never found, and infinite if it always is.
    """

    middle: float
    """of 5 tokens and of 2, for log P = -3 of the shorter"""
    long: float
    """of 12 tokens and of 2, for log P = -1 of the shorter"""


RANGES = {MIDDLE: (3.0, 0.05, 4.0), LONG: (1.0, 0.5, 12.0)}
"""length of the longer translation → -log P of the shorter; the least and the greatest ratio"""
NARROW = 1.006
"""quotient of the greatest and the least ratio at the end of a measurement"""


def ratio_of(penalty: Penalty, length: int) -> float:
    """Return the ratio of log P at which a penalty rates a translation as high as a short one."""
    return penalty(length) / penalty(SHORT)


def measure(subject: Subject, is_long: Callable[[Experiment, int], bool]) -> Measured:
    """Measure the length penalty of a search by bisection, for which usual penalties are guessed.

    Args:
        subject: the implementation
        is_long: returns whether translate() gives the translation of that length in an experiment
    """

    def ratio(length: int, penalties: list[Penalty]) -> float:
        cost, start, stop = RANGES[length]

        def is_long_at(ratio: float) -> bool:
            return is_long(compete(subject, (SHORT, length), ratio, cost), length)

        least, most = start, stop
        guesses = sorted(ratio_of(penalty, length) for penalty in penalties)
        while most > NARROW * least:
            guesses = [guess for guess in guesses if least < guess < most]
            tried = math.sqrt(least * most)
            if guesses:
                guess = guesses[len(guesses) // 2]
                below, above = guess / math.sqrt(NARROW), guess * math.sqrt(NARROW)
                tried = below if below > least else min(above, most)
            if tried == most:
                break
            if is_long_at(tried):
                least = tried
            else:
                most = tried
        if least == start and not is_long_at(start):
            return 0.0
        return math.inf if most == stop and is_long_at(stop) else math.sqrt(least * most)

    penalties = [gnmt, *PENALTIES.values()]
    long = ratio(LONG, penalties)
    fitting = [penalty for penalty in penalties if is_near(long, penalty, LONG)]
    return Measured(ratio(MIDDLE, fitting or penalties), long)


def is_near(measured: float, penalty: Penalty, length: int) -> bool:
    """Return whether a measured ratio is that of a penalty, or both are too small to measure."""
    expected = ratio_of(penalty, length)
    if measured == 0:
        return expected < RANGES[length][1]
    return abs(measured / expected - 1) < 0.6 * (NARROW - 1)


def describe_penalty(measured: Measured) -> str | None:
    """Return the predicate of a sentence about a measured penalty; empty for the paper's.

    Returns:
        None if it is not a penalty: the longer translation is never or always found
    """
    for says, penalty in (("", gnmt), *PENALTIES.items()):
        if is_near(measured.middle, penalty, MIDDLE) and is_near(measured.long, penalty, LONG):
            return says
    if not 0 < measured.middle < math.inf or not 0 < measured.long < math.inf:
        return None
    for says, penalty in fitted_penalties(measured):
        if abs(measured.middle / ratio_of(penalty, MIDDLE) - 1) < NARROW - 1:
            return says
    each = (measured.long - 1) / (LONG - SHORT)
    if abs(measured.middle - 1 - each * (MIDDLE - SHORT) / 3) < 0.01 * measured.middle:
        return f"adds {each:.2g} to log P for each token in place of the length penalty"
    return (
        f"divides log P of {LONG} tokens by {measured.long:.3g} × what it divides that of {SHORT} "
        f"tokens by, not by {ratio_of(gnmt, LONG):.3g} ×"
    )


def fitted_penalties(measured: Measured) -> Iterator[tuple[str, Penalty]]:
    """Yield penalties with the exponent that fits the ratio of 12 tokens, and their predicates."""
    logarithm = math.log(measured.long)
    alpha = logarithm / math.log((5 + LONG) / (5 + SHORT))
    yield f"has α = {alpha:.2g} in the length penalty", lambda length: (5 + length) ** alpha
    power = logarithm / math.log(LONG / SHORT)
    yield f"divides log P by length^{power:.2g}", lambda length: length**power
