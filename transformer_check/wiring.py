"""The sub-layers of a running model, and which output reaches which input, from ``logits`` alone.

The parts of a model are its softmaxes and the wide products of its feed-forward networks. In a
replay each part returns its recorded result, except for one part that returns other numbers. Since
attention weights and activations stay the same, the change travels by values and residual
connections only, and the scores of the next softmax show whether it has arrived.

Shape letters: S source, T target.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .findings import Finding, not_run
from .modes import set_to
from .registry import check_of
from .subject import Subject, difference
from .trace import Event, trace_model

ENCODER_ATTENTION = "encoder self-attention"
ENCODER_FFN = "encoder feed-forward"
SELF_ATTENTION = "decoder self-attention"
CROSS_ATTENTION = "cross-attention"
DECODER_FFN = "decoder feed-forward"
ENCODER = (ENCODER_ATTENTION, ENCODER_FFN)
DECODER = (SELF_ATTENTION, CROSS_ATTENTION, DECODER_FFN)

LOGITS = "the logits"
HIDDEN = -9e3
"""A lower score is set by a mask."""
ARRIVED = 1e-5
"""A larger change, in standard deviations, has arrived; else each number stays the same."""


class Part(NamedTuple):
    """A sub-layer, by the events that it causes."""

    kind: str
    layer: int
    """from 1"""
    events: tuple[int, ...]

    @property
    def name(self) -> str:
        """The part's name for messages."""
        return f"{self.kind} {self.layer}"


