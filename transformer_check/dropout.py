"""Checks of dropout in the whole model; need only ``build`` and ``logits`` (5.4)."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from .findings import Finding, differs, error, not_run, passed, variant
from .modes import is_random_in_training, training_mode
from .registry import check_of
from .subject import SAME, Config, Subject, difference
from .trace import trace_model


def run_in_training(subject: Subject, function: str, *arguments: Any) -> tuple[Any, Any, Any]:
    """Return the output in training with dropout 0.5, in evaluation, and a trace of the first.

    The function is called with a model and then ``arguments``.
    """
    model = subject.build(dropout=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        calm = subject.call(function, model, *arguments)
        model.train()
        with trace_model() as trace:
            lively = subject.call(function, model, *arguments)
    return lively.detach(), calm.detach(), trace


@check_of(
    "evaluation-dropout",
    "5.4",
    passes="Dropout is off in evaluation mode.",
    fails="Dropout is active in evaluation mode.",
    explains=("embedding-dropout", "sublayer-dropout"),
)
def evaluation_dropout(subject: Subject) -> Finding:
    """Compare two passes in evaluation mode."""
    model = subject.build(dropout=0.5)
    batch = subject.source, subject.target, model
    change = difference(subject.logits(*batch), subject.logits(*batch))
    if change < SAME:
        return passed()
    return error(
        f"two passes after eval() differ by {change:.2g} standard deviations of the logits",
        "equal logits",
        fix="Use nn.Dropout, or pass training=self.training to F.dropout.",
    )


@check_of(
    "training-dropout",
    "5.4",
    passes="Dropout is active in training mode.",
    fails="Dropout has no effect in training mode.",
    explains=("embedding-dropout", "sublayer-dropout", "dropout-places"),
)
def training_dropout(subject: Subject) -> Finding:
    """Compare two passes in training mode with dropout 0.5."""
    model = subject.build(dropout=0.5)
    batch = subject.source, subject.target, model
    model.train()
    change = difference(subject.logits(*batch), subject.logits(*batch))
    model.eval()
    if change > SAME:
        return dropout_of_training_loss(subject)
    return differs(
        "equal logits in two passes after train(), with config.dropout = 0.5",
        "different logits",
        fix="Pass config.dropout to the model's dropout modules.",
    )


def dropout_of_training_loss(subject: Subject) -> Finding:
    """Look for random numbers in training_loss, for a model in training mode."""
    draws = {}
    for function in ("logits", "training_loss"):
        if not subject.defines(function):
            return passed()
        model = subject.build(dropout=0.5)
        model.train()
        with torch.random.fork_rng(devices=[]), trace_model() as trace:
            result = subject.call(function, model, subject.source, subject.target)
        if not isinstance(result, torch.Tensor) or not result.isfinite().all():
            return passed()  # the function's own problem
        draws[function] = len(trace.draws)
    if draws["training_loss"] or not draws["logits"]:
        return passed()
    return differs(
        "no random numbers in training_loss() after train(), with config.dropout = 0.5",
        f"{draws['logits']} dropouts, as in logits()",
        says="training_loss() runs the model in evaluation mode: dropout is off in training.",
        fix="Call model.train() before training, and model.eval() only to validate or translate.",
    )


@check_of(
    "training-mode",
    "5.4",
    passes="Without dropout, training mode changes nothing.",
    fails="Training mode changes the logits of a model without dropout.",
)
def training_without_dropout(subject: Subject) -> Finding:
    """Compare training with evaluation where config.dropout is zero."""
    with training_mode(subject):
        change = difference(subject.output, subject.logits(subject.source, subject.target))
    if change < SAME:
        return passed()
    at_random = " at random" if is_random_in_training(subject) else ""
    sides = {"source": "embedding", "target": "target_embedding"}
    changed = [side for side, name in sides.items() if has_other_embeddings(subject, name)]
    what = f"embeddings ({' and '.join(changed)})" if changed else "logits"
    return differs(
        f"with config.dropout = 0, training mode changes the logits by {change:.2g} standard "
        "deviations of the logits",
        "no change",
        says=f"With dropout 0, training mode changes the {what}{at_random}.",
        fix="Look for a fixed dropout rate, BatchNorm, or code under 'if self.training'.",
    )


def has_other_embeddings(subject: Subject, function: str) -> bool:
    """Return whether training mode changes the result of a function of ids."""
    if not subject.defines(function):
        return False
    results = []
    for is_training in (False, True):
        subject.model.train(is_training)
        with torch.no_grad():
            results.append(subject.call(function, subject.model, subject.source))
    subject.model.eval()
    return difference(results[0], results[1]) > SAME


@check_of(
    "dropout-rate",
    "5.4",
    passes="Every dropout rate is config.dropout.",
    fails="A dropout rate is not config.dropout.",
    explains=("training-mode", "embedding-dropout", "sublayer-dropout", "training-dropout"),
)
def dropout_rate(subject: Subject) -> Finding:
    """Read the rates of every dropout of a model that is built with another rate."""
    rate = 0.3  # no usual rate is half of it
    model = subject.build(dropout=rate)
    model.train()
    with torch.random.fork_rng(devices=[]), trace_model() as trace:
        torch.manual_seed(1)
        subject.call("logits", model, subject.source, subject.target)
    wrong = [seen for seen in trace.rates if not abs(seen - rate) < 1e-6]
    if not wrong:
        return passed()
    seen = sorted({f"{each:.3g}" for each in wrong})
    says = ""
    if any(math.isnan(each) for each in wrong):
        says = "A dropout rate is NaN: it makes every number NaN in training."
    elif abs(wrong[0] - (1 - rate)) < 1e-6:
        says = "A dropout rate is 1 - config.dropout: it drops what it should keep."
    elif abs(wrong[0] - rate / 2) < 1e-6:
        says = "A dropout rate is half of config.dropout."
    return differs(
        f"{len(wrong)} of {len(trace.rates)} dropouts have the rate {', '.join(seen)} with "
        f"config.dropout = {rate}",
        f"{rate}",
        says=says,
        fix="Pass config.dropout to every dropout.",
    )


INSIDE = ("attention weights", "feed-forward activations")

WHOLE = "whole layers or sub-layers"
STRAYS = {
    WHOLE: "Whole layers or sub-layers are left out at random in training.",
    "whole tokens": "Dropout zeroes whole tokens, not single numbers.",
    "all positions": "Dropout zeroes the same numbers at all positions of a sentence.",
    "whole heads": "Dropout zeroes whole heads.",
    "logits": "Dropout is applied to the logits.",
    "queries, keys or values": "Dropout is applied to queries, keys or values.",
    "parameters": "Dropout is applied to parameters instead of activations.",
}
"""place of random numbers that the paper does not have → sentence"""

CountsCheck = Callable[[Config, Counter[str]], Finding]


def check_of_counts(check_id: str, **texts: Any) -> Callable[[CountsCheck], CountsCheck]:
    """Register the decorated function as a check of the dropouts that a model has in each place.

    The check is not run if no random numbers were drawn.
    """

    def add(look: CountsCheck) -> CountsCheck:
        @check_of(check_id, "5.4", **texts)
        def look_if_shown(subject: Subject) -> Finding:
            counts = dropout_counts(subject)
            if not counts:
                return not_run("no random numbers of torch were seen in training mode")
            return look(subject.config, counts)

        return look

    return add


def list_counts(counts: Counter[str], places: Iterable[str]) -> str:
    """Return the number of dropouts in some places, as text."""
    return ", ".join(f"{place} {counts[place]}" for place in places if place in counts)


@check_of_counts(
    "dropout-places",
    passes="Dropout is applied to the embeddings and to every sub-layer's output.",
    fails="Dropout is not applied exactly once to the embeddings and to every sub-layer's output.",
)
def dropout_places(config: Config, counts: Counter[str]) -> Finding:
    """Compare the dropouts on embeddings and sub-layer outputs with the paper's."""
    expected = expected_dropouts(config)
    strays = ("other", *STRAYS)
    is_right = {place: counts[place] for place in expected} == expected
    if is_right and not any(counts[place] for place in strays):
        return passed()
    places = [place for place in counts if place in expected or place in strays]
    says = next((sentence for place, sentence in STRAYS.items() if counts[place]), "")
    missing = [place for place in expected if counts[place] <= 1]
    if not says and len(missing) < len(expected):
        says = "".join(f"The {place}'s layers have no dropout." for place in missing)
    return differs(
        f"dropouts: {list_counts(counts, places) or 'none'}",
        list_counts(expected, expected),
        says=says,
        explains=("training-mode",) if counts[WHOLE] else (),
    )


