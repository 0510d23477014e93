"""Checks of ``translate``: length penalty, greatest length, and whether it searches (6.1).

A new model is taught three sources for a second or two. The first two have a short and a long
translation, so likely that only the paper's length penalty chooses the long one of the first and
the short one of the second. The third has one that never ends.

Shape letters: B batch, S source, T target.
"""

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from .card import DIFFERS, Result, check_of, not_checked
from .masks import EARLIER, hidden_words
from .output import factor_of_logits
from .subject import AdapterError, Subject, shown

SHORT_SHARES = (0.55, 0.635)
"""how likely the short translations of the first two sources are"""
LONG, EXTRA = 11, 50
"""words of the long translations; how much longer than a source a translation may be (6.1)"""
UPDATES, SECONDS = 400, 30.0
"""how long to teach a model, at most; seconds of the processor, which others do not shorten"""
PENALTIES: dict[str, Callable[[float], float]] = {
    "no penalty": lambda length: 1.0,
    "log P / length": lambda length: length,
    "log P / length^0.6": lambda length: length**0.6,
    "GNMT's with α = 1": lambda length: (5 + length) / 6,
}


def gnmt(length: float) -> float:
    """((5 + length) / 6)^0.6, by which log P is divided."""
    return ((5 + length) / 6) ** 0.6


class Taught:
    """A subject whose model has learned the three sources, and what it translates them to."""

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.config = c
        self.subject = subject
        self.model = subject.build(dropout=0.0)
        self.source = subject.words(5, 4, seed=8)  # the last two were never taught
        self.source[:, -1] = c.end
        a, b, endless = (int(n) for n in subject.words(1, 3, seed=9)[0])
        self.short = [a, c.end]
        self.long = [b] * LONG + [c.end]
        self.limit = self.source.size(1) + EXTRA
        self.endless = [endless] * (self.limit + 10)
        self.failed = "" if self.limit + 10 < c.max_length else "CONFIG.max_length is too small"
        if not self.failed:
            self.teach()
        if not self.failed:
            self.translations = self.translate()

    def teach(self) -> None:
        """Train until each translation is as likely as it should be."""
        first, second = SHORT_SHARES
        shares = [first, 1 - first, second, 1 - second, 1.0]
        sources = self.source[[0, 0, 1, 1, 2]]
        rows = [self.short, self.long, self.short, self.long, self.endless]
        expected = torch.tensor(shares[:4]).log()
        rate = min(3e-3, 0.1 / self.config.d_model)
        adam = torch.optim.Adam(self.model.parameters(), lr=rate, betas=(0.9, 0.98))
        until = time.thread_time() + SECONDS
        self.model.train()
        for update in range(UPDATES):
            log_p = self.log_probability(sources, rows)
            if update % 20 == 0:
                away = (log_p[:4] - expected).abs().max()
                if away < 0.03 and log_p[4] > -0.3 or time.thread_time() > until:
                    break
            adam.zero_grad()
            loss = -(log_p * torch.tensor(shares)).sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            adam.step()
        self.model.eval()
        with torch.no_grad():
            log_p = self.log_probability(sources, rows).tolist()
        self.scores = [log_p[0:2], log_p[2:4]]  # log P of short and long
        if self.choices(gnmt) != ["long", "short"] or log_p[4] < -2:
            self.failed = (
                f"the model did not learn three sentences in {UPDATES} updates or {SECONDS:.0f} s, "
                "with Adam at a rate of at most 0.003: it is too large, or its loss does not fall"
            )
            factor = factor_of_logits(self.subject)
            if factor and abs(factor - 1) > 0.05:
                self.failed += f"; its logits are multiplied by {factor:.3g}, see 3.4"

    def choices(self, penalty: Callable[[float], float]) -> list[str]:
        """Which translations of the first two sources a penalty chooses."""
        of_short = penalty(len(self.short))
        of_long = penalty(len(self.long))
        names = []
        for short, long in self.scores:
            names.append("short" if short / of_short > long / of_long else "long")
        return names

    def log_probability(self, source: Tensor, rows: list[list[int]]) -> Tensor:
        """log P of each row, as a translation of its source: [B]."""
        longest = max(map(len, rows))
        pads = [row + [self.config.pad] * (longest - len(row)) for row in rows]
        target = torch.tensor(pads)
        shifted = torch.cat([target.new_full((len(rows), 1), self.config.start), target[:, :-1]], 1)
        log_probs = self.subject.logits(source, shifted, self.model).log_softmax(-1)
        of_words = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return of_words.masked_fill(target.eq(self.config.pad), 0.0).sum(-1)

    def translate(self) -> list[list[int]]:
        """What the file's function gives: without ``start``, up to ``end``, without padding."""
        c = self.config
        translations = self.subject.call("translate", self.model, self.source)
        rows = translations.tolist() if isinstance(translations, Tensor) else translations
        if not isinstance(rows, list) or len(rows) != len(self.source):
            raise AdapterError(
                f"translate returned {shown(translations)}: expected a list of "
                f"{len(self.source)} lists of ids for {shown(self.source)}",
                "translate",
            )
        clean = []
        for row in rows:
            ids = [int(n) for n in row]
            ids = ids[1:] if ids[:1] == [c.start] else ids
            ids = ids[: ids.index(c.end) + 1] if c.end in ids else ids
            clean.append([n for n in ids if n != c.pad])
        if not any(c.end in row for row in clean):  # a function that leaves it out
            clean = [row if len(row) >= self.limit - 2 else [*row, c.end] for row in clean]
        return clean

    @torch.no_grad()
    def greedy(self) -> list[list[int]]:
        """The likeliest next word, again and again."""
        c = self.config
        target = torch.full((len(self.source), 1), c.start)
        for _ in range(self.limit):
            logits = self.subject.logits(self.source, target, self.model)[:, -1]
            logits[:, c.pad] = float("-inf")
            target = torch.cat([target, logits.argmax(-1, keepdim=True)], dim=1)
            if target[:, 1:].eq(c.end).any(1).all():
                break
        rows = target[:, 1:].tolist()
        return [row[: row.index(c.end) + 1] if c.end in row else row for row in rows]

    @torch.no_grad()
    def behind(self, greedy: list[list[int]]) -> list[float]:
        """By how much each translation's score is below that of the greedy one.

        By the penalty that is kindest to it, and with log P in one pass over each whole: a search
        may have another penalty than the paper's, which is another check's subject.
        """
        translated = self.log_probability(self.source, self.translations).tolist()
        by_greedy = self.log_probability(self.source, greedy).tolist()
        behind = []
        for n, translation in enumerate(self.translations):
            gaps = []
            for penalty in (gnmt, *PENALTIES.values()):
                score = translated[n] / penalty(len(translation))
                gaps.append(by_greedy[n] / penalty(len(greedy[n])) - score)
            behind.append(min(gaps))
        return behind