class Wiring:
    """The parts of a subject's model, and which of them reach which.

    ``problem`` says why there is nothing to look at, or is empty.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.source = subject.source[:1]
        self.target = subject.target[:1]
        c = subject.config
        self.wide: int | None = c.d_ff
        self.events, _ = self.run()
        if c.d_ff in (c.d_model, 2 * c.d_model, 3 * c.d_model, c.vocabulary):
            kinds = [self.kind(event) for event in self.events]
            if not kinds.count(ENCODER_FFN) == kinds.count(DECODER_FFN) == c.layers:
                self.wide = None  # other products are as wide, such as queries, keys and values
                self.events, _ = self.run()
        self.problem = ""
        self.parts = self.find_parts()
        shapes = [event.result.shape for event in self.events]
        if not self.problem and shapes != [event.result.shape for event in self.baseline()[0]]:
            self.problem = "two runs of the model have different softmaxes"

    def run(self, replay: list[Tensor] | None = None) -> tuple[list[Event], Tensor]:
        """Return the events and logits of one sentence; ``replay`` replaces the events' results."""
        with trace_model(self.wide, replay, self.subject.layouts) as trace:
            logits = self.subject.logits(self.source, self.target)
        return trace.events, logits.detach()

    def kind(self, event: Event) -> str:
        """Return the kind of part that caused an event; empty if it is none of the five."""
        s, t = self.source.size(1), self.target.size(1)
        if event.is_softmax:
            kinds = {
                (s, s): ENCODER_ATTENTION,
                (t, t): SELF_ATTENTION,
                (t, s): CROSS_ATTENTION,
            }
            return kinds.get(tuple(event.result.shape[-2:]), "")
        rows = event.result.numel() // (self.wide or 1)
        return {s: ENCODER_FFN, t: DECODER_FFN}.get(rows, "")

    def find_parts(self) -> list[Part]:
        """Return the parts, one of each kind per layer, in the order of their first events."""
        layers = self.subject.config.layers
        numbers: dict[str, list[int]] = {kind: [] for kind in (*ENCODER, *DECODER)}
        for number, event in enumerate(self.events):
            kind = self.kind(event)
            if kind:
                numbers[kind].append(number)
        parts = []
        for kind, own in numbers.items():
            is_attention = kind not in (ENCODER_FFN, DECODER_FFN)
            if len(own) % layers or (is_attention and not own):
                self.problem = f"{len(own)} softmaxes or products of {kind} were seen in all layers"
            each = len(own) // layers
            if each:
                for n in range(layers):
                    parts.append(Part(kind, n + 1, tuple(own[n * each : (n + 1) * each])))
        if not any(event.is_softmax for event in self.events):
            self.problem = "no torch softmax was seen"
        return sorted(parts, key=lambda part: part.events)

    def modules_of(self, parts: Iterable[Part]) -> tuple[str, ...]:
        """Return the names of the modules in which the events of parts happen."""
        events = [self.events[number] for part in parts for number in part.events]
        return self.subject.names_of(event.module for event in events)

    def part(self, kind: str, layer: int) -> Part | None:
        """Return a part, or None if it was not seen."""
        for part in self.parts:
            if (part.kind, part.layer) == (kind, layer):
                return part
        return None

    @lru_cache(maxsize=None)  # noqa: B019 (lives as long as the subject's card is made)
    def baseline(self, blocked: tuple[Part, ...] = ()) -> tuple[list[Event], Tensor]:
        """Return the events and logits of a replay with zero weights of the ``blocked`` parts."""
        return self.run(self.replay(blocked))

    def replay(self, blocked: tuple[Part, ...] = ()) -> list[Tensor]:
        """Return the results for a replay: the recorded ones, and zero for ``blocked`` parts."""
        results = [event.result for event in self.events]
        for part in blocked:
            for number in part.events:
                results[number] = torch.zeros_like(results[number])
        return results

    @lru_cache(maxsize=None)  # noqa: B019
    def reached(self, part: Part, blocked: tuple[Part, ...] = ()) -> frozenset[str]:
        """Return the parts, by name, and LOGITS, that change if ``part`` returns other numbers."""
        numbers = torch.Generator().manual_seed(part.events[0])
        replay = self.replay(blocked)
        for number in part.events:
            replay[number] = perturb(self.events[number], numbers)
        before, logits_before = self.baseline(blocked)
        events, logits = self.run(replay)
        names = {
            other.name
            for other in self.parts
            if other != part and any(has_changed(before[n], events[n]) for n in other.events)
        }
        if difference(logits_before, logits) > ARRIVED:
            names.add(LOGITS)
        return frozenset(names)

    @lru_cache(maxsize=None)  # noqa: B019
    def with_other_words(
        self, of_source: bool, blocked: tuple[Part, ...]
    ) -> tuple[list[Event], Tensor]:
        """Run :meth:`baseline` with other tokens in the source or in the target."""
        source, target = self.source, self.target
        if of_source:
            self.source = self.subject.words(1, source.size(1), seed=14)
        else:
            self.target = self.subject.words(1, target.size(1), seed=14)
        try:
            return self.run(self.replay(blocked))
        finally:
            self.source = source
            self.target = target

    def passes_input(self, part: Part) -> bool:
        """Return whether a part's input reaches the layer's output although its output is fixed.

        Other tokens then change the result, because the part's input is added to its output.
        """
        is_attention = self.events[part.events[0]].is_softmax
        blocked = (part,) if is_attention else ()
        before, logits_before = self.baseline(blocked)
        after, logits = self.with_other_words(part.kind in ENCODER, blocked)
        if part.kind not in ENCODER:
            return difference(logits_before, logits) > ARRIVED
        cross = self.part(CROSS_ATTENTION, self.subject.config.layers)
        return cross is None or any(has_changed(before[n], after[n]) for n in cross.events)

    def reaches(
        self, start: Part | None, end: Part | str | None, blocked: tuple[Part, ...] = ()
    ) -> bool:
        """Return whether a part's output reaches another part; True if one was not seen."""
        if start is None or end is None:
            return True
        return (end if isinstance(end, str) else end.name) in self.reached(start, blocked)

    def cross_attentions_but(self, layer: int | None = None) -> tuple[Part, ...]:
        """Return the cross-attentions of all layers but one.

        If they are blocked, the source reaches the decoder in that layer only.
        """
        return tuple(p for p in self.parts if p.kind == CROSS_ATTENTION and p.layer != layer)


