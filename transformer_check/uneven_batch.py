"""Sentences of several lengths in a batch: their masks, and where NaN arises (3.2.3).

Shape letters: B batch, H heads, S source, T target.
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from .modes import set_to_zero
from .subject import Subject, difference
from .trace import Event, trace_model

LENGTHS = (4, 8, 3, 5, 7)
"""lengths of a batch's sources, with the end token; B is never the number of heads"""
TARGETS = (5, 3, 6, 4, 6)
ENCODER, CROSS = "encoder self-attention", "cross-attention"
DECODER = "decoder self-attention"
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
        source = self.short_source()
        together = self.logits(source, self.padded_target)
        if bool(together.isnan().any()):
            return math.inf
        changes = []
        for n, size in enumerate(self.target_lengths):
            alone = self.logits(source[n : n + 1], self.target[n : n + 1, :size])
            changes.append(distance(alone, together[n : n + 1, :size]))
        return max(changes)

    def short_source(self) -> Tensor:
        """Return sources without padding, all as long as the shortest one."""
        source = self.source[:, : min(self.lengths)].clone()
        source[:, -1] = self.subject.config.end
        return source

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
        """Return the numbers of queries and keys of a kind of attention over the source."""
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


# ---- Names of masks ------------------------------------------------------------------------------


def named_masks(lengths: tuple[int, ...], size: int) -> dict[str, Tensor]:
    """Return correct and wrong masks [B, S], True for shown keys, by sentence of the mistake."""
    keys = torch.arange(size)
    ends = torch.tensor(lengths)[:, None]
    right = keys < ends
    names = {
        "": right,
        "The source mask is inverted: it shows padding and hides the words.": ~right,
        "The source mask of every sentence is that of the first sentence of the batch.": right[:1],
        "The source mask of every sentence is that of the last sentence of the batch.": right[-1:],
        "Each sentence has the source mask of another sentence of the batch.": right.roll(1, 0),
        "Each sentence has the source mask of another sentence.": right.roll(-1, 0),
        "The source mask is reversed: it hides the first words in place of padding.": right.flip(1),
        "The source mask shows one token of padding: it is one token too long.": keys < ends + 1,
        "The source mask hides the last token of a sentence: it is one token too short.": keys
        < ends - 1,
        "The source mask hides the first token of a sentence.": right & (keys > 0),
        "The source mask hides the end token in place of padding.": keys != ends - 1,
    }
    shortest = "One source mask serves the whole batch: it is as long as the shortest sentence."
    names[shortest] = right.all(0, keepdim=True)
    for length in range(1, size):
        one = f"One source mask serves the whole batch: it shows the first {length} tokens."
        if length == max(TARGETS):
            one = f"{one[:-1]}, the length of the target."
        names.setdefault(one, (keys < length)[None])
    names["Each sentence has the source mask of another: the masks are sorted by length."] = (
        keys < torch.tensor(sorted(lengths))[:, None]
    )
    down = "Each sentence has the source mask of another: the masks are sorted, the longest first."
    viewed = "The source mask is reshaped where it needs a transpose: it mixes sentences."
    names[viewed] = right.reshape(size, len(lengths)).t()
    names[f"{viewed[:-1]} and positions."] = right.t().reshape(right.shape)
    names[down] = keys < torch.tensor(sorted(lengths, reverse=True))[:, None]
    return {name: mask.expand(len(lengths), -1) for name, mask in names.items()}


NO_MASK = "no mask"
OTHER = "other"


def name_of(shown: Tensor, lengths: tuple[int, ...]) -> str:
    """Return the sentence for a mask: empty if correct, ``NO_MASK``, or ``OTHER``."""
    if bool(shown.all()):
        return NO_MASK
    for name, mask in named_masks(lengths, shown.size(1)).items():
        counts = mask.any(1)  # a row that hides everything shows everything, or nothing
        if bool((shown == mask)[counts].all()):
            return name
    return OTHER