@lru_cache(maxsize=1)
def taught(subject: Subject) -> Taught:
    """The subject's, which is taught once."""
    return Taught(subject)


@check_of("6.1", "beam search divides log P by ((5 + length) / 6)^0.6", "translate")
def length_penalty(subject: Subject) -> Result:
    """It chooses the long translation of one source, and the short one of another."""
    model = taught(subject)
    if model.failed:
        return not_checked(model.failed)
    names = {tuple(model.short): "short", tuple(model.long): "long"}
    seen = [names.get(tuple(row), "another") for row in model.translations[:2]]
    if seen == ["long", "short"]:
        return Result()
    if "another" in seen:
        return not_checked("translate gives neither of the two translations that were taught")
    penalties = [n for n, penalty in PENALTIES.items() if model.choices(penalty) == seen]
    penalties.append("an end before it has seen the better one")
    return Result(
        DIFFERS,
        "the long translation of one source, the short one of another",
        " and ".join(f"the {name} one" for name in seen),
        f"So would a search with {' or '.join(penalties)}.",
    )


@check_of("6.1", "a translation may be 50 longer than its source", "translate")
def length_limit(subject: Subject) -> Result:
    """Of a translation that never ends, it gives that many."""
    model = taught(subject)
    if model.failed:
        return not_checked(model.failed)
    seen = model.translations[2]
    if abs(len(seen) - model.limit) <= 2:
        return Result()
    if len(seen) < model.limit and subject.config.end in seen:
        return not_checked(f"translate ends after {len(seen)} words what was taught without an end")
    return Result(
        DIFFERS,
        f"about {model.limit} words where the source has {model.source.size(1)}",
        f"{len(seen)}",
        "Translations are cut where the paper's are not, or much time goes into bad ones.",
    )


@check_of("6.1", "a translation is never worse than the greedy one", "translate")
def not_worse_than_greedy(subject: Subject) -> Result:
    """By any score; a greedy one without an end is no translation."""
    model = taught(subject)
    if model.failed:
        return not_checked(model.failed)
    rows = model.greedy()
    behind = model.behind(rows)
    ended = [n for n, row in enumerate(rows) if subject.config.end in row]
    worse = [n for n in ended if behind[n] > 0.01]
    if not worse:
        return Result()
    if hidden_words(subject).any():  # then a word has other numbers once others follow it
        return not_checked(f"see '{EARLIER}'")
    return Result(
        DIFFERS,
        "at least the score of the likeliest word each time",
        f"{len(worse)} of {len(ended)} with less, by {max(behind[n] for n in worse):.2g} nats",
        "The search loses the best hypothesis, or decoding is not the function that was trained.",
    )
