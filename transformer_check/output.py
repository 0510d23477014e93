"""Checks of the ends of both stacks; need only ``build`` and ``logits``.

Shape letters: T target, V vocabulary, D d_model.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from .arrows import list_parts, self_attention_without_source
from .findings import Finding, differs, not_run, passed, variant
from .modes import set_to_zero
from .norms import BRANCH, SIDES, norms_of
from .registry import check_of
from .scores import slope_of
from .subject import Subject
from .trace import Event
from .wiring import (
    CROSS_ATTENTION,
    ENCODER_ATTENTION,
    SELF_ATTENTION,
    Part,
    Wiring,
    check_of_wiring,
)

NO_GRADIENT = "logits gives a tensor without gradient: remove no_grad"
NO_GAINS = "no parameter of d_model ones was seen: norms without gains"


def last_rows(subject: Subject) -> Tensor | None:
    """Return the input [T, D] of the output matrix, or None.

    It is the gradient of a difference of two logits with respect to the matrix's row of one token.
    The token is neither in the source nor in the target, so the row has no other use. The
    difference cancels terms that all logits share, such as the logarithm of a softmax's sum.
    """
    c = subject.config
    source, target = subject.source[:1], subject.target[:1]
    used = {*source.flatten().tolist(), *target.flatten().tolist(), c.pad, c.start, c.end}
    word, other = sorted(set(range(c.vocabulary)) - used)[:2]
    logits = subject.logits(source, target)
    for matrix in subject.model.parameters():
        shape = tuple(matrix.shape)
        if shape not in ((c.vocabulary, c.d_model), (c.d_model, c.vocabulary)):
            continue
        rows = []
        for row in logits[0, :, word] - logits[0, :, other]:
            gradient = torch.autograd.grad(row, matrix, retain_graph=True, allow_unused=True)[0]
            if gradient is None:
                break
            rows.append(gradient[word] if shape[0] == c.vocabulary else gradient[:, word])
        if rows and bool(torch.stack(rows).any()):
            return torch.stack(rows)
    return None


def factor_of_logits(subject: Subject) -> float | None:
    """Return the factor of logits that are a norm's output times a matrix; else None."""
    rows = last_rows(subject) if subject.output.requires_grad else None
    return None if rows is None else factor_of_norm(rows)


def factor_of_norm(rows: Tensor) -> float | None:
    """Return the factor of rows [T, D] that a new norm has returned, or None.

    Such rows have mean 0 and the same variance.
    """
    variances = rows.var(-1, unbiased=False)
    factor = float(variances.mean().sqrt())
    is_even = float((variances / variances.mean() - 1).abs().max()) < 1e-2
    is_centred = float(rows.mean(-1).abs().max()) < 1e-2 * factor
    return factor if is_even and is_centred else None


@check_of(
    "output-scale",
    "3.4",
    passes="The logits are the decoder's output times the output matrix.",
    fails="The logits are not the decoder's output times the output matrix.",
)
def logits_not_multiplied(subject: Subject) -> Finding:
    """Check that the matrix multiplies rows of mean 0 and variance 1, as of a new LayerNorm."""
    if not subject.output.requires_grad:
        return not_run(NO_GRADIENT)
    extra = layers_after_stack(subject)
    if extra:
        return differs(
            f"{', '.join(extra)} called after the decoder's last norm",
            "the output matrix alone",
            says=f"A matrix comes between the decoder and the output matrix: {extra[0]}.",
            fix="Multiply the output of the last decoder layer by the output matrix itself.",
            modules=extra,
            explains=("parameter-count", "final-norm", "stray-activation"),
        )
    rows = last_rows(subject)
    if rows is None:
        return not_run("the logits are not a matrix [V, d_model] times activations")
    if not gains_in(subject):
        return not_run(NO_GAINS)
    factor = factor_of_norm(rows)
    if factor is None:
        variances = rows.var(-1, unbiased=False)
        return differs(
            f"the matrix multiplies rows with means up to {float(rows.mean(-1).abs().max()):.2g} "
            f"and variances from {float(variances.min()):.3g} to {float(variances.max()):.3g}",
            "mean 0, variance 1",
            says="An operation comes between the last LayerNorm and the output matrix, or the "
            "LayerNorm is missing.",
        )
    sample = (1 - 1 / subject.config.d_model) ** 0.5  # of a norm with d - 1
    if min(abs(factor - 1), abs(factor / sample - 1)) < 1e-2:
        return passed()
    width = subject.config.d_model**0.5
    usual = {width: "√d_model", 1 / width: "1/√d_model", width**2: "d_model"}
    near = [name for value, name in usual.items() if abs(factor / value - 1) < 2e-2]
    name = f" = {near[0]}" if near else ""
    return differs(
        f"factor {factor:.3g}{name}",
        "1",
        says=f"The logits are multiplied by {near[0] if near else f'{factor:.3g}'}.",
        fix="Remove the factor: √d_model multiplies the embeddings, not the logits.",
    )


