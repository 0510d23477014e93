"""Checks of padding, with sentences of several lengths in a batch (3.2.3, 5.1).

A sentence must have the same logits in a batch as alone. If it has not, the masks show why: with
every matrix zero all scores are equal, so a weight of zero is caused by a mask.

Shape letters: B batch, H heads, S source, T target.
"""

import math
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from .findings import Finding, error, passed, waits_for
from .mask_names import NO_MASK, OTHER, name_of
from .masks import hidden_words
from .modes import is_for_one_mode, is_random_in_training, leaks, training_mode
from .registry import check_of
from .subject import SAME, AdapterError, NotFiniteError, Subject, difference, set_to_zero
from .trace import Event, trace_model
from .wiring import HIDDEN

LENGTHS = (5, 8, 3, 7, 6)
"""lengths of a batch's sources, with the end token; B is never the number of heads"""
TARGETS = (5, 3, 6, 4, 6)
ENCODER, CROSS = "encoder self-attention", "cross-attention"
LEAST = 1e-6
"""a smaller weight is caused by a mask"""


class UnevenBatch:
    """Sources and targets of several lengths, padded on the right."""

    def __init__(self, subject: Subject) -> None:
        c = subject.config
        self.subject = subject
        size = len(LENGTHS) if c.heads != len(LENGTHS) else len(LENGTHS) - 1
        self.lengths = LENGTHS[:size]
        self.target_lengths = TARGETS[:size]
        self.source = subject.words(size, max(self.lengths), seed=21)  # [B, S]
        self.target = subject.words(size, max(self.target_lengths), seed=22)  # [B, T]
        self.target[:, 0] = c.start
        self.padded_target = self.target.clone()
        for n in range(size):
            self.source[n, self.lengths[n] - 1] = c.end
            self.source[n, self.lengths[n] :] = c.pad
            self.padded_target[n, self.target_lengths[n] :] = c.pad

    def change_by_source(self) -> float:
        """Return how much logits differ between sources in a batch and alone."""
        together = self.logits(self.source, self.target)
        changes = []
        for n, length in enumerate(self.lengths):
            alone = self.logits(self.source[n : n + 1, :length], self.target[n : n + 1])
            changes.append(distance(alone, together[n : n + 1]))
        return max(changes)

    def change_by_earlier_batch(self) -> float:
        """Return by how much logits change where a batch of the same size came before."""
        before = self.logits(self.source, self.target)
        order = [*range(1, len(self.lengths)), 0]
        after = self.logits(self.source[order], self.target[order])
        return distance(before[order], after)

    def change_by_target(self) -> float:
        """Return how much logits differ between targets in a batch and the same targets alone."""
        length = min(self.lengths)  # of all sources
        source = self.source[:, :length].clone()
        source[:, -1] = self.subject.config.end
        together = self.logits(source, self.padded_target)
        changes = []
        for n, size in enumerate(self.target_lengths):
            alone = self.logits(source[n : n + 1], self.target[n : n + 1, :size])
            changes.append(distance(alone, together[n : n + 1, :size]))
        return max(changes)

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits [B, T, V], which may be NaN where a mask hides every key."""
        logits = self.subject.call("logits", self.subject.model, source, target)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.detach()

    def events(self, with_matrices: bool) -> list[Event]:
        """Return the softmaxes of a run, with the model's matrices or with zeros instead."""
        subject = self.subject
        matrices = [p for p in subject.model.parameters() if subject.is_matrix(p)]
        hidden = [p for p in matrices if subject.config.vocabulary not in p.shape]
        zero = set_to_zero([] if with_matrices else hidden)
        with zero, trace_model(layouts=subject.layouts) as trace:
            self.logits(self.source, self.target)
        return [event for event in trace.events if event.is_softmax]

    @cached_property
    def heads_first(self) -> bool:
        """Whether heads come before sentences in attention weights."""
        before = self.events(with_matrices=True)
        source = self.source
        self.source = source.clone()
        words = self.lengths[0] - 1
        self.source[0, :words] = self.subject.words(1, words, seed=23)[0]
        try:
            after = self.events(with_matrices=True)
        finally:
            self.source = source
        for old, new in zip(before, after, strict=True):
            if tuple(old.result.shape[-2:]) == self.shape(ENCODER):
                return are_heads_first(old, new, len(self.lengths))
        return False

    def rows(self, numbers: Tensor) -> Tensor | None:
        """Return scores or weights in the order [B, H, T, S], or None."""
        return by_sentence(numbers.float(), len(self.lengths), self.heads_first)

    def shape(self, kind: str) -> tuple[int, int]:
        """Return the numbers of queries and keys of a kind of attention."""
        keys = self.source.size(1)
        return (keys, keys) if kind == ENCODER else (self.target.size(1), keys)