def describe_mask(shown: Tensor, lengths: tuple[int, ...]) -> str:
    """Describe a mask [B, S] that has no name, by the tokens that it hides and shows."""
    words = torch.arange(shown.size(1)) < torch.tensor(lengths)[:, None]
    same = [(shown[n] == words).all(1).nonzero().flatten().tolist() for n in range(len(shown))]
    if all(same):
        n, other = next((n, own[0]) for n, own in enumerate(same) if own[0] != n)
        if bool(shown[n].all()):
            return f"The source mask of sentence {n + 1} of a batch shows its padding."
        return f"Sentence {n + 1} of a batch has the source mask of sentence {other + 1}."
    hidden = int((words & ~shown).sum())
    pads = int((~words & shown).sum())
    parts = []
    if hidden:
        parts.append(f"hides {hidden} of {int(words.sum())} real tokens")
    if pads:
        parts.append(f"shows {pads} of {int((~words).sum())} tokens of padding")
    return f"The source mask of a batch {' and '.join(parts)}."


def weak_mask(scores: Tensor, with_matrices: Tensor, hidden: Tensor) -> str:
    """Return what a mask does with scores in place of hiding keys; empty if nothing is seen.

    Args:
        scores: [..., T, S], of a model whose matrices are zero
        with_matrices: those of the model itself, [..., T, S]
        hidden: true for each key that should be hidden, bool [..., T, S] or one that expands to it

    Returns:
        a predicate with {} for the name of the hidden keys
    """
    hidden = hidden.expand_as(scores)
    values = with_matrices[hidden]
    if not values.numel():
        return ""
    spread = float(values.max() - values.min())
    if spread < 1e-7 * max(1.0, float(values.abs().max())):
        return f"sets the scores of {{}} to {float(values[0]) + 0.0:.3g}"  # not -0
    shown = scores.masked_fill(hidden, 0.0).sum(-1, keepdim=True)
    below = (scores - shown / (~hidden).sum(-1, keepdim=True))[hidden]
    added = float(below.mean())
    is_constant = float(below.max() - below.min()) < 1e-3  # not of NaN
    if not is_constant or abs(added) < 1e-4:
        return ""
    return f"{'lowers' if added < 0 else 'raises'} the scores of {{}} by {abs(added):.3g}"


# ---- NaN -----------------------------------------------------------------------------------------


class FirstNaN:
    """The place where NaN arises in a run: a softmax without keys, or a module.

    Args:
        batch: whose logits are NaN
        source: of the run, [B, S]
        target: of the run, [B, T]
    """

    def __init__(self, batch: UnevenBatch, source: Tensor, target: Tensor) -> None:
        self.batch = batch
        self.queries = {ENCODER: source, DECODER: target, CROSS: target}
        self.keys = {ENCODER: source, DECODER: target, CROSS: source}
        self.module: nn.Module | None = None
        self.kind = ""
        self.says = "The logits are NaN."
        handle = register_module_forward_hook(self.look)
        try:
            with trace_model(layouts=batch.subject.layouts) as trace:
                batch.logits(source, target)
        finally:
            handle.remove()
        for event in trace.events:
            if event.is_softmax and bool(event.result.isnan().any()):
                if not bool(event.operand.isnan().any()):
                    self.describe(event)
                break

    def look(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Note the first module whose output has NaN; modules within it come first."""
        if self.module is not None or not has_nan(output):
            return
        self.module = module
        name = ", ".join(self.batch.subject.names_of([module])) or "the model"
        side = "input" if has_nan(inputs) else "output"
        self.says = f"The logits are NaN, first in the {side} of {name}."

    def describe(self, event: Event) -> None:
        """Describe a softmax that gives NaN for scores that are none."""
        weights = self.batch.rows(event.result)
        for kind, ids in self.queries.items():
            shape = (ids.size(1), self.keys[kind].size(1))
            if weights is None or tuple(weights.shape[-2:]) != shape:
                continue
            self.kind = kind
            self.module = event.module
            empty = weights.isnan().any(-1).any(1)  # [B, T]
            is_padding = not bool((empty & (ids != self.batch.subject.config.pad)).any())
            queries = "queries that are padding" if is_padding else "some queries"
            self.says = (
                f"The logits are NaN: in {kind}, {queries} see no key, and the softmax of their "
                "scores, all -inf, is NaN."
            )
            return


def has_nan(value: Any) -> bool:
    """Return whether a tensor, or one of a tuple, has NaN."""
    if isinstance(value, tuple):
        return any(map(has_nan, value))
    is_floats = isinstance(value, Tensor) and value.is_floating_point()
    return is_floats and bool(value.isnan().any())
