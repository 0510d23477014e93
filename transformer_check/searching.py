"""Checks of ``translate``: its search, length penalty and greatest length (6.1).

A new model is taught six sources for a second. Two have a short and a long translation, so likely
that only the paper's length penalty chooses the long one of the first and the short one of the
second; one has a translation without end; one begins with a word that is likely and leads nowhere,
which greedy decoding takes; one is padded. Then every usual search, right and wrong, is run with
the model's own forward, and the one that gives every translation is named.

Shape letters: B batch, S source, T target.
"""

from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .decoding import Decoder, wrong_decoders
from .findings import Finding, differs, error, not_run, passed, waits_for
from .masks import hidden_words
from .output import factor_of_logits
from .registry import check_of
from .searches import RIGHT, Search, equivalents, gnmt, run_search, wrong_searches
from .subject import AdapterError, Subject, describe
from .trace import trace_model

SHORT_SHARES = (0.55, 0.635)
"""how likely the short translations of the first two sources are"""
LIKELY, LEADS = 0.6, 5
"""how likely the first word that leads nowhere is, and after how many words it may go on"""
LONG, EXTRA = 11, 50
"""words of the long translations; how much longer than a source a translation may be (6.1)"""
UPDATES = 400
"""how many updates a model is taught at most; large ones a quarter"""
LARGE = 5_000_000
"""parameters of a large model"""
ENDLESS = 2
"""the source whose translation has no end"""