@check_of_counts(
    "extra-dropout",
    passes="Dropout is applied nowhere else.",
    fails="Dropout is also applied inside the sub-layers.",
)
def extra_dropout(config: Config, counts: Counter[str]) -> Finding:
    """Count dropouts on attention weights and on the activations of feed-forward networks."""
    inside = list_counts(counts, INSIDE)
    return variant(f"dropouts: {inside}", "none there") if inside else passed()


def expected_dropouts(c: Config) -> Counter[str]:
    """Return the paper's number of dropouts: one on the embeddings, one per sub-layer."""
    return Counter(encoder=1 + 2 * c.layers, decoder=1 + 3 * c.layers)


@lru_cache(maxsize=1)
def dropout_counts(subject: Subject) -> Counter[str]:
    """Count the dropouts of a model in training, by the shapes of their random numbers."""
    source, target = subject.source, subject.target
    _, _, trace = run_in_training(subject, "logits", source, target)
    counts = Counter(place_of_draw(subject, shape) for shape in trace.draws)
    if len(trace.softmaxes) < softmaxes_in_evaluation(subject):
        counts[WHOLE] += 1
    return counts


def softmaxes_in_evaluation(subject: Subject) -> int:
    """Count the softmaxes of a run in evaluation mode."""
    with trace_model() as trace:
        subject.logits(subject.source, subject.target)
    return len(trace.softmaxes)


