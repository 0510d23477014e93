"""Checks that need only ``build`` and ``logits``: masks, order, batches, gradients.

Shape letters: B batch, S source, T target, V vocabulary, D d_model, N layers, H heads.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .findings import (
    Finding,
    differs,
    error,
    not_run,
    passed,
)
from .masks import hides_earlier_tokens, leaking_layers
from .modes import (
    is_for_one_mode,
    is_random_in_training,
    leak_of_later_tokens,
    leaks,
    training_mode,
)
from .output import NO_GRADIENT
from .registry import check_of
from .subject import SAME, AdapterError, Subject, difference


def leak(change: float, cause: str, fix: str) -> Finding:
    """Return an error, with the size of the change, if the logits have changed."""
    if change < SAME:
        return passed()
    found = f"{cause} changes the logits by {change:.2g} standard deviations of the logits"
    return error(found, "no change", fix=fix)


@check_of(
    "causal-mask",
    "3.2.3",
    passes="The decoder does not attend to future tokens.",
    fails="The decoder attends to future tokens.",
    explains=("target-padding", "training-mode", "adapter-decoder", "beam-search"),
)
def later_tokens(subject: Subject) -> Finding:
    """Check that replacing later target tokens does not change the logits of earlier ones."""
    change = leak_of_later_tokens(subject)
    change_in_training = change
    if not is_random_in_training(subject):
        with training_mode(subject):
            change_in_training = leak_of_later_tokens(subject)
    if not leaks(change) and not leaks(change_in_training):
        return passed()
    says = is_for_one_mode(leaks(change), leaks(change_in_training), "causal mask")
    is_transposed = hides_earlier_tokens(subject)
    if is_transposed and not says:
        says = (
            "The causal mask is transposed: it hides the earlier tokens and shows the later ones."
        )
    place, modules = leaking_layers(subject)
    if place and not says:
        says = f"The decoder attends to future tokens in {place}."
    return error(
        "replacing a later target token changes the logits by "
        f"{max(change, change_in_training):.2g} standard deviations of the logits",
        "no change",
        says=says,
        fix="Mask the scores of later keys with -inf before the softmax of decoder self-attention.",
        modules=modules,
        explains=("target-visible", "target-order") if is_transposed else (),
    )


@check_of(
    "source-dependence",
    "3.1",
    passes="The decoder uses the source.",
    fails="The decoder ignores the source: every source gets the same logits.",
    explains=(
        "source-order",
        "gradients",
        "heads",
        "attention-inputs",
        "encoder-output",
        "layer-count",
    ),
)
def uses_source(subject: Subject) -> Finding:
    """Check that replacing the source changes the logits."""
    other = subject.logits(subject.words(2, subject.source.size(1), seed=1), subject.target)
    if difference(subject.output, other) > SAME:
        return passed()
    return error("the same logits for two different sources", "different logits")


@check_of(
    "batch-independence",
    "5.1",
    passes="A sentence's logits do not depend on the rest of the batch.",
    fails="A sentence's logits depend on the rest of the batch.",
    explains=(
        "target-order",
        "source-order",
        "embedding-scale",
        "sinusoids",
        "permutation",
        "source-padding",
        "target-padding",
    ),
)
def batch_independence(subject: Subject) -> Finding:
    """Compare a sentence alone with the same sentence as the last of a batch."""
    alone = subject.logits(subject.source[-1:], subject.target[-1:])
    return leak(
        difference(subject.output[-1:], alone),
        "a second sentence of the same length",
        "Look for an operation that mixes the batch dimension with the length: a view or reshape "
        "without transpose, or positions taken from dimension 0.",
    )


@check_of(
    "source-order",
    "3.5",
    passes="The encoder knows the order of the source tokens.",
    fails="The encoder does not know the order of the source tokens.",
)
def source_order(subject: Subject) -> Finding:
    """Check that shuffling the source changes the logits.

    Without positions, attention sees a set of tokens.
    """
    shuffled = subject.source[:, [3, 0, 5, 1, 6, 2, 4]]
    if difference(subject.output, subject.logits(shuffled, subject.target)) > SAME:
        return passed()
    return error(
        "the same logits for a shuffled source",
        "different logits",
        fix="Add positional encodings to the source embeddings.",
    )


# ---- Gradients -----------------------------------------------------------------------------------


@check_of(
    "gradients",
    "3.1",
    passes="Every parameter gets a gradient.",
    fails="A parameter gets no gradient, so it is never trained.",
    explains=("parameter-count",),
)
def all_have_gradients(subject: Subject) -> Finding:
    """Differentiate a sum of logits with respect to every parameter."""
    source = subject.source.clone()  # [B, S]
    source[:, -1] = subject.config.end
    target = subject.words(2, 5, seed=24)  # [B, T]
    target[:, 0] = subject.config.start
    logits = subject.logits(source, target)
    if not logits.requires_grad:
        return not_run(NO_GRADIENT)
    frozen = frozen_matrices(subject)
    if frozen:
        return differs(
            f"requires_grad is False for {', '.join(frozen)}",
            "True",
            says=f"{frozen[0]} is frozen: it is never trained.",
            fix="Remove requires_grad_(False).",
            modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in frozen)),
        )
    named = [(n, p) for n, p in subject.model.named_parameters() if p.requires_grad]
    gradients = torch.autograd.grad(total_of(logits), [p for _, p in named], allow_unused=True)
    unused = []
    for (name, parameter), gradient in zip(named, gradients, strict=True):
        # the gradient of a bias of keys is zero up to rounding: the softmax cancels it
        if gradient is None or (subject.is_matrix(parameter) and not gradient.any()):
            unused.append(name)
    if not unused:
        ids = {"source": set(source.flatten().tolist()), "target": set(target.flatten().tolist())}
        finding = look_for_frozen_rows(subject, ids, dict(zip(named, gradients, strict=True)))
        return finding if finding.failed else look_for_detached(subject, source, target)
    more = f" and {len(unused) - 4} more" if len(unused) > 4 else ""
    used = [name for name in unused if has_effect(subject, name, source, target)]
    return differs(
        f"no gradient for {', '.join(unused[:4])}{more}",
        f"a gradient for each of {len(named)} parameters",
        says=f"{used[0]} changes the logits, and gets no gradient: it is never trained."
        if used
        else "",
        fix="Look for detach(), .data and no_grad() in the model." if used else "",
        modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in unused)),
    )


def has_effect(subject: Subject, name: str, source: Tensor, target: Tensor) -> bool:
    """Return whether other numbers in a parameter change the logits."""
    model = subject.build(dropout=0.0)
    before = subject.logits(source, target, model)
    with torch.no_grad():
        parameter = dict(model.named_parameters())[name]
        numbers = torch.Generator().manual_seed(27)
        parameter.add_(torch.randn(parameter.shape, generator=numbers))
    return difference(before, subject.logits(source, target, model)) > SAME


def look_for_frozen_rows(
    subject: Subject,
    ids: dict[str, set[int]],
    gradients: dict[tuple[str, nn.Parameter], Tensor | None],
) -> Finding:
    """Look for tokens whose row of an embedding gets no gradient, though the batch has them.

    Args:
        subject: the implementation
        ids: the tokens of the batch, in the source and in the target
        gradients: name and parameter → its gradient
    """
    c = subject.config
    names = {c.start: f"the start token ({c.start})", c.end: f"the end token ({c.end})"}
    for (name, parameter), gradient in gradients.items():
        if tuple(parameter.shape) != (c.vocabulary, c.d_model) or gradient is None:
            continue
        trained = set(gradient.any(1).nonzero().flatten().tolist())
        used: set[int] = set()
        for side, other in (("source", "target"), ("target", "source")):
            if trained & (ids[side] - ids[other]):
                used |= ids[side]
        lost = sorted(used - trained)
        if lost:
            token = names.get(lost[0], f"token {lost[0]}")
            return differs(
                f"no gradient for row {lost[0]} of {name}, which the batch uses",
                "a gradient for the row of each token but padding",
                says=f"The embedding of {token} is never trained: it is padding_idx.",
                fix=f"Give the embedding padding_idx={c.pad}, the id of padding, or none.",
                modules=(name.rpartition(".")[0],) if "." in name else (),
            )
    return passed()


def frozen_matrices(subject: Subject) -> list[str]:
    """Return the names of vectors, and of embedding and feed-forward matrices, never trained."""
    c = subject.config
    frozen = [(n, p) for n, p in subject.model.named_parameters() if not p.requires_grad]
    sizes = {c.vocabulary, c.d_ff}
    vectors = [name for name, p in frozen if p.shape == (c.d_model,)]
    return vectors + [name for name, p in frozen if sizes & set(p.shape) and p.dim() > 1]


def look_for_detached(subject: Subject, source: Tensor, target: Tensor) -> Finding:
    """Compare the gradients of a sum of logits with finite differences, in double precision.

    Args:
        subject: the implementation
        source: [B, S]
        target: [B, T]
    """
    model = subject.build(dropout=0.0).double()

    def total() -> Tensor:
        logits = subject.call("logits", model, source, target)
        return total_of(logits[0] if isinstance(logits, tuple) else logits)

    try:
        value = total()
    except AdapterError:
        return passed()  # the model computes in one precision alone
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    pairs = {n: (p, g) for (n, p), g in zip(named.items(), gradients, strict=True) if g is not None}
    if is_derivative(total, list(pairs.values())):
        return passed()
    wrong = [name for name, pair in pairs.items() if not is_derivative(total, [pair])]
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    return differs(
        f"gradients differ from finite differences for {', '.join(wrong[:4])}{more}",
        "the derivative of the logits",
        says="Gradients differ from finite differences: a part of the model is computed without "
        "gradient.",
        fix="Look for detach(), .data and no_grad() in the model.",
        modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in wrong)),
    )


@torch.no_grad()
def is_derivative(total: Callable[[], Tensor], pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Return whether the finite difference of a number along its gradient is the square of it.

    Args:
        total: function that returns the number, in double precision
        pairs: parameters, and the number's gradient for each
    """
    square = sum(float(gradient.pow(2).sum()) for _, gradient in pairs)
    if square < 1e-8:
        return True
    slopes = []
    for length in (1e-4, 1e-3):  # of the change of the parameters
        step = length / math.sqrt(square)
        values = []
        for sign in (1, -1):
            moved = [parameter.clone() for parameter, _ in pairs]
            for parameter, gradient in pairs:
                parameter.add_(gradient, alpha=sign * step)
            values.append(float(total()))
            for (parameter, _), old in zip(pairs, moved, strict=True):
                parameter.copy_(old)
        slopes.append((values[0] - values[1]) / (2 * step))
    is_exact = abs(slopes[0] - slopes[1]) < 1e-2 * abs(slopes[0])
    return not is_exact or abs(slopes[0] / square - 1) < 2e-2


def total_of(logits: Tensor) -> Tensor:
    """Return a sum of logits [B, T, V] with random factors."""
    numbers = torch.Generator().manual_seed(13)
    return (logits * torch.randn(logits.shape, generator=numbers)).sum()
