"""The norms of a model while it runs, from ``logits`` alone: their places, the first input (3.1).

A norm is a module with a gain: a parameter of d_model ones. With all matrices and biases zero,
every sub-layer returns zero, so the input of a norm is the output of the norm before it
(post-norm), the input of that norm (pre-norm), or zero (a norm of the sub-layer's output).

Shape letters: B batch, S source, T target, L either, D d_model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .findings import Finding, not_run, passed, variant
from .modes import set_to_zero
from .registry import check_of
from .subject import Subject, difference
from .tables import position_tables

POST, PRE, BRANCH, OTHER = "post-norm", "pre-norm", "norm of the sub-layer's output", "other"
SIDES = ("encoder", "decoder")


class Call(NamedTuple):
    """One call of a norm: the module, its input and its output."""

    module: nn.Module
    x: Tensor
    y: Tensor


def norm_modules(subject: Subject, model: nn.Module) -> list[tuple[nn.Module, nn.Parameter]]:
    """Return each module that owns a gain, with the gain."""
    shape = (subject.config.d_model,)
    modules = []
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.shape == shape and bool((parameter == 1).all()):
                modules.append((module, parameter))
                break
    return modules


@contextmanager
def record_norms(subject: Subject, model: nn.Module) -> Iterator[list[Call]]:
    """Record the calls of all norms within the context."""
    calls: list[Call] = []

    def keep(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
            calls.append(Call(module, arguments[0].clone(), output))  # some code adds in place

    handles = [m.register_forward_hook(keep) for m, _ in norm_modules(subject, model)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def parameters_of_sublayers(subject: Subject, model: nn.Module) -> list[nn.Parameter]:
    """Return all trained parameters except gains, embeddings and tables of positions."""
    gains = {id(gain) for _, gain in norm_modules(subject, model)}
    tables = {name for name, _ in position_tables(subject)}
    own = []
    for name, parameter in model.named_parameters():
        if id(parameter) in gains or name in tables or not parameter.requires_grad:
            continue
        if subject.config.vocabulary not in parameter.shape:
            own.append(parameter)
    return own


def first_norm_input(
    subject: Subject, model: nn.Module, source: Tensor, target: Tensor, length: int
) -> Tensor | None:
    """Return the input [B, L, D] of the first norm of a side, where sub-layers return zero.

    Args:
        subject: the implementation
        model: one of its models
        source: [B, S]
        target: [B, T], of another length
        length: S or T
    """
    batch = len(source)
    zero = set_to_zero(parameters_of_sublayers(subject, model))
    with zero, record_norms(subject, model) as calls:
        subject.logits(source, target, model)
    for call in calls:
        if call.x.shape == (batch, length, subject.config.d_model):
            return call.x
        if call.x.shape == (length, batch, subject.config.d_model):
            return call.x.transpose(0, 1)
    return None


class Norms:
    """The places of a model's norms: of each side, one for each norm after the first."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        source, target = subject.source[:1], subject.target[:1]
        model = subject.model
        gains = [gain for _, gain in norm_modules(subject, model)]
        rng = torch.Generator().manual_seed(17)
        zero = set_to_zero(parameters_of_sublayers(subject, model))
        # with gradients, since torch's encoder uses nested tensors without
        with zero, record_norms(subject, model) as calls:
            for gain in gains:
                gain.data.copy_(0.5 + torch.rand(gain.shape, generator=rng))
            try:
                subject.logits(source, target)
            finally:
                for gain in gains:
                    gain.data.fill_(1)
        self.calls = self.of_sides(calls)
        with record_norms(subject, model) as usual_calls:
            subject.logits(source, target)
        self.usual_calls = self.of_sides(usual_calls)
        """the calls of the unchanged model"""

    def of_sides(self, calls: list[Call]) -> dict[str, list[Call]]:
        """Return the calls of each side, known by the length of their input."""
        width = self.subject.config.d_model
        lengths = {"encoder": self.subject.source.size(1), "decoder": self.subject.target.size(1)}
        return {
            side: [c for c in calls if c.x.numel() == length * width]
            for side, length in lengths.items()
        }

    def norms_of_norms(self, side: str) -> list[nn.Module]:
        """Return the norms of a side whose input is the output of the norm before."""
        calls = self.usual_calls[side]
        pairs = zip(calls, calls[1:], strict=False)
        return [
            after.module
            for before, after in pairs
            if difference(before.y, after.x.reshape(before.y.shape)) < 1e-6
        ]

    def places(self, side: str) -> list[str]:
        """Return the place of each norm after the first of a side."""
        calls = self.calls[side]
        return [place_of(before, after) for before, after in zip(calls, calls[1:], strict=False)]

    def modules(self, side: str, place: str) -> tuple[str, ...]:
        """Return the names of the norms in a place."""
        own = [c.module for c, p in zip(self.calls[side][1:], self.places(side), strict=True)]
        chosen = [m for m, p in zip(own, self.places(side), strict=True) if p == place]
        return self.subject.names_of(chosen)


def place_of(before: Call, after: Call) -> str:
    """Return the place of a norm, from the previous norm's call and its own."""
    x = after.x.reshape(before.x.shape)
    if float(x.detach().abs().max()) < 1e-6:
        return BRANCH
    if difference(before.y, x) < 1e-3:
        return POST
    return PRE if difference(before.x, x) < 1e-3 else OTHER


@lru_cache(maxsize=1)
def norms_of(subject: Subject) -> Norms:
    """Return the norms of a subject; they are recorded once for all checks."""
    return Norms(subject)


def look_for_pre_norm(subject: Subject, side: str) -> Finding:
    """Return a variant if the norms of a side come before the sub-layers."""
    places = norms_of(subject).places(side)
    if not places:
        return not_run("no module with a gain of d_model ones was called: norms without gains")
    if not is_mostly_pre_norm(places):
        return passed()
    other = next(each for each in SIDES if each != side)
    places_of_other = norms_of(subject).places(other)
    is_alone = bool(places_of_other) and not is_mostly_pre_norm(places_of_other)
    return variant(
        f"x + Sublayer(LayerNorm(x)) in {places.count(PRE)} of {len(places)} places",
        "LayerNorm(x + Sublayer(x))",
        says=f"The {side} alone is pre-norm: x + Sublayer(LayerNorm(x))." if is_alone else "",
        modules=norms_of(subject).modules(side, PRE),
    )


def is_mostly_pre_norm(places: list[str]) -> bool:
    """Return whether at least half of the norms are of pre-norm; some code normalises again."""
    return bool(places) and 2 * places.count(PRE) >= len(places)


for _side in SIDES:
    check_of(
        "pre-norm",
        "3.1",
        passes="The layers are not pre-norm.",
        fails="The layers are pre-norm: x + Sublayer(LayerNorm(x)).",
        side=_side,
        explains=("parameter-count",),
    )(lambda subject, side=_side: look_for_pre_norm(subject, side))