def place_of_draw(subject: Subject, shape: tuple[int, ...]) -> str:
    """Return the place of a dropout in the model, by the shape of its random numbers."""
    c = subject.config
    batch, length = subject.source.shape
    steps = subject.target.size(1)
    numel = math.prod(shape)
    rows = {batch * length: "encoder", batch * steps: "decoder"}
    lengths = {(length, length), (steps, steps), (steps, length)}
    where = subject.layouts.get(len(shape), (-2, -1))
    if len(shape) > 1 and (shape[where[0]], shape[where[1]]) in lengths:
        return INSIDE[0]
    if numel in (1, batch):
        return WHOLE
    whole = whole_parts(subject, shape)
    if whole:
        return whole
    places = {
        c.d_model: rows.get(numel // c.d_model, ""),
        c.d_ff: INSIDE[1],
        c.vocabulary: "logits",
    }
    place = places.get(shape[-1], "")
    if place:
        return place
    if any(p.shape == shape for p in subject.model.parameters()):
        return "parameters"
    if numel in {count * c.heads * width for count in rows for width in c.widths()}:
        return "queries, keys or values"
    return "other"


def whole_parts(subject: Subject, shape: tuple[int, ...]) -> str:
    """Return the place of a dropout whose random numbers are used several times; empty if none."""
    c = subject.config
    batch, length = subject.source.shape
    steps = subject.target.size(1)
    numel = math.prod(shape)
    if shape[-1] == 1 and numel in (length, steps, batch * length, batch * steps):
        return "whole tokens"
    if 1 in shape and numel in (c.heads, batch * c.heads):
        return "whole heads"
    if shape[-1] == c.d_model and numel in (c.d_model, batch * c.d_model):
        return "all positions"
    return ""
