"""Checks of ``translate``: its search, length penalty and greatest length (6.1).

A new model is trained on a few sentences. Then every usual search, correct and wrong, is run with
the model's own forward pass. The check names the search that gives every translation.
"""

import math
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from .decoding import Decoder, wrong_decoders
from .findings import Finding, differs, error, not_run, passed, waits_for
from .masks import hidden_words
from .registry import check_of
from .search_logits import LogitsOfSearch, wrong_start
from .searches import BEAM_ENDS, RIGHT, Search, equivalents, wrong_searches
from .subject import AdapterError, Subject
from .tiny_model import ENDLESS, TinyModel, train_tiny_model


class Verdict(NamedTuple):
    """Which check fails, and its sentence; both are empty for a right search."""

    check_id: str = ""
    says: str = ""


@lru_cache(maxsize=1)
def verdict_of(subject: Subject) -> Verdict:
    """Return the verdict on the search that gives every translation."""
    model = train_tiny_model(subject)
    own = model.own
    mistake = model.mistake_in_forward()
    if mistake:
        return Verdict("decoding", mistake)
    of_search = model.logits_of_search(own, 0)
    model.logits_of_search(own, ENDLESS)
    if of_search.steps and of_search.dimensions != {-1}:
        return Verdict("beam-search", "takes the softmax over another dimension than the tokens")
    if model.is_other_alone() and model.has_state():
        return Verdict("beam-search", STATE)
    for search in () if model.ends_early() else equivalents():
        if model.count_equal(search, own):
            return mistake_without_effect(model, own, of_search, search)
    if model.count_equal(RIGHT, own, experiments=False):
        return mistake_in_experiments(model, own, of_search)
    if model.leaves_out_first(model.simulate(RIGHT, own)):
        return Verdict("beam-search", "leaves out the first token of each translation")
    finders = [find_search, find_by_experiments, find_decoder]
    if model.differs_from_forward(own, of_search.first_steps) or model.first_other_token(own):
        finders = [find_decoder, find_search]
    for find in finders:
        verdict = find(model, own, of_search)
        if verdict.check_id:
            return verdict
    right = model.score(model.simulate(RIGHT, own))
    seen = model.score(model.translations)
    ended = [n for n, row in enumerate(model.translations) if subject.config.end in row]
    lost = [right[n] - seen[n] for n in ended if n != ENDLESS]
    if len(ended) >= len(seen) - 1 and max(lost, default=0.0) <= 0.01:
        return Verdict()
    verdict = decoder_of_steps(model, own, of_search)
    if verdict.check_id:
        return verdict
    closest = closest_search(model, own, of_search)
    if closest.check_id:
        return closest
    return Verdict("beam-search", f"loses up to {max(lost, default=0.0):.2g} of its score")


SOME_LOGITS = "computes other logits"
OTHER = (
    f"{SOME_LOGITS} than logits() from token {{}} on, for example those of another hypothesis or "
    "of wrong keys in the cache"
)
IN_BATCH = (
    f"{SOME_LOGITS} for a padded sentence in a batch: its source mask may be another sentence's"
)
STATE = "returns other translations after another call: it keeps hypotheses of earlier calls"
DEPENDS = (
    "translates a sentence differently alone and in a batch: it depends on other sentences or on "
    "earlier calls"
)


def mistake_without_effect(
    model: TinyModel, own: Decoder, seen: LogitsOfSearch, right: Search
) -> Verdict:
    """Find a mistake that leaves all translations as they are, except for their length.

    Args:
        model: the model
        own: its forward pass
        seen: the steps of translate()
        right: the right search that gives every translation
    """
    if model.is_other_alone() and not model.differs_in_batch(own):
        return Verdict("beam-search", DEPENDS)
    verdict = decoder_of_steps(model, own, seen)
    if verdict.check_id:
        return verdict
    searches = list(wrong_searches(seen.temperature, model.source.size(1)))
    if len(model.translations[ENDLESS]) < model.limit - 2 and not model.has_low_limit():
        for check_id, says, search in searches:
            if model.count_equal(search, own, cut=False):
                return Verdict(check_id, says)
    share = model.share_of_hypotheses(right, own)
    if 0 < share < 0.95:
        for check_id, says, search in searches:
            if search.stop in BEAM_ENDS or not seen.agrees(search):
                continue
            if not model.count_equal(search, own):
                continue
            if model.share_of_hypotheses(search, own) > max(0.9, share + 0.05):
                return Verdict(check_id, says)
    return Verdict()