def distance(alone: Tensor, together: Tensor) -> float:
    """Return the greatest difference in standard deviations; infinity for NaN."""
    change = difference(alone, together)
    return math.inf if math.isnan(change) else change


# ---- What a mask shows ---------------------------------------------------------------------------


def by_sentence(weights: Tensor, batch: int, heads_first: bool) -> Tensor | None:
    """Return attention weights [..., T, S] as [B, H, T, S]; None if B does not divide them.

    Args:
        weights: with sentences and heads in any dimensions before the last two
        batch: B
        heads_first: whether heads come before sentences
    """
    queries, keys = weights.shape[-2:]
    count = weights.numel() // (queries * keys)
    if count % batch:
        return None
    if heads_first:
        return weights.reshape(count // batch, batch, queries, keys).transpose(0, 1)
    return weights.reshape(batch, count // batch, queries, keys)


def are_heads_first(before: Event, after: Event, batch: int) -> bool:
    """Return whether scores have heads before sentences.

    Args:
        before: a softmax of a batch
        after: the same softmax, with other tokens in the first sentence
        batch: B
    """
    shape = (-1, *before.operand.shape[-2:])
    change = (before.operand - after.operand).nan_to_num().reshape(shape).abs().amax((1, 2))
    rows = change.gt(0).nonzero().flatten().tolist()
    return len(rows) > 1 and rows == list(range(0, len(change), batch))


def shown_keys(weights: Tensor, lengths: tuple[int, ...], is_encoder: bool) -> Tensor | None:
    """Return the keys that each sentence shows [B, S]; None if queries or heads differ.

    Queries that are padding do not count, nor do rows that hide everything.
    """
    rows = []
    for n, each in enumerate(weights):  # [H, T, S]
        queries = each[:, : lengths[n]] if is_encoder else each
        visible = queries > LEAST * queries.nan_to_num().amax(-1, keepdim=True)
        if not bool((visible == visible[:1, :1]).all()):
            return None
        rows.append(visible[0, 0])
    return torch.stack(rows)


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
        self.are_mixed = False
        self.hides_queries = False
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
        visible = weights.nan_to_num() > LEAST
        self.are_mixed |= not bool((visible == visible[:, :1]).all())
        if kind == ENCODER:
            self.hides_queries |= hides_queries(event, batch)
        self.names[kind].append(name)
        if name and event.module is not None:
            self.modules[kind] += batch.subject.names_of([event.module])

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


def hides_queries(event: Event, batch: UnevenBatch) -> bool:
    """Return whether a mask hides every key, but only from queries that are padding."""
    scores = batch.rows(event.operand)
    if scores is None:
        return False
    is_hidden = (scores < HIDDEN).all(-1).all(1)  # [B, T]
    padding = torch.arange(scores.size(2)) >= torch.tensor(batch.lengths)[:, None]
    return bool((is_hidden == padding).all())


# ---- The checks ----------------------------------------------------------------------------------


FIX = "Pass the source padding mask to {}: true or -inf where source == pad, for each sentence."


def describe_leak(masks: SourceMasks) -> tuple[str, str]:
    """Return the sentence and the fix for masks that show padding."""
    batch = masks.batch
    wrong = masks.wrong()
    places = " and ".join(f"{kind}{masks.layers(kind)}" for kind in wrong)
    fix = FIX.format(places or "encoder self-attention and to cross-attention")
    names = set(wrong.values())
    if not wrong:
        return (
            "Padding changes the result, though attention hides it: another operation mixes the "
            "tokens of a sentence."
            if any(masks.names.values())
            else "",
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
        if follows_longest(batch):
            says = "One source mask serves the whole batch: it is as long as the longest sentence."
            return says, fix
        return f"Source padding is not masked in {places}.", fix
    if len(names) == 1 and wrong[first] != OTHER:
        return f"{wrong[first][:-1]} ({places}).", fix
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
    if math.isinf(change):  # then functions that give NaN fail for this cause
        explains = (*explains, "adapter")
    return error(
        "a sentence has different logits alone and in a batch of longer sentences: they differ by "
        f"{max(change, change_in_training):.2g} standard deviations of the logits",
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
    change = uneven_batch(subject).change_by_target()
    if change < SAME:
        return passed()
    return error(
        "a target has different logits alone and in a batch of longer targets: they differ by "
        f"{change:.2g} standard deviations of the logits",
        "no change",
        fix="Mask padding in decoder self-attention, or pad on the right under a causal mask.",
    )


def inverted_mask(subject: Subject) -> Finding | None:
    """Return the error of a mask that hides every token of a source without padding, or None."""
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
    return None
