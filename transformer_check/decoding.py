"""Mistakes of forward passes in decoding: positions, masks, start tokens and sources (6.1).

Shape letters: N hypotheses, S source, T target, V vocabulary, D d_model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .embeddings import factor_and_rows, positions
from .scores import Scales, slope_of
from .searches import Row, Tables
from .subject import AdapterError, Config, Subject
from .tables import SUMS, rows_of_table
from .trace import SOFTMAX, Event, Layouts, to_front, trace_model
from .wiring import HIDDEN

NO_SOURCE_MASK = "does not mask the source's padding in decoding"


class OtherPositions(TorchDispatchMode):
    """Adds other rows of the table of positions to the target's embeddings.

    Args:
        table: the positions of the model [L, D]
        first: number of sums with positions to leave unchanged, which are the source's
        rows: function of the length that returns the positions to add in place of 0, 1, 2 ...
    """

    def __init__(self, table: Tensor, first: int, rows: Callable[[int], Tensor]) -> None:
        super().__init__()
        self.table = table
        self.first = first
        self.rows = rows
        self.seen = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in SUMS:
            length = rows_of_table(args[1], self.table)
            if length:
                self.seen += 1
                if self.seen > self.first:
                    rows = self.table[self.rows(length)].view(args[1].shape)
                    return func(args[0], rows, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Unmasked(Scales):
    """Computes softmaxes of some shapes from scores without their mask.

    Args:
        layouts: the dimensions of queries and keys
        shapes: (queries, keys) of the softmaxes
    """

    def __init__(self, layouts: Layouts, shapes: set[tuple[int, int]]) -> None:
        super().__init__(layouts)
        self.shapes = shapes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in SOFTMAX:
            scores = to_front(args[0], self.layouts)
            if tuple(scores.shape[-2:]) in self.shapes:
                shown = self.without_mask(scores)
                where = self.layouts.get(args[0].dim())
                if shown is not None:
                    shown = shown if where is None else shown.movedim((-2, -1), where)
                    args = (shown.contiguous(), *args[1:])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def without_mask(self, scores: Tensor) -> Tensor | None:
        """Return the scores before the mask, a multiple of a recorded product, or None."""
        for product in reversed(self.products):
            if product.numbers.numel() != scores.numel():
                continue
            for numbers in (
                product.numbers.reshape(scores.shape),
                product.numbers.reshape(scores.mT.shape).mT,
            ):
                slope = slope_of(scores, numbers)
                if slope is not None and bool((scores > HIDDEN).any()):
                    return numbers * slope
        return None


class Hidden(TorchDispatchMode):
    """Hides keys from queries in softmaxes of one shape, whose other weights then sum to 1.

    Args:
        layouts: the dimensions of queries and keys
        visible: [queries, keys], false for hidden keys
    """

    def __init__(self, layouts: Layouts, visible: Tensor) -> None:
        super().__init__()
        self.layouts = layouts
        self.visible = visible

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in SOFTMAX:
            return result
        weights = to_front(result, self.layouts)
        if weights.shape[-2:] != self.visible.shape:
            return result
        weights = weights * self.visible
        weights = weights / weights.sum(-1, keepdim=True)
        where = self.layouts.get(result.dim())
        return (weights if where is None else weights.movedim((-2, -1), where)).contiguous()


class OtherEmbedding(TorchDispatchMode):
    """Embeds another token in place of one; masks are as for that one.

    Args:
        token: the id
        other: the id whose embedding it gets
    """

    def __init__(self, token: int, other: int) -> None:
        super().__init__()
        self.token = token
        self.other = other

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ == "embedding":
            ids = args[1].masked_fill(args[1] == self.token, self.other)
            args = (args[0], ids, *args[2:])
        return func(*args, **(kwargs or {}))


class Decoder:
    """The logits of next tokens, by one way to decode.

    Args:
        subject: the implementation
        model: a model of it
        source: [B, S]
        start: first token of every hypothesis; None for the first token of the source
        only_last: whether the model gets only the last token
        starts: number of start tokens
        reads_first: whether it reads the logits of the first position in place of the last
        change: a context in which the model runs, for hypotheses of T tokens
    """

    def __init__(
        self,
        subject: Subject,
        model: nn.Module,
        source: Tensor,
        start: int | None,
        only_last: bool = False,
        starts: int = 1,
        reads_first: bool = False,
        change: Callable[[int], Any] = lambda length: nullcontext(),
    ) -> None:
        self.subject = subject
        self.model = model
        self.source = source
        self.start = start
        self.only_last = only_last
        self.starts = starts
        self.reads_first = reads_first
        self.change = change
        self.known: dict[tuple[int, Row], Tensor] = {}

    def tables(self, sentence: int) -> Tables:
        """Return a function from hypotheses to the logits of a sentence's next tokens."""

        def of_rows(rows: list[Row]) -> Tensor:
            new = [row for row in rows if (sentence, row) not in self.known]
            if new:
                for row, logits in zip(new, self.compute(sentence, new), strict=True):
                    self.known[sentence, row] = logits
            return torch.stack([self.known[sentence, row] for row in rows])

        return of_rows

    @torch.no_grad()
    def compute(self, sentence: int, rows: list[Row]) -> Tensor:
        """Return the logits [N, V] of the tokens after N hypotheses of one length."""
        start = int(self.source[sentence, 0]) if self.start is None else self.start
        target = torch.tensor([[start] * self.starts + list(row) for row in rows])
        if self.only_last:
            target = target[:, -1:]
        source = self.source[sentence : sentence + 1].expand(len(rows), -1)
        with self.change(target.size(1)):
            logits = self.subject.call("logits", self.model, source, target)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor[:, 0 if self.reads_first else -1].detach().float().nan_to_num()


