"""States of a model within a context: training mode (3.2.3, 5.4), parameters set to a number."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

import torch
from torch import nn

from .subject import SAME, Subject, difference


@contextmanager
def training_mode(subject: Subject) -> Iterator[None]:
    """Put the subject's model, which has no dropout, into training mode within the context."""
    subject.model.train()
    try:
        yield
    finally:
        subject.model.eval()


@lru_cache(maxsize=1)
def is_random_in_training(subject: Subject) -> bool:
    """Return whether a model without dropout draws random numbers in training mode all the same."""
    outputs = []
    with training_mode(subject):
        for _ in range(2):
            logits = subject.call("logits", subject.model, subject.source, subject.target)
            outputs.append(logits[0] if isinstance(logits, tuple) else logits)
    return difference(outputs[0], outputs[1]) > SAME  # not for NaN, which is a mistake of its own


def leak_of_later_tokens(subject: Subject) -> float:
    """Return how much later target tokens change earlier logits, in standard deviations."""
    cut = 2
    changed = subject.target.clone()
    changed[:, cut:] = subject.words(2, changed.size(1) - cut, seed=1)
    before = subject.logits(subject.source, subject.target)[:, :cut]
    return difference(before, subject.logits(subject.source, changed)[:, :cut])


def is_for_one_mode(leaks_in_evaluation: bool, leaks_in_training: bool, mask: str) -> str:
    """Return the sentence for a mask that only one of the two modes has; else nothing."""
    if leaks_in_evaluation and not leaks_in_training:
        return f"The {mask} is applied in training mode only, and missing in evaluation."
    if leaks_in_training and not leaks_in_evaluation:
        return f"The {mask} is applied in evaluation only, and missing in training mode."
    return ""


def leaks(change: float) -> bool:
    """Return whether a change of logits is more than rounding; NaN is a change."""
    return not change < SAME


@contextmanager
def set_to(number: float, parameters: list[nn.Parameter]) -> Iterator[None]:
    """Set parameters to a number within the context, and restore them after it."""
    saved = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.fill_(number)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(parameters, saved, strict=True):
                parameter.copy_(old)


def set_to_zero(parameters: list[nn.Parameter]) -> AbstractContextManager[None]:
    """Set parameters to zero within the context, and restore them after it."""
    return set_to(0.0, parameters)