class TinyModel:
    """A subject whose model has learned the sources, and what it translates them to."""

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.config = c
        self.subject = subject
        self.model = subject.build(dropout=0.0)
        self.source = subject.words(8, 4, seed=8)  # [B, S]; the last three are never taught
        self.source[:, -1] = c.end
        for padded in (4, 5):
            self.source[padded, -2:] = torch.tensor([c.end, c.pad])
        a, b, endless, x, y, d, e, *ends = subject.words(1, 7 + LEADS, seed=9)[0].tolist()
        self.limit = self.source.size(1) + EXTRA
        first, second = SHORT_SHARES
        self.short = [a, c.end]
        self.long = [b] * LONG + [c.end]
        self.endless = [endless] * (self.limit + 10)
        self.pairs = [(0, self.short, first), (0, self.long, 1 - first)]
        self.pairs += [(1, self.short, second), (1, self.long, 1 - second)]
        self.pairs += [(3, [x, end, c.end], LIKELY / LEADS) for end in ends]
        self.pairs += [(3, [y, d, c.end], 1 - LIKELY), (4, [e, d, x, c.end], 1.0)]
        self.failed = "" if self.limit + 10 < c.max_length else "CONFIG.max_length is too small"
        if not self.failed:
            self.teach()
        if not self.failed:
            self.translations = self.translate()

    def log_probabilities(self) -> tuple[Tensor, Tensor]:
        """Return log P of the pairs, and of the endless translation."""
        numbers = [number for number, _, _ in self.pairs]
        rows = [row for _, row, _ in self.pairs]
        of_pairs = self.log_probability(self.source[numbers], rows)
        endless = self.log_probability(self.source[ENDLESS : ENDLESS + 1], [self.endless])
        return of_pairs, endless[0]

    def teach(self) -> None:
        """Train until each translation is as likely as it should be."""
        shares = torch.tensor([share for _, _, share in self.pairs])
        rate = min(3e-3, 0.1 / self.config.d_model)
        adam = torch.optim.Adam(self.model.parameters(), lr=rate, betas=(0.9, 0.98))
        size = sum(parameter.numel() for parameter in self.model.parameters())
        updates = UPDATES if size < LARGE else UPDATES // 4
        self.model.train()
        for update in range(updates):
            of_pairs, endless = self.log_probabilities()
            if update % 20 == 0:
                away = (of_pairs - shares.log()).detach().abs()
                if away[:4].max() < 0.03 and away[4:].max() < 0.2 and endless > -0.3:
                    break
            adam.zero_grad()
            loss = -(of_pairs * shares).sum() - endless
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            adam.step()
        self.model.eval()
        with torch.no_grad():
            of_pairs, endless = self.log_probabilities()
        self.scores = [of_pairs[0:2].tolist(), of_pairs[2:4].tolist()]  # log P of short and long
        if self.choices() != ["long", "short"] or endless < -2:
            self.failed = (
                f"the model did not learn six sentences in {updates} updates with Adam at a rate "
                "of at most 0.003: it is too large, or its loss does not fall"
            )
            factor = factor_of_logits(self.subject)
            if factor and abs(factor - 1) > 0.05:
                self.failed += f"; its logits are multiplied by {factor:.3g}, see output-scale"

    def choices(self) -> list[str]:
        """Return which translations of the first two sources the paper's penalty chooses."""
        of_short = gnmt(len(self.short))
        of_long = gnmt(len(self.long))
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
                f"translate returned {describe(translations)}: expected a list of "
                f"{len(self.source)} lists of ids for {describe(self.source)}",
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

    def limits(self) -> list[int]:
        """Return the greatest length of each translation."""
        return [int((row != self.config.pad).sum()) + EXTRA for row in self.source]

    def simulate(self, search: Search, decoder: Decoder) -> list[list[int]]:
        """Return the translations that a search gives; a limit is that of translate()."""
        c = self.config
        rows = []
        for n, limit in enumerate(self.limits()):
            row = run_search(search, decoder.tables(n), self.cut(limit), c.end, c.pad)
            rows.append(row[: row.index(c.end) + 1] if c.end in row else row)
        return rows

    def count_equal(self, search: Search, decoder: Decoder, misses: int = 0) -> int:
        """Count the translations that a search gives, too; 0 if more than some are others."""
        equal = 0
        for tried, n in enumerate((0, 3, 5, 6, 7, 1, 4, ENDLESS), start=1):
            equal += self.gives(search, decoder, n)
            if tried - equal > misses:
                return 0
        return equal

    def gives(self, search: Search, decoder: Decoder, n: int) -> bool:
        """Return whether a search gives a translation, with one of the limits that it may have."""
        c = self.config
        limits = {self.limits()[n], self.limit}  # with or without padding
        for limit in limits | {self.cut(limit) for limit in limits}:
            row = run_search(search, decoder.tables(n), limit, c.end, c.pad)
            row = row[: row.index(c.end) + 1] if c.end in row else row
            if is_same(row, self.translations[n], c.end):
                return True
        return False

    def is_random(self) -> bool:
        """Return whether translate() gives other translations when it is called again."""
        return self.translate() != self.translations

    def cut(self, limit: int) -> int:
        """Return the length limit of translate(), if it is lower than a limit."""
        longest = len(self.translations[ENDLESS])
        return limit if longest > self.limit - 3 else min(limit, max(longest, 1))

    def score(self, rows: list[list[int]]) -> list[float]:
        """Return log P of translations, divided by the paper's length penalty."""
        with torch.no_grad():
            log_p = self.log_probability(self.source, [row or [self.config.end] for row in rows])
        return [
            score / gnmt(max(len(row), 1)) for score, row in zip(log_p.tolist(), rows, strict=True)
        ]

    def mistake_in_forward(self) -> str:
        """Look at random numbers and weights while translate() runs, with a padded source.

        Returns:
            the end of a sentence, or nothing
        """
        model = self.subject.build(dropout=0.5)
        size = self.source.size(1)
        layouts = self.subject.layouts
        with torch.random.fork_rng(devices=[]), trace_model(layouts=layouts) as trace:
            self.subject.call("translate", model, self.source[4:5])
        if trace.draws:
            return "has dropout on: call model.eval() in translate()"
        for event in trace.events:
            queries, keys = event.result.shape[-2:]
            if not event.is_softmax or event.over != -1:
                continue
            if queries == keys and keys > size and float(event.result.triu(1).max()) > 1e-6:
                return "has no causal mask in decoding"
            if keys == size and queries > size and float(event.result[..., -1].max()) > 1e-6:
                return "does not mask the source's padding in decoding"
        return ""


def is_same(one: list[int], other: list[int], end: int) -> bool:
    """Return whether translations are equal; those without an end may differ in length."""
    if end not in one and end not in other:
        shortest = min(len(one), len(other))
        return abs(len(one) - len(other)) <= 2 and one[:shortest] == other[:shortest]
    return one == other


@lru_cache(maxsize=1)
def train_tiny_model(subject: Subject) -> TinyModel:
    """Train the subject's model on a few sentences, once for all checks."""
    return TinyModel(subject)


class Verdict(NamedTuple):
    """Which check fails, and its sentence; both are empty for a right search."""

    check_id: str = ""
    says: str = ""


@lru_cache(maxsize=1)
def verdict_of(subject: Subject) -> Verdict:
    """Find the search that gives every translation."""
    model = train_tiny_model(subject)
    own = Decoder(subject, model.model, model.source, subject.config.start)
    mistake = model.mistake_in_forward()
    if mistake:
        return Verdict("decoding", mistake)
    for search in equivalents():
        if model.count_equal(search, own):
            return Verdict()
    for check_id, says, search in wrong_searches():
        if model.count_equal(search, own):
            return Verdict(check_id, says)
    if model.is_random():
        return Verdict("beam-search", "draws tokens at random: its translations change")
    for says, decoder in wrong_decoders(subject, model.model, model.source):
        for search in (RIGHT, Search(beam=1)):
            with suppress(AdapterError):  # a model may refuse such input, so it is not the mistake
                if model.count_equal(search, decoder):
                    return Verdict("decoding", says)
    right = model.score(model.simulate(RIGHT, own))
    seen = model.score(model.translations)
    ended = [n for n, row in enumerate(model.translations) if subject.config.end in row]
    lost = [right[n] - seen[n] for n in ended if n != ENDLESS]
    if len(ended) >= len(seen) - 1 and max(lost, default=0.0) <= 0.01:
        return Verdict()
    closest = closest_search(model, own)
    if closest.check_id:
        return closest
    return Verdict("beam-search", f"loses up to {max(lost, default=0.0):.2g} of its score")


