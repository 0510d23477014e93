"""Checks of padding, with sentences of several lengths in a batch (3.2.3, 5.1).

A sentence must have the same logits in a batch as alone. If it has not, the masks show why: with
every matrix zero all scores are equal, so a weight of zero is caused by a mask.

Shape letters: B batch, H heads, S source, T target.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from .findings import Finding, error, passed, waits_for
from .masks import hidden_words
from .modes import is_for_one_mode, is_random_in_training, leaks, training_mode
from .registry import check_of
from .subject import SAME, AdapterError, NotFiniteError, Subject, difference
from .trace import Event
from .uneven_batch import (
    CROSS,
    ENCODER,
    LEAST,
    NO_MASK,
    OTHER,
    FirstNaN,
    UnevenBatch,
    describe_mask,
    name_of,
    shown_keys,
    weak_mask,
)
from .wiring import HIDDEN


@lru_cache(maxsize=1)
def uneven_batch(subject: Subject) -> UnevenBatch:
    """Return the uneven batch of a subject, made once for all checks."""
    return UnevenBatch(subject)


class SourceMasks:
    """The names of the masks of each softmax over the source."""

    def __init__(self, batch: UnevenBatch) -> None:
        self.batch = batch
        self.names: dict[str, list[str]] = {ENCODER: [], CROSS: []}
        self.modules: dict[str, list[str]] = {ENCODER: [], CROSS: []}
        self.other: dict[str, Tensor] = {}
        """kind of attention → a mask [B, S] without a name"""
        self.empty: set[int] = set()
        """sentences with a mask that hides all tokens"""
        self.are_mixed = False
        self.hides_queries = False
        self.weak: dict[str, str] = {}
        """kind of attention → what its mask does in place of hiding padding"""
        for event in batch.events(with_matrices=False):
            for kind in (ENCODER, CROSS):
                if tuple(event.result.shape[-2:]) == batch.shape(kind):
                    self.add(kind, event)

    def add(self, kind: str, event: Event) -> None:
        """Add the name of a softmax's mask."""
        batch = self.batch
        weights = batch.rows(event.result)
        if weights is None or bool(weights.isnan().all()):
            return
        shown = shown_keys(weights, batch.lengths, kind == ENCODER)
        name = OTHER if shown is None else name_of(shown, batch.lengths)
        if shown is not None and name == OTHER:
            self.other.setdefault(kind, shown)
        self.empty |= sentences_without_keys(event, batch, kind == ENCODER)
        visible = weights.nan_to_num() > LEAST
        self.are_mixed |= not bool((visible == visible[:, :1]).all())
        if kind == ENCODER:
            self.hides_queries |= hides_queries(event, batch)
        self.names[kind].append(name)
        scores = batch.rows(event.operand)
        if name == NO_MASK and kind not in self.weak and scores is not None:
            number = len(self.names[kind]) - 1
            self.weak[kind] = self.effect(kind, scores, number)
        if name and event.module is not None:
            self.modules[kind] += batch.subject.names_of([event.module])

    def effect(self, kind: str, scores: Tensor, number: int) -> str:
        """Return what a mask does with scores [B, H, T, S] of padding; empty if nothing."""
        batch = self.batch
        own = [e for e in batch.events(True) if tuple(e.result.shape[-2:]) == batch.shape(kind)]
        with_matrices = batch.rows(own[number].operand) if number < len(own) else None
        if with_matrices is None:
            return ""
        padding = torch.arange(scores.size(-1)) >= torch.tensor(batch.lengths)[:, None]
        return weak_mask(scores, with_matrices, padding[:, None, None])

    def wrong(self) -> dict[str, str]:
        """Return the first mistake of each kind of attention that has one."""
        first = {}
        for kind, names in self.names.items():
            wrong = [name for name in names if name]
            if wrong:
                first[kind] = wrong[0]
        return first

    def layers(self, kind: str) -> str:
        """Return the layers of a kind whose masks are wrong, as text; empty if all are."""
        names = self.names[kind]
        layers = self.batch.subject.config.layers
        each = max(1, len(names) // layers)
        wrong = sorted({n // each + 1 for n, name in enumerate(names) if name})
        if len(wrong) >= layers:
            return ""
        return f" (layer {', '.join(map(str, wrong))})"


@lru_cache(maxsize=1)
def source_masks(subject: Subject) -> SourceMasks:
    """Return the source masks of a subject, named once for all checks."""
    return SourceMasks(uneven_batch(subject))


# ---- Other mistakes ------------------------------------------------------------------------------


def follows_longest(batch: UnevenBatch) -> bool:
    """Return whether padding after the longest sentence of a batch has no effect."""
    subject = batch.subject
    longer = subject.padded(batch.source, 2)
    try:
        before = subject.logits(batch.source, batch.target)
        after = subject.logits(longer, batch.target)
    except AdapterError:  # a mask that is as long as the longest sentence
        return False
    return difference(before, after) < SAME


def sentences_without_keys(event: Event, batch: UnevenBatch, is_encoder: bool) -> set[int]:
    """Return the sentences whose tokens' scores are all as low as those of hidden keys."""
    scores = batch.rows(event.operand)
    if scores is None:
        return set()
    found = set()
    for n, each in enumerate(scores):  # [H, T, S]
        queries = each[:, : batch.lengths[n]] if is_encoder else each
        if bool((queries < HIDDEN).all()):
            found.add(n)
    return found


def name_cut(batch: UnevenBatch) -> str:
    """Return the sentence for sources that are cut to the shortest one; empty if they are not."""
    keys = {event.result.size(-1) for event in batch.events(with_matrices=True)}
    if min(batch.lengths) in keys and max(batch.lengths) not in keys:
        return "The sources of a batch are cut to the length of the shortest one."
    return ""


def hides_queries(event: Event, batch: UnevenBatch) -> bool:
    """Return whether a mask hides every key, but only from queries that are padding."""
    scores = batch.rows(event.operand)
    if scores is None:
        return False
    is_hidden = (scores < HIDDEN).all(-1).all(1)  # [B, T]
    padding = torch.arange(scores.size(2)) >= torch.tensor(batch.lengths)[:, None]
    return bool((is_hidden == padding).all())


NO_NAN = "Hide keys, never all keys of a query: a mask [B, 1, 1, S] has no row of -inf alone."


# ---- The checks ----------------------------------------------------------------------------------


WITHOUT_KEYS = (
    *("residual-connections", "adapter-encoder", "adapter-decoder", "source-visible", "gradients"),
    *("attention-inputs", "head-size", "heads", "source-order", "permutation"),
)
"""checks that fail if a mask hides all tokens of a sentence"""
FIX = "Pass the source padding mask to {}: true or -inf where source == pad, for each sentence."


def describe_leak(masks: SourceMasks) -> tuple[str, str]:
    """Return the sentence and the fix for masks that show padding."""
    batch = masks.batch
    wrong = masks.wrong()
    places = " and ".join(f"{kind}{masks.layers(kind)}" for kind in wrong)
    fix = FIX.format(places or "encoder self-attention and to cross-attention")
    names = set(wrong.values())
    has_name = any(name not in (NO_MASK, OTHER) for name in wrong.values())
    if masks.empty and not masks.hides_queries and not has_name:
        longest = {n for n, length in enumerate(batch.lengths) if length == max(batch.lengths)}
        which = f"{len(masks.empty)} of {len(batch.lengths)} sentences"
        if masks.empty == longest:
            which = "a sentence without padding"
        return f"The source mask hides all tokens of {which}: attention weights are equal.", fix
    if not wrong:
        return (
            "Padding changes the result, though attention hides it: another operation mixes the "
            "tokens of a sentence."
            if any(masks.names.values())
            else name_cut(batch),
            "",
        )
    if masks.are_mixed and not masks.hides_queries:
        says = "The heads of a sentence have the masks of other sentences."
        return says, "Repeat the mask for heads with repeat_interleave(heads, dim=0), not repeat."
    if masks.hides_queries:
        says = f"The padding mask hides queries in place of keys in {places}."
        return says, "The mask of keys is [B, 1, 1, S]: padding is a column, not a row."
    first = next(iter(wrong))
    if wrong[first] == NO_MASK:
        if masks.weak.get(first):
            does = masks.weak[first].format("padding")
            return f"The source mask {does} in place of hiding it with -inf ({places}).", fix
        if follows_longest(batch):
            says = "One source mask serves the whole batch: it is as long as the longest sentence."
            return says, fix
        return f"Source padding is not masked in {places}.", fix
    if len(names) == 1 and wrong[first] != OTHER:
        return f"{wrong[first][:-1]} ({places}).", fix
    if first in masks.other:
        return f"{describe_mask(masks.other[first], batch.lengths)[:-1]} ({places}).", fix
    return f"The source mask shows padding in {places}.", fix


@check_of(
    "source-padding",
    "3.2.3",
    passes="Source padding is masked: a sentence has the same logits in any batch.",
    fails="Source padding changes the result.",
    explains=("training-mode",),
)
def source_padding(subject: Subject) -> Finding:
    """Compare each source in a batch of several lengths with the same source alone."""
    batch = uneven_batch(subject)
    change = batch.change_by_source()
    change_in_training = change
    if not is_random_in_training(subject):
        with training_mode(subject):
            change_in_training = batch.change_by_source()
    if not leaks(change) and not leaks(change_in_training):
        return mask_of_earlier_batch(batch)
    masks = source_masks(subject)
    says, fix = describe_leak(masks)
    mode = is_for_one_mode(leaks(change), leaks(change_in_training), "source padding mask")
    modules = [name for own in masks.modules.values() for name in own]
    explains = () if masks.names[ENCODER] and not masks.wrong() else ("source-visible",)
    found = (
        "a sentence has different logits alone and in a batch of longer sentences: they differ by "
        f"{max(change, change_in_training):.2g} standard deviations of the logits"
    )
    if masks.weak.get(next(iter(masks.wrong()), "")):  # its encoder_layer() has no mask
        explains = (*explains, "adapter-encoder", "adapter-decoder")
    if masks.empty:  # then the weights of a batch without padding are equal, too
        explains = (*explains, *WITHOUT_KEYS)
    if math.isinf(change):  # then functions that give NaN fail for this cause
        explains = (*explains, "adapter", "target-padding")
        found = "the logits are NaN or infinite in a batch of sentences of several lengths"
        first = FirstNaN(batch, batch.source, batch.target)
        names = masks.names.get(first.kind, [])
        if not names or names[0] in ("", NO_MASK, OTHER):
            says = first.says
            fix = NO_NAN if first.kind else ""
            modules = list(subject.names_of([first.module]))
    return error(
        found,
        "no change",
        says=mode or says,
        fix=fix,
        modules=tuple(dict.fromkeys(modules)),
        explains=explains,
    )


def mask_of_earlier_batch(batch: UnevenBatch) -> Finding:
    """Compare a batch with the same sentences in another order, which have other lengths."""
    change = batch.change_by_earlier_batch()
    if not leaks(change):
        return passed()
    return error(
        f"the logits of a batch change by {change:.2g} standard deviations if another batch of the "
        "same size came before",
        "no change",
        says="The model keeps the source mask of an earlier batch, and uses it for the next one.",
        fix="Compute the padding mask in each forward pass: lengths differ in every batch.",
    )


@check_of(
    "target-padding",
    "5.1",
    passes="Target padding does not change the logits of a sentence.",
    fails="Target padding changes the logits of the tokens before it.",
)
def target_padding(subject: Subject) -> Finding:
    """Compare each target in a batch of several lengths with the same target alone."""
    if hidden_words(subject).any():
        return waits_for("target-visible")
    batch = uneven_batch(subject)
    change = batch.change_by_target()
    if math.isinf(change):
        first = FirstNaN(batch, batch.short_source(), batch.padded_target)
        return error(
            "the logits are NaN or infinite in a batch of targets of several lengths",
            "finite logits, of padding, too: 0 · NaN is NaN in a loss",
            says=first.says,
            fix=NO_NAN if first.kind else "",
            modules=subject.names_of([first.module]),
            explains=("adapter", "training-loss"),
        )
    if change < SAME:
        return passed()
    return error(
        "a target has different logits alone and in a batch of longer targets: they differ by "
        f"{change:.2g} standard deviations of the logits",
        "no change",
        fix="Mask padding in decoder self-attention, or pad on the right under a causal mask.",
    )


def inverted_mask(subject: Subject) -> Finding | None:
    """Return the error of a mask that hides every token of a source without padding, or None.

    Raises:
        NotFiniteError: the logits are NaN for another reason
    """
    try:
        subject.logits(subject.source, subject.target)
    except NotFiniteError:
        padded = subject.padded(subject.source, 2)
        logits = subject.call("logits", subject.model, padded, subject.target)
        tensor = logits[0] if isinstance(logits, tuple) else logits
        if bool(tensor.isfinite().all()):
            return error(
                "the logits of a source without padding are NaN, and those of a source with "
                "padding are not",
                "finite logits",
                says="The source mask is inverted: it shows padding and hides the words.",
                fix=FIX.format("encoder self-attention and to cross-attention"),
            )
        batch = uneven_batch(subject)
        first = FirstNaN(batch, batch.source, batch.target)
        raise NotFiniteError(
            first.says.replace("The logits are NaN", "logits() returned NaN or infinity")[:-1],
            fix=NO_NAN if first.kind else "",
        ) from None
    return None
