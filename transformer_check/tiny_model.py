"""A model that is trained on a few sentences, so that its translations show its search (6.1).

It learns six sources in a second. Two have a short and a long translation, with probabilities for
which only the paper's length penalty chooses the long one of the first source and the short one of
the second. One has a translation without an end. One has a probable first token with improbable
continuations, which greedy decoding chooses. One is padded.

Shape letters: B batch, S source, T target.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from .decoding import Decoder, missing_mask
from .experiments import Experiment, Trials, endless
from .output import factor_of_logits
from .search_logits import LogitsOfSearch, is_among
from .searches import EARLY_STOPS, Row, Search, finds, gnmt, run_to_end, search_with_steps
from .subject import AdapterError, Subject, describe
from .trace import trace_model

SHORT_SHARES = (0.55, 0.635)
"""probabilities of the short translations of the first two sources"""
LIKELY, LEADS = 0.6, 5
"""probability of the misleading first token, and the number of its continuations"""
LONG, EXTRA = 11, 50
"""tokens of the long translations; how much longer than its source a translation may be (6.1)"""
UPDATES = 400
"""greatest number of updates; a quarter of it for large models"""
LARGE = 5_000_000
"""parameters of a large model"""
ENDLESS = 2
"""the source whose translation has no end"""
PADDED = 4
"""the number of a source that ends in padding"""
ALONE = 3
"""the number of a source whose best score is lower than that of the first one"""
TRACED = (0, ENDLESS, 3, 6, 7)
"""the sources whose searches are compared step by step"""


class TinyModel:
    """A subject whose model has learned the sources, and what it translates them to."""

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.config = c
        self.subject = subject
        self.model = subject.build(dropout=0.0)
        self.source = subject.words(8, 4, seed=8)  # [B, S]; the last three are not trained on
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
        self.has_ends = True
        """whether translate() returns the end token"""
        self.failed = "" if self.limit + 10 < c.max_length else "CONFIG.max_length is too small"
        if not self.failed:
            self.teach()
        if not self.failed:
            self.translations = self.translate()
        self.searches: dict[tuple[int, ...], LogitsOfSearch] = {}
        """sources → the logits of each step of translate()"""
        self.own = Decoder(subject, self.model, self.source, c.start)

    def log_probabilities(self) -> tuple[Tensor, Tensor]:
        """Return log P of each pair, and log P of the endless translation."""
        numbers = [number for number, _, _ in self.pairs]
        rows = [row for _, row, _ in self.pairs]
        of_pairs = self.log_probability(self.source[numbers], rows)
        endless = self.log_probability(self.source[ENDLESS : ENDLESS + 1], [self.endless])
        return of_pairs, endless[0]

    def teach(self) -> None:
        """Train the model until each translation has about its intended probability.

        ``failed`` says why the model has not learned them; else it is empty.
        """
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
        """Return the translations, short or long, that the paper's penalty chooses for each pair.

        The pairs are the translations of the first two sources.
        """
        of_short = gnmt(len(self.short))
        of_long = gnmt(len(self.long))
        names = []
        for short, long in self.scores:
            names.append("short" if short / of_short > long / of_long else "long")
        return names

    def log_probability(self, source: Tensor, rows: list[list[int]]) -> Tensor:
        """Return log P [B] of each row as the translation of its source."""
        longest = max(map(len, rows))
        pads = [row + [self.config.pad] * (longest - len(row)) for row in rows]
        target = torch.tensor(pads)
        shifted = torch.cat([target.new_full((len(rows), 1), self.config.start), target[:, :-1]], 1)
        log_probs = self.subject.logits(source, shifted, self.model).log_softmax(-1)
        of_words = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return of_words.masked_fill(target.eq(self.config.pad), 0.0).sum(-1)

    def translate(self, numbers: list[int] | None = None) -> list[list[int]]:
        """Return the result of translate() without ``start``, padding and what follows ``end``.

        Args:
            numbers: the sources; all without it

        Raises:
            AdapterError: it is not one list of ids for each source.
        """
        c = self.config
        source = self.source if numbers is None else self.source[numbers]
        translations = self.subject.call("translate", self.model, source)
        rows = translations.tolist() if isinstance(translations, Tensor) else translations
        if not isinstance(rows, list) or len(rows) != len(source):
            raise AdapterError(
                f"translate() returned {describe(translations)}: expected a list of "
                f"{len(source)} lists of ids for {describe(source)}",
                "translate",
            )
        clean = []
        for row in rows:
            ids = [int(n) for n in row]
            ids = ids[1:] if ids[:1] == [c.start] else ids
            ids = ids[: ids.index(c.end) + 1] if c.end in ids else ids
            clean.append([n for n in ids if n != c.pad])
        if numbers is None:
            self.has_ends = any(c.end in row for row in clean)
        if not self.has_ends:  # the function leaves the end out
            clean = [row if len(row) >= self.limit - 2 else [*row, c.end] for row in clean]
        return clean

    def limits(self) -> list[int]:
        """Return the greatest length of each translation: 50 tokens more than its source."""
        return [int((row != self.config.pad).sum()) + EXTRA for row in self.source]

    def simulate(self, search: Search, decoder: Decoder) -> list[list[int]]:
        """Return the translations by a search, with the length limit of translate()."""
        return [
            run_to_end(search, decoder.tables(n), self.cut(limit), self.config)
            for n, limit in enumerate(self.limits())
        ]

    def count_equal(
        self,
        search: Search,
        decoder: Decoder,
        misses: int = 0,
        cut: bool = True,
        experiments: bool = True,
    ) -> int:
        """Count the translations that a search finds; 0 if it misses more than ``misses``.

        Args:
            search: the search
            decoder: the forward pass
            misses: the greatest number of translations that it does not find
            cut: whether the length limit may be that of translate()
            experiments: whether it must find the translations in the experiments, too
        """
        experiments &= decoder is self.own and misses == 0
        if experiments and next(self.failed_experiments(search, cut), None) is not None:
            return 0
        equal = 0
        for tried, n in enumerate((0, 3, 5, 6, 7, 1, 4, ENDLESS), start=1):
            equal += self.gives(search, decoder, n, cut)
            if tried - equal > misses:
                return 0
        return equal

    def gives(self, search: Search, decoder: Decoder, n: int, cut: bool) -> bool:
        """Return whether a search finds a translation, with one of the possible length limits.

        A search that stops early may go on in a batch, until other sentences have ended.
        """
        limits = {self.limits()[n], self.limit}  # with or without padding
        if cut and not self.ends_early():
            steps = (self.steps_of_endless(), self.steps_seen())
            limits |= {min(limit, each) for limit in limits for each in steps}
        pads = int((self.source[n] == self.config.pad).sum())
        limits |= {limit - pads for limit in limits} | {limit - 2 * pads for limit in limits}
        translation = self.translations[n]
        if search.stop in EARLY_STOPS and decoder is self.own:
            if n not in TRACED:
                return True
            translation = self.logits_of_search(decoder, n).translations[0]
        tables = decoder.tables(n)
        return any(finds(search, tables, limit, self.config, translation) for limit in limits)

    @cached_property
    def trials(self) -> Trials:
        """The usual experiments with translate()."""
        seen = self.logits_of_search(self.own, 0)
        return Trials(self.subject, lambda: self.translate([0])[0], self.own.tables(0), seen)

    def failed_experiments(self, search: Search, cut: bool = True) -> Iterator[Experiment]:
        """Yield the experiments in which a search does not find the translation."""
        whole = self.limits()[0]
        limit = min(whole, self.steps_of_endless()) if cut else whole
        limits = {whole, limit} if self.ends_early() else {limit}
        return self.trials.failed(search, limits)

    def steps_of(self, search: Search, decoder: Decoder, n: int) -> list[list[Row]]:
        """Return the hypotheses that each step of a search for one source goes on with."""
        c = self.config
        limit = self.cut(self.limits()[n])
        return search_with_steps(search, decoder.tables(n), limit, c.end, c.pad)[1]

    def share_of_hypotheses(self, search: Search, decoder: Decoder) -> float:
        """Return which share of its hypotheses a search has in common with translate().

        The logits of their next tokens tell hypotheses apart.

        Returns:
            1 for the same hypotheses; 0 if the steps of translate() are not known
        """
        shares = []
        for n in TRACED:
            steps = self.logits_of_search(decoder, n).steps
            if not steps:
                return 0.0
            seen = torch.cat(steps)
            rows = {row for step in self.steps_of(search, decoder, n) for row in step}
            expected = torch.cat([decoder.tables(n)([row]) for row in rows])
            others = seen[~is_among(seen, expected)].round(decimals=3).unique(dim=0)
            shares.append(int(is_among(expected, seen).sum()) / (len(rows) + len(others)))
        return sum(shares) / len(shares)

    def is_random(self) -> bool:
        """Return whether a second call of translate() returns other translations."""
        return self.translate() != self.translations

    def is_other_alone(self) -> bool:
        """Return whether a sentence's translation alone is another than in the batch."""
        return self.translate([ALONE]) != [self.translations[ALONE]]

    def has_state(self) -> bool:
        """Return whether translations depend on earlier calls, and not on random numbers."""
        rows = []
        for seed in (1, 1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                rows.append(self.translate())
            self.translate([ALONE])
        first, again, other = rows
        return first != again or (first == other and first != self.translations)

    def leaves_out_first(self, right: list[list[int]]) -> bool:
        """Return whether all translations are right ones without their first token."""
        return self.translations == [row[1:] for row in right]

    def cut(self, limit: int) -> int:
        """Return a length limit, or that of translate() if it is known and lower."""
        row = self.translations[ENDLESS]
        is_known = self.config.end not in row and len(row) < self.limit - 2
        return min(limit, max(len(row), 1)) if is_known else limit

    def score(self, rows: list[list[int]]) -> list[float]:
        """Return log P of translations, divided by the paper's length penalty."""
        with torch.no_grad():
            log_p = self.log_probability(self.source, [row or [self.config.end] for row in rows])
        return [
            score / gnmt(max(len(row), 1)) for score, row in zip(log_p.tolist(), rows, strict=True)
        ]

    def logits_of_search(self, decoder: Decoder, *numbers: int) -> LogitsOfSearch:
        """Return the logits of the next tokens in each step of translate() for some sources.

        Args:
            decoder: the model's own
            numbers: the sources, which are one batch
        """
        if numbers not in self.searches:
            with LogitsOfSearch(decoder.tables(numbers[0])([()])[0]) as seen:
                seen.translations = self.translate(list(numbers))
            self.searches[numbers] = seen
        return self.searches[numbers]

    def steps_of_endless(self) -> int:
        """Return how long a translation without an end is, or how many steps are made for it."""
        steps = self.steps_seen()
        is_ended = self.config.end in self.translations[ENDLESS]
        return self.deepest or steps if is_ended and steps < self.limit - 2 else steps

    def steps_seen(self) -> int:
        """Return how many steps translate() made for the endless translation, ended or not."""
        row = self.translations[ENDLESS]
        seen = self.searches.get((ENDLESS,)) if self.config.end in row else None
        return max(seen.length if seen else 1, len(row))

    @cached_property
    def deepest(self) -> int:
        """The number of steps for a translation without an end, by an experiment; 0 if unknown."""
        return self.trials.run(endless(self.subject, self.endless[0], self.limit + 5))[1]

    def has_low_limit(self) -> bool:
        """Return whether an experiment shows that translations cannot be long."""
        return 0 < self.steps_of_endless() < self.limit - 2 and self.deepest > 0

    def ends_early(self) -> bool:
        """Return whether the search for the endless translation stops before any usual limit."""
        is_ended = self.config.end in self.translations[ENDLESS]
        return is_ended and self.steps_of_endless() < self.source.size(1)

    def differs_from_forward(self, decoder: Decoder, steps: list[Tensor]) -> bool:
        """Return whether the first two steps of a search have logits that a decoder never gives."""
        table = decoder.tables(0)
        after_start = table([()])  # a search may compute its hypotheses one by one
        of_tokens: list[Row] = [(token,) for token in range(self.config.vocabulary)]
        rows = torch.cat([after_start, table(of_tokens)])  # [1 + V, V]
        for step, known in zip(steps[:2], (after_start, rows), strict=False):
            if not is_among(step, known).all():
                return True
        return False

    def first_other_token(self, decoder: Decoder) -> int | None:
        """Return the place of the first token whose logits a decoder does not give, or None.

        A search has computed the logits of all tokens of its translations. Targets as long as the
        source are left out: a decoder may take the encoder's attention for its own.
        """
        for n in TRACED:
            seen = self.logits_of_search(decoder, n)
            rows = seen.rows
            row = tuple(seen.translations[0])
            lengths = range(len(row) if len(rows) else 0)
            for length in (n for n in lengths if n + 1 != self.source.size(1)):
                if not is_among(decoder.tables(n)([row[:length]]), rows).all():
                    return length + 1
        return None

    def differs_in_batch(self, decoder: Decoder) -> bool:
        """Return whether a padded sentence has other logits in a batch than a decoder gives."""
        rows = self.logits_of_search(decoder, 0, PADDED).rows
        return len(rows) > 0 and not bool(is_among(decoder.tables(PADDED)([()]), rows).all())

    def mistake_in_forward(self) -> str:
        """Return the mistake that random numbers and weights show while translate() runs.

        The source is padded.

        Returns:
            the predicate of a sentence, or nothing
        """
        model = self.subject.build(dropout=0.5)
        source = nn.functional.pad(self.source[PADDED : PADDED + 1], (0, 2), value=self.config.pad)
        layouts = self.subject.layouts
        with torch.random.fork_rng(devices=[]), trace_model(layouts=layouts) as trace:
            self.subject.call("translate", model, source)
        if trace.draws:
            return "has dropout on: call model.eval() in translate()"
        return missing_mask(trace.events, source.size(1), self.config.vocabulary)


@lru_cache(maxsize=1)
def train_tiny_model(subject: Subject) -> TinyModel:
    """Train the subject's model on a few sentences, once for all checks."""
    return TinyModel(subject)