def mistake_in_experiments(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Find a mistake that shows in experiments, though the right search finds every translation."""
    if model.is_random() and model.has_state():
        return Verdict("beam-search", STATE)
    verdict = find_search(model, own, seen)
    if verdict.check_id:
        return verdict
    verdict = mistake_without_effect(model, own, seen, RIGHT)
    return verdict if verdict.check_id else find_by_experiments(model, own, seen)


def find_by_experiments(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Find a mistake without a search that has it, by the experiments in which RIGHT fails."""
    del own, seen
    failed = list(model.failed_experiments(RIGHT))
    mistakes = [experiment.says for experiment in failed]
    if mistakes and all(mistakes):
        translations = [row for experiment, row in model.trials.results if experiment is failed[0]]
        is_expected = failed[0].mistake in (None, *translations)
        return Verdict("beam-search", mistakes[0]) if is_expected else Verdict()
    is_choice = all(row in (model.short, model.long) for row in model.translations[:2])
    if not mistakes or any(mistakes) or not is_choice:
        return Verdict()
    penalty = model.trials.describe_penalty()
    return Verdict("length-penalty", penalty) if penalty else Verdict()


def find_search(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Find the wrong search that gives every translation, and adds up the same numbers.

    Of several, it is the one that has nearly all hypotheses in common with translate(), and of
    those the one with the fewest mistakes. A smaller share may be due to another time to stop.
    """
    best = (0.0, -math.inf)
    verdict = Verdict()
    for check_id, says, search in wrong_searches(seen.temperature, model.source.size(1)):
        if not (seen.agrees(search) and model.count_equal(search, own)):
            continue
        share = model.share_of_hypotheses(search, own)
        share = share if share > 0.85 else 0.0
        mistakes = sum(getattr(search, each) != getattr(RIGHT, each) for each in vars(RIGHT))
        if (share, -mistakes) > best:
            best = (share, -mistakes)
            verdict = Verdict(check_id, says)
    if verdict.check_id == "length-penalty":
        return Verdict("length-penalty", model.trials.describe_penalty() or verdict.says)
    if verdict.check_id:
        return verdict
    if model.is_random():
        return Verdict("beam-search", "draws tokens at random: its translations change")
    return Verdict()


def find_decoder(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Find the wrong forward pass that gives the logits of each step, or every translation."""
    verdict = decoder_of_steps(model, own, seen)
    if verdict.check_id and SOME_LOGITS not in verdict.says:
        return verdict
    is_right = bool(seen.steps) and not verdict.check_id
    for says, decoder in wrong_decoders(own.subject, model.model, model.source):
        if is_right and decoder.source is own.source:
            continue
        for search in (RIGHT, Search(beam=1)):
            with suppress(AdapterError):  # a model may refuse such input, so it is not the mistake
                if model.count_equal(search, decoder):
                    return Verdict("decoding", says)
    return Verdict()


def decoder_of_steps(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Find the wrong forward pass that gives the logits of each step, if the right one does not."""

    def differs(decoder: Decoder) -> bool:
        return (
            model.differs_from_forward(decoder, seen.first_steps)
            or model.differs_in_batch(decoder)
            or model.first_other_token(decoder) is not None
        )

    if not differs(own):
        return Verdict()
    other = model.first_other_token(own)
    window = other - 1 if other and other > 2 else None
    for says, decoder in wrong_decoders(own.subject, model.model, model.source, window):
        with suppress(AdapterError):
            if not differs(decoder):
                return Verdict("decoding", says)
    for first in seen.first_steps[:1]:
        start = wrong_start(own.subject, model.model, model.source[:1], first)
        if start:
            return Verdict("decoding", start)
    if other is None and model.differs_in_batch(own):
        return Verdict("decoding", IN_BATCH)
    return Verdict("decoding", OTHER.format(other or 1))


def closest_search(model: TinyModel, own: Decoder, seen: LogitsOfSearch) -> Verdict:
    """Return the wrong search that is most like translate(), if clearly more than RIGHT.

    Its equal translations, its equal hypotheses, and the numbers that it adds up are compared.
    """
    total = len(model.translations)
    least = max(model.count_equal(RIGHT, own, misses=total) + 2, total // 2 + 1)
    most = 0.0
    closest = Verdict()
    for check_id, says, search in wrong_searches(seen.temperature, model.source.size(1)):
        equal = model.count_equal(search, own, misses=total - least)
        if not equal:
            continue
        likeness = (
            equal / total
            + model.share_of_hypotheses(search, own)
            - (0.0 if seen.agrees(search) else 0.5)
        )
        if likeness > most:
            most = likeness
            closest = Verdict(check_id, f"probably {says}")
    return closest


FIX_PENALTY = "Divide log P by ((5 + length) / 6) ** 0.6, the end included in length."


@check_of(
    "length-penalty",
    "6.1",
    passes="Beam search divides log P by ((5 + length) / 6)^0.6.",
    fails="Beam search does not divide log P by ((5 + length) / 6)^0.6.",
    needs=("translate",),
)
def length_penalty(subject: Subject) -> Finding:
    """Check that one source gets its long translation, and another source its short one.

    Only the paper's penalty chooses both.
    """
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id != "length-penalty":
        return waits_for(verdict.check_id) if verdict.check_id else passed()
    names = {tuple(model.short): "the short", tuple(model.long): "the long"}
    seen = [names.get(tuple(row), "another") for row in model.translations[:2]]
    if seen == ["long", "short"]:  # experiments show it
        return differs(
            "another choice between translations of 2 and of 5 tokens",
            "the one with the greater log P / ((5 + length) / 6)^0.6",
            says=f"Beam search {verdict.says}.",
            fix=FIX_PENALTY,
        )
    return differs(
        " and ".join(f"{name} translation" for name in seen),
        "the long translation of one source, the short one of another",
        says=f"Beam search {verdict.says}.",
        fix=FIX_PENALTY,
    )


@check_of(
    "length-limit",
    "6.1",
    passes="A translation may be 50 tokens longer than its source.",
    fails="The length limit of a translation is not its source's length plus 50.",
    needs=("translate",),
)
def length_limit(subject: Subject) -> Finding:
    """Compare the length of a translation that never ends with its source's plus 50."""
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id:
        return waits_for(verdict.check_id)
    seen = len(model.translations[ENDLESS])
    if subject.config.end in model.translations[ENDLESS]:  # a low limit lets an end win
        seen = max(seen, model.steps_of_endless())
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
    """Check that beam search with 4 hypotheses finds every translation."""
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
    """Check that decoding has the same forward pass as logits()."""
    return of_verdict(
        subject,
        "decoding",
        "Compare each step with logits() of the same tokens: positions, masks, cached keys.",
    )


def of_verdict(subject: Subject, check_id: str, fix: str) -> Finding:
    """Return the finding of a check, if it is the one that fails in the verdict."""
    model = train_tiny_model(subject)
    if model.failed:
        return not_run(model.failed)
    verdict = verdict_of(subject)
    if verdict.check_id != check_id:
        return waits_for(verdict.check_id) if verdict.check_id else passed()
    if hidden_words(subject).any():  # then later tokens change a token's logits
        return waits_for("target-visible")
    own = model.own
    right = model.simulate(RIGHT, own)
    wrong = sum(row != seen for row, seen in zip(right, model.translations, strict=True))
    is_error = check_id == "decoding" and SOME_LOGITS not in verdict.says
    find = error if is_error else differs
    return find(
        f"{wrong} of {len(right)} translations differ from beam search with logits()",
        "the same translations",
        says=f"The search {verdict.says}.",
        fix=fix,
    )