def wrong_decoders(
    subject: Subject, model: nn.Module, source: Tensor, window: int | None = None
) -> Iterator[tuple[str, Decoder]]:
    """Yield wrong ways to decode, each with the predicate of a sentence about its mistake.

    Args:
        subject: the implementation
        model: a model of it
        source: [B, S]
        window: how many tokens decoding may see, the newest included
    """
    c = subject.config

    def decoder(**options: Any) -> Decoder:
        settings = {"source": source, "start": c.start, **options}
        return Decoder(subject, model, **settings)

    yield "reads the last token alone, without those before it", decoder(only_last=True)
    yield "reads the logits of the first position, not of the last", decoder(reads_first=True)
    yield "begins with two start tokens", decoder(starts=2)
    for name, change in changes_of_positions(subject, source):
        yield name, decoder(change=change)
    size = source.size(1)
    yield (
        "has no causal mask in decoding",
        decoder(change=lambda length: without_mask(subject, {(length, length)})),
    )
    yield "lets no new token attend to itself", decoder(change=partial(without_newest, subject))
    if window:
        windows = partial(only_newest, subject, window)
        yield f"sees only the last {window} tokens in decoding", decoder(change=windows)
    yield (
        NO_SOURCE_MASK,
        decoder(change=lambda length: without_mask(subject, {(size, size), (length, size)})),
    )
    yield (
        "does not mask the source's padding in cross-attention when decoding",
        decoder(change=lambda length: without_mask(subject, {(length, size)})),
    )
    yield (
        "does not mask the source's padding in the encoder when decoding",
        decoder(change=lambda length: without_mask(subject, {(size, size)})),
    )
    yield "starts with the end token instead of start", decoder(start=c.end)
    yield "starts with the source's first token instead of start", decoder(start=None)
    for start in (
        {"start": c.pad},
        {"change": lambda length: OtherEmbedding(c.start, c.pad)},  # which is not masked
    ):
        yield "starts with padding instead of start", decoder(**start)
    for name, other in wrong_sources(source, c):
        yield name, decoder(source=other)


def wrong_sources(source: Tensor, config: Config) -> Iterator[tuple[str, Tensor]]:
    """Yield wrong sources [B, S] of a decoder, each with the predicate of a sentence."""
    yield "reads the source reversed", reverse_rows(source, config.pad)
    yield "reverses the source with its padding", source.flip(1)
    yield "pads the source on the left", pad_left(source, config.pad)
    with_start = nn.functional.pad(source, (1, 0), value=config.start)
    yield "puts a start token before the source", with_start
    without_end = source.masked_fill(source == config.end, config.pad)
    yield "leaves out the source's end token", without_end
    yield "translates the first sentence of the batch for all", source[:1].expand_as(source)
    yield "returns translations in another order", source.flip(0)
    yield "mixes the sentences of a batch", source.roll(1, 0)
    yield "mixes the sentences of a batch", source.roll(-1, 0)