def places_of(subject: Subject, shapes: list[tuple[int, int]]) -> list[tuple[str, int]]:
    """Return the kind of attention and the layer, from 1, of each softmax of a run.

    Args:
        subject: whose first source and target were run
        shapes: numbers of queries and keys of each softmax, in order
    """
    source, target = subject.source.size(1), subject.target.size(1)
    names = {(source, source): ENCODER_ATTENTION, (target, target): SELF_ATTENTION}
    kinds = [names.get(shape, CROSS_ATTENTION) for shape in shapes]
    places = []
    for number, kind in enumerate(kinds):
        each = max(1, kinds.count(kind) // subject.config.layers)
        places.append((kind, kinds[:number].count(kind) // each + 1))
    return places


def describe_places(subject: Subject, places: list[tuple[str, int]]) -> str:
    """Return kinds of attention, with their layers unless all layers of a kind are there."""
    kinds: dict[str, list[int]] = {}
    for kind, layer in dict.fromkeys(places):
        kinds.setdefault(kind, []).append(layer)
    texts = []
    for kind, layers in kinds.items():
        is_whole = len(layers) == subject.config.layers
        texts.append(kind if is_whole else f"{kind} (layer {', '.join(map(str, layers))})")
    return " and ".join(texts)


def has_changed(before: Event, after: Event) -> bool:
    """Return whether the scores or activations of an event have changed."""
    return difference(shown_scores(before), shown_scores(after)) > ARRIVED


def perturb(event: Event, numbers: torch.Generator) -> Tensor:
    """Return other attention weights or other activations for an event."""
    if event.is_softmax:
        return event.result * (0.5 + torch.rand(event.result.shape, generator=numbers))
    noise = torch.randn(event.result.shape, generator=numbers)
    return event.result + noise * event.result.std()


def shown_scores(event: Event) -> Tensor:
    """Return the scores or activations of an event; zero where a mask hides them."""
    operand = event.operand.float()
    return operand.masked_fill(operand < HIDDEN, 0.0) if event.is_softmax else operand


def zero_gates(wiring: Wiring, lost: Part) -> list[str]:
    """Return the parameters that are zero in a new model and hide the output of a sub-layer.

    Parameters with the same last part of their name are set to one together.
    """
    groups: dict[str, dict[str, nn.Parameter]] = {}
    for name, parameter in wiring.subject.model.named_parameters():
        if not parameter.any():
            groups.setdefault(name.rpartition(".")[2], {})[name] = parameter
    kind = ENCODER_ATTENTION if lost.kind in ENCODER else SELF_ATTENTION
    is_last = lost.layer == wiring.subject.config.layers
    for own in groups.values():
        with set_to(1.0, list(own.values())):
            other = Wiring(wiring.subject)
            end = LOGITS if is_last else other.part(kind, lost.layer + 1)
            if not other.problem and other.reaches(other.part(lost.kind, lost.layer), end):
                return list(own)
    return []


@lru_cache(maxsize=1)
def wiring_of(subject: Subject) -> Wiring:
    """Return the wiring of a subject, computed once for all checks."""
    return Wiring(subject)


WiringCheck = Callable[[Wiring], Finding]


def check_of_wiring(
    check_id: str, section: str, **texts: Any
) -> Callable[[WiringCheck], WiringCheck]:
    """Register the decorated function as a check; it is not run if a model shows no wiring."""

    def add(look: WiringCheck) -> WiringCheck:
        @check_of(check_id, section, **texts)
        def look_if_shown(subject: Subject) -> Finding:
            wiring = wiring_of(subject)
            if wiring.problem:
                return not_run(wiring.problem)
            return look(wiring)

        return look

    return add