def closest_search(model: TinyModel, decoder: Decoder) -> Verdict:
    """Find the wrong search that gives most translations, if it gives clearly more than RIGHT."""
    total = len(model.translations)
    most = max(model.count_equal(RIGHT, decoder, misses=total) + 1, total // 2)
    closest = Verdict()
    for check_id, says, search in wrong_searches():
        equal = model.count_equal(search, decoder, misses=total - most - 1)
        if equal > most:
            most = equal
            closest = Verdict(check_id, f"probably {says}")
    return closest


@check_of(
    "length-penalty",
    "6.1",
    passes="Beam search divides log P by ((5 + length) / 6)^0.6.",
    fails="Beam search does not divide log P by ((5 + length) / 6)^0.6.",
    needs=("translate",),
)
def length_penalty(subject: Subject) -> Finding:
    """The paper's penalty chooses the long translation of one source, the short of another."""
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id != "length-penalty":
        return waits_for(verdict.check_id) if verdict.check_id else passed()
    names = {tuple(model.short): "short", tuple(model.long): "long"}
    seen = [names.get(tuple(row), "another") for row in model.translations[:2]]
    return differs(
        " and ".join(f"the {name} translation" for name in seen),
        "the long translation of one source, the short one of another",
        says=f"Beam search {verdict.says}.",
        fix="Divide log P by ((5 + length) / 6) ** 0.6, the end included in length.",
    )


@check_of(
    "length-limit",
    "6.1",
    passes="A translation may be 50 tokens longer than its source.",
    fails="The length limit of a translation is not its source's length plus 50.",
    needs=("translate",),
)
def length_limit(subject: Subject) -> Finding:
    """Count the tokens of a translation that never ends."""
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id:
        return waits_for(verdict.check_id)
    seen = len(model.translations[ENDLESS])
    if abs(seen - model.limit) <= 2:
        return passed()
    size = model.source.size(1)
    usual = {size: "as long as its source", 2 * size: "2 × its source's length"}
    usual |= {3 * size: "3 × its source's length", size + 10: "10 tokens longer than its source"}
    usual |= {n: f"{n} tokens" for n in (20, 30, 50, 60, 64, 80, 100, 128)}
    near = [name for n, name in usual.items() if 0 <= n - seen <= 1]
    return differs(
        f"{seen} tokens for a source of {size}",
        f"about {model.limit}",
        says=f"A translation is at most {near[0]}." if near else "",
        fix="Stop at the source's length plus 50.",
    )


@check_of(
    "beam-search",
    "6.1",
    passes="The search finds what beam search with 4 hypotheses finds.",
    fails="The search does not find what beam search with 4 hypotheses finds.",
    needs=("translate",),
)
def beam_search(subject: Subject) -> Finding:
    """Name the search that gives every translation."""
    return of_verdict(
        subject,
        "beam-search",
        "Keep 4 hypotheses, add up log-probabilities, and return the best that has ended.",
    )


@check_of(
    "decoding",
    "6.1",
    passes="Decoding computes the same function as logits().",
    fails="Decoding computes another function than logits().",
    needs=("translate",),
)
def decoding(subject: Subject) -> Finding:
    """Name the forward pass that gives every translation."""
    return of_verdict(
        subject,
        "decoding",
        "Compare each step with logits() of the same tokens: positions, masks, cached keys.",
    )


def of_verdict(subject: Subject, check_id: str, fix: str) -> Finding:
    """Return the finding of one check, if it is the one that fails."""
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id != check_id:
        return waits_for(verdict.check_id) if verdict.check_id else passed()
    if hidden_words(subject).any():  # then a token has other logits once others follow it
        return waits_for("target-visible")
    own = Decoder(subject, model.model, model.source, subject.config.start)
    right = model.simulate(RIGHT, own)
    wrong = sum(row != seen for row, seen in zip(right, model.translations, strict=True))
    find = error if check_id == "decoding" else differs
    return find(
        f"{wrong} of {len(right)} translations differ from beam search with logits()",
        "the same translations",
        says=f"The search {verdict.says}.",
        fix=fix,
    )