def layers_after_stack(subject: Subject) -> tuple[str, ...]:
    """Return the modules with a square matrix that are called after the decoder's last layer.

    The last layer ends with the last norm, unless this norm belongs to a layer without a residual
    connection: its input is then zero where all matrices are zero.
    """
    norms = norms_of(subject)
    places = norms.places("decoder")
    if not places or places.count(BRANCH) > 1:
        return ()
    calls = norms.usual_calls["decoder"]
    last = calls[-2 if places[-1] == BRANCH else -1].module
    called: list[nn.Module] = []

    def keep(module: nn.Module, *_: object) -> None:
        called.append(module)

    width = subject.config.d_model
    handles = []
    for module in subject.model.modules():
        own = module.parameters(recurse=False)
        if module is last or any(p.shape == (width, width) for p in own):
            handles.append(module.register_forward_hook(keep))
    try:
        subject.logits(subject.source[:1], subject.target[:1])
    finally:
        for handle in handles:
            handle.remove()
    end = len(called) - called[::-1].index(last) if last in called else len(called)
    return subject.names_of(called[end:])


def gains_in(subject: Subject) -> list[nn.Parameter]:
    """Return the parameters that may be gains of norms: vectors of d_model ones."""
    shape = (subject.config.d_model,)
    return [p for p in subject.model.parameters() if p.shape == shape and bool((p == 1).all())]


class Gains:
    """The effect of doubling each norm's gain, one after another, with all biases zero.

    Attention weights and the activations of feed-forward networks are kept. Otherwise a ReLU would
    pass the factor on, and an earlier gain would look like the last one.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        subject = wiring.subject
        flat = [p for p in subject.model.parameters() if not subject.is_matrix(p)]
        self.gains = gains_in(subject)
        biases = [p for p in flat if all(p is not gain for gain in self.gains)]
        self.biases = biases
        with set_to_zero(biases):
            self.before = wiring.run(wiring.replay())
            self.doubled = [self.run_with(gain) for gain in self.gains]

    def run_with(
        self, gain: nn.Parameter, blocked: tuple[Part, ...] = ()
    ) -> tuple[list[Event], Tensor]:
        """Return the events and the logits of a run with one gain doubled."""
        with torch.no_grad():
            gain.mul_(2)
        try:
            return self.wiring.run(self.wiring.replay(blocked))
        finally:
            with torch.no_grad():
                gain.div_(2)

    def is_of_encoder(self, gain: nn.Parameter) -> bool:
        """Return whether a gain changes nothing if cross-attention is blocked."""
        blocked = self.wiring.cross_attentions_but()
        with set_to_zero(self.biases):
            without_source = self.wiring.run(self.wiring.replay(blocked))[1]
            return torch.equal(self.run_with(gain, blocked)[1], without_source)

    def of_scores(self, events: tuple[int, ...]) -> list[float | None]:
        """Return the factor by which doubling each gain multiplies the scores of a part.

        It is None for a gain that changes the scores in another way.
        """
        slopes: list[float | None] = []
        for after, _ in self.doubled:
            each = {
                round_slope(slope_of(after[n].operand, self.before[0][n].operand)) for n in events
            }
            slopes.append(each.pop() if len(each) == 1 else None)
        return slopes

    def of_logits(self) -> list[float | None]:
        """Return the factor by which doubling each gain multiplies the logits, or None."""
        return [round_slope(slope_of(after, self.before[1])) for _, after in self.doubled]


def round_slope(slope: float | None) -> float | None:
    """Round a slope to two decimals, so that slopes can be compared."""
    return None if slope is None else round(slope, 2)


@lru_cache(maxsize=1)
def gains_of(wiring: Wiring) -> Gains:
    """Return the effects of a model's gains, computed once for all checks."""
    return Gains(wiring)