def reverse_rows(source: Tensor, pad: int) -> Tensor:
    """Reverse the words of each sentence, and leave padding on the right."""
    rows = source.clone()
    for row in rows:
        length = int((row != pad).sum())
        row[:length] = row[:length].flip(0)
    return rows


def pad_left(source: Tensor, pad: int) -> Tensor:
    """Move the padding of each sentence to its left."""
    rows = [torch.cat([row[row == pad], row[row != pad]]) for row in source]
    return torch.stack(rows)


def traced(mode: TorchDispatchMode) -> Any:
    """Return a context in which a mode sees the parts of fused attention kernels."""

    @contextmanager
    def context() -> Iterator[None]:
        with trace_model(), mode:
            yield

    return context()


def without_mask(subject: Subject, shapes: set[tuple[int, int]]) -> Any:
    """Return a context in which softmaxes of some shapes have no mask."""
    return traced(Unmasked(subject.layouts, shapes))


def without_newest(subject: Subject, length: int) -> Any:
    """Return a context in which tokens after the first are hidden from themselves."""
    visible = ~torch.eye(length, dtype=torch.bool)
    visible[0, 0] = True
    return traced(Hidden(subject.layouts, visible))


def only_newest(subject: Subject, window: int, length: int) -> Any:
    """Return a context in which a token sees the newest tokens alone."""
    visible = torch.ones(length, length, dtype=torch.bool).triu(1 - window)
    return traced(Hidden(subject.layouts, visible))


def changes_of_positions(
    subject: Subject, source: Tensor
) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Yield wrong positions of the target, each with the predicate of a sentence about it.

    Yields nothing unless the model adds a table of positions.
    """
    if not subject.has("target_embedding"):
        return
    try:
        if factor_and_rows(subject, "target_embedding")[2] > 1e-2:
            return
        table = positions(subject, "target_embedding")
    except AdapterError:
        return
    probe = OtherPositions(table, 99, torch.arange)
    with torch.no_grad(), probe:
        subject.call("logits", subject.model, source[:1], subject.target[:1])
    if not probe.seen:
        return
    last = len(table) - 1
    kinds: dict[str, Callable[[int], Tensor]] = {
        "gives every word position 0 in decoding": lambda length: torch.zeros(length).long(),
        "counts positions from 1 in decoding": lambda length: torch.arange(1, length + 1).clamp(
            max=last
        ),
    }
    for name, rows in kinds.items():
        yield name, partial(other_positions, table, probe.seen - 1, rows)


def other_positions(
    table: Tensor, first: int, rows: Callable[[int], Tensor], length: int
) -> OtherPositions:
    """Return a context in which the model adds other positions, for hypotheses of any length."""
    del length
    return OtherPositions(table, first, rows)


def missing_mask(events: list[Event], size: int, vocabulary: int) -> str:
    """Return the predicate of a sentence for weights of later or padded tokens, or nothing.

    Args:
        events: the softmaxes of a search for one source that ends in padding
        size: the length of the source
        vocabulary: V, the size of the output's softmax
    """
    is_first_step = True  # of a decoder that keeps keys and gets one token in each step
    is_first = True
    for event in events:
        if not event.is_softmax or event.over != -1 or event.result.dim() < 2:
            continue
        queries, keys = event.result.shape[-2:]
        if is_first and queries == keys > size:  # the encoder gets a longer source
            return ""
        is_first = False
        if keys == vocabulary:
            continue
        later = event.result.triu(1)[..., 1:, :]  # the start token may be padding, and see all keys
        if queries == keys and keys > size and float(later.max()) > 1e-6:
            return "has no causal mask in decoding"
        is_cross = queries > size or (queries == 1 and is_first_step)
        if keys == size and is_cross and float(event.result[..., -1].max()) > 1e-6:
            return NO_SOURCE_MASK
        is_first_step &= (queries, keys) != (1, 2)
    return ""