@check_of_wiring(
    "final-norm",
    "3.1",
    passes="The encoder and the decoder end with one LayerNorm.",
    fails="A stack does not end with one LayerNorm.",
    explains=("output-scale",),
)
def stacks_end_with_norms(wiring: Wiring) -> Finding:
    """Look for a gain that doubles the scores of cross-attention, and one for the logits."""
    gains = gains_of(wiring)
    if not gains.gains:
        return not_run(NO_GAINS)
    cross = wiring.part(CROSS_ATTENTION, 1)
    missing = []
    is_separate = not self_attention_without_source(wiring).failed
    if cross and is_separate:
        slopes = gains.of_scores(cross.events)
        doubling = [gain for gain, slope in zip(gains.gains, slopes, strict=True) if slope == 2.0]
        if not any(gains.is_of_encoder(gain) for gain in doubling):
            missing.append("the encoder")
    if 2.0 not in gains.of_logits():
        missing.append("the decoder")
    if not missing:
        return look_for_norms_of_norms(wiring.subject)
    return differs(
        f"no LayerNorm gain multiplies the output of {' and '.join(missing)}",
        "one in each stack",
        fix="If the layers are pre-norm, add a LayerNorm after the last layer; if they are "
        "post-norm, apply no operation after it.",
    )


def look_for_norms_of_norms(subject: Subject) -> Finding:
    """Look for norms that read another norm's output, such as a last one after post-norm layers."""
    norms = norms_of(subject)
    again = {side: norms.norms_of_norms(side) for side in SIDES}
    sides = [side for side, modules in again.items() if modules]
    if not sides:
        return passed()
    modules = subject.names_of(module for side in sides for module in again[side])
    ends = [side for side in sides if again[side][-1] is norms.usual_calls[side][-1].module]
    if ends:
        stacks = f"the {' and the '.join(ends)} {'end' if len(ends) > 1 else 'ends'}"
        says = f"{stacks.capitalize()} with two LayerNorms: the last normalises a norm's output."
    else:
        says = f"A LayerNorm of the {sides[0]} normalises the output of another LayerNorm."
    return variant(
        f"norms of the output of a LayerNorm: {', '.join(modules)}",
        "one LayerNorm after each residual sum",
        says=says,
        fix="Remove the second LayerNorm: post-norm layers end with one, pre-norm layers do not.",
        modules=modules,
        explains=("parameter-count",),
    )


@check_of_wiring(
    "self-attention-inputs",
    "3.2.3",
    passes="The queries and keys of self-attention read the same input.",
    fails="The queries and keys of self-attention do not read the same input.",
    explains=("attention-inputs",),
)
def same_numbers(wiring: Wiring) -> Finding:
    """Check that doubling the gain before self-attention multiplies its scores by four.

    A factor of two means that only the queries or only the keys are normalised.
    """
    gains = gains_of(wiring)
    if not gains.gains:
        return not_run(NO_GAINS)
    wrong = [
        part
        for part in wiring.parts
        if part.kind in (ENCODER_ATTENTION, SELF_ATTENTION) and 2.0 in gains.of_scores(part.events)
    ]
    if not wrong:
        return passed()
    return differs(
        f"only the queries or only the keys of {list_parts(wrong)} are normalised",
        "both or neither",
        modules=wiring.modules_of(wrong),
    )
