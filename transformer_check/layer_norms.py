"""Checks of the modules that are norms, each by itself (3.1): mean and variance of each token.

Shape letters: B batch, L length, D d_model.
"""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .findings import Finding, differs, not_run, passed, variant
from .registry import check_of
from .subject import Subject

CLOSE = 5e-3
"""largest difference from a formula, in standard deviations"""


class Norm(NamedTuple):
    """A module that may be a norm, and the shape of its input for a batch."""

    name: str
    module: nn.Module
    shape: torch.Size
    batch: int
    """dimension of the sentences"""
    length: int
    """dimension of the positions"""


def is_candidate(name: str, module: nn.Module, width: int) -> bool:
    """Return whether a module has a norm's parameters, or its name."""
    parameters = list(module.parameters())
    is_named = "norm" in type(module).__name__.lower()
    sizes = (1, width) if is_named else (width,)
    vectors = [p for p in parameters if p.numel() in sizes and (p.dim() > 0 or is_named)]
    if len(vectors) < len(parameters):
        return False
    if isinstance(module, (nn.Dropout, nn.Identity)):
        return False
    if parameters:
        return len(parameters) <= 2 and not list(module.children())
    return is_named


class CalledNorms:
    """The norms of a subject's model, in the order in which they are called."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.norms: dict[nn.Module, Norm] = {}
        names = {module: name for name, module in subject.model.named_modules()}
        handles = []
        for module, name in names.items():
            if is_candidate(name, module, subject.config.d_model):
                hook = self.hook(name)
                handles.append(module.register_forward_hook(hook))
        try:
            subject.logits(subject.source, subject.target)
        finally:
            for handle in handles:
                handle.remove()

    def hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a forward hook that records a module whose output has its input's shape."""

        def keep(module: nn.Module, inputs: Any, result: Any) -> None:
            x = inputs[0] if inputs else None
            if not isinstance(x, Tensor) or not isinstance(result, Tensor):
                return
            width = self.subject.config.d_model
            if x.shape != result.shape or x.dim() != 3 or x.size(-1) != width:
                return
            sentences = self.subject.source.size(0)
            batch = 0 if x.size(0) == sentences else 1
            self.norms.setdefault(module, Norm(name, module, x.shape, batch, 1 - batch))

        return keep


@lru_cache(maxsize=1)
def called_norms_of(subject: Subject) -> CalledNorms:
    """Return the norms that a subject's model calls, recorded once for all checks."""
    return CalledNorms(subject)


def standardise(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return x with mean 0 and variance 1 over some dimensions."""
    centred = x - x.mean(dims, keepdim=True)
    return centred / centred.pow(2).mean(dims, keepdim=True).sqrt()


def formulas(x: Tensor, norm: Norm) -> dict[str, Tensor]:
    """Return the output of each formula for x, by the sentence of the mistake.

    The sentence of LayerNorm is empty.
    """
    centred = x - x.mean(-1, keepdim=True)
    variance = x.var(-1, unbiased=False, keepdim=True)
    root = x.pow(2).mean(-1, keepdim=True).sqrt()
    width = x.size(-1)
    batch, length = norm.batch, norm.length
    of_parts = {
        f"it normalises each of {parts} parts of a token by itself": standardise(
            x.unflatten(-1, (parts, -1)), (-1,)
        ).flatten(-2)
        for parts in range(2, width // 2 + 1)
        if width % parts == 0
    }
    return {
        "": standardise(x, (-1,)),
        **of_parts,
        "sample": centred / x.std(-1, keepdim=True),  # norm-variance says so
        "it is RMSNorm: it does not subtract the mean": x / root,
        "it does not subtract the mean": x / variance.sqrt(),
        "it does not divide by the standard deviation": centred,
        "it divides by the variance instead of the standard deviation": centred / variance,
        "it normalises over the positions of a sentence, not per token": standardise(x, (length,)),
        "it normalises over positions and d_model together, not per token": standardise(
            x, (length, 2)
        ),
        "it normalises over the sentences of the batch, not per token": standardise(x, (batch,)),
        "it normalises over batch and positions (BatchNorm), not per token": standardise(x, (0, 1)),
        "it normalises over the batch and d_model, not per token": standardise(x, (batch, 2)),
        "it normalises over the whole batch at once, not per token": standardise(x, (0, 1, 2)),
        "it scales each token to unit length": x / x.norm(dim=-1, keepdim=True),
        "it scales each token to unit length after subtracting the mean": centred
        / centred.norm(dim=-1, keepdim=True),
        "it scales each token to length √d_model": x / root * (width / width),
        "it does nothing": x,
    }


def plain_copy(module: nn.Module) -> nn.Module:
    """Copy a norm, with gains of one and biases of zero."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in copied.parameters():
            is_gain = abs(float(parameter.mean()) - 1) < 0.5
            parameter.fill_(1.0 if is_gain else 0.0)
    return copied


def mistake_of(norm: Norm) -> str:
    """Return the sentence for how a norm differs from LayerNorm; empty if it does not."""
    rng = torch.Generator().manual_seed(18)
    scale = 50 + 50 * torch.rand((*norm.shape[:2], 1), generator=rng)
    x = scale * (1 + torch.randn(norm.shape, generator=rng))
    if isinstance(norm.module, nn.modules.batchnorm._BatchNorm):
        return "it is BatchNorm: it normalises over the batch, not per token"
    with torch.no_grad():
        result = plain_copy(norm.module)(x.clone())
    for name, expected in formulas(x, norm).items():
        if float((result - expected).abs().max()) < CLOSE * float(expected.std()):
            return "" if name == "sample" else name
    return factors_of_norm(norm, x) or moments_of_norm(x, result)


def factors_of_norm(norm: Norm, x: Tensor) -> str:
    """Return the sentence for a norm that is a · LayerNorm(x) + b; empty if it is not.

    Its gain and bias are those of a new model, unless it multiplies by zero then.
    """
    standard = standardise(x, (-1,))
    with torch.no_grad():
        result = norm.module(x.clone())
    shift = float(result.mean())
    factor = float((result * standard).mean())
    if float((result - factor * standard - shift).abs().max()) > CLOSE * float(standard.std()):
        return ""
    parts = []
    if abs(factor - 1) > CLOSE:
        parts.append(f"it multiplies the normalised token by {factor:.3g}")
    if abs(shift) > CLOSE:
        parts.append(f"it adds {shift:.3g}")
    found = " and ".join(parts)
    return f"{found}, with the gain and bias of a new model" if found else ""


def moments_of_norm(x: Tensor, result: Tensor) -> str:
    """Return the sentence for a norm that is another function than LayerNorm.

    Args:
        x: the norm's input [B, L, D]
        result: its output, with gains of one and biases of zero
    """
    limit = float(result.max())
    clipped = standardise(x, (-1,)).clamp(-limit, limit)
    if float((result - clipped).abs().max()) < CLOSE:
        return f"it clips the normalised token to ±{limit:.3g}"
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = centred.pow(2).mean(-1, keepdim=True)
    slope = (centred * result).mean(-1, keepdim=True) / variance
    level = result.mean(-1, keepdim=True)
    rest = result - slope * centred - level
    if float(rest.abs().max()) > CLOSE * float(result.std()):
        return "it is another function than LayerNorm"
    subtracted = (mean - level / slope) / mean
    ratio = 1 / slope / variance.sqrt()
    parts = []
    for verb, of_what, seen in (
        ("subtracts", "mean", subtracted),
        ("divides by", "standard deviation", ratio),
    ):
        low, high = f"{float(seen.min()):.3g}", f"{float(seen.max()):.3g}"
        times = low if low == high else f"{low} to {high}"
        tokens = " of a token" if low == high else ", depending on the token"
        if times != "1":
            parts.append(f"it {verb} {times} times the {of_what}{tokens}")
    return " and ".join(parts) or "it is another function than LayerNorm"


def is_detached(norm: Norm) -> bool:
    """Return whether the gradient of a LayerNorm is not that of its mean and variance."""
    rng = torch.Generator().manual_seed(21)
    x = torch.randn(norm.shape, generator=rng).requires_grad_()
    factors = torch.randn(norm.shape, generator=rng)
    result = plain_copy(norm.module)(x)
    if not result.requires_grad:
        return True
    seen = torch.autograd.grad((result * factors).sum(), x)[0]
    expected = torch.autograd.grad((standardise(x, (-1,)) * factors).sum(), x)[0]
    return float((seen - expected).norm() / expected.norm()) > 0.1


def epsilon_of_norm(norm: Norm) -> float:
    """Return the ε of a LayerNorm: tokens of variance 1 get the variance 1 / (1 + ε)."""
    rng = torch.Generator().manual_seed(20)
    x = standardise(torch.randn(norm.shape, generator=rng, dtype=torch.float64), (-1,)).float()
    with torch.no_grad():
        result = plain_copy(norm.module)(x)
    variance = float(result.double().var(-1, unbiased=False).mean())
    is_of_sample = abs(variance - (1 - 1 / norm.shape[-1])) < 1e-4
    return 0.0 if is_of_sample else 1 / variance - 1


def parts_in_use(norm: Norm) -> tuple[bool, bool]:
    """Return whether a norm has a gain, and a bias, that change its output."""
    rng = torch.Generator().manual_seed(19)
    x = torch.randn(norm.shape, generator=rng)
    has_gain = False
    has_bias = False
    module = plain_copy(norm.module)
    with torch.no_grad():
        before = module(x.clone())
        for parameter in module.parameters():
            old = parameter.clone()
            parameter.add_(1.0)
            change = module(x.clone()) - before
            parameter.copy_(old)
            if float(change.abs().max()) < 1e-6:
                continue
            if float(change.std()) < 1e-3:
                has_bias = True
            else:
                has_gain = True
    return has_gain, has_bias


BREAKS = (
    *("norm-variance", "norm-epsilon", "pre-norm", "post-norm", "residual-sums", "final-norm"),
    *("gradients", "output-scale", "feed-forward-place", "activation", "attention-inputs"),
    *("self-attention-inputs", "sublayer-dropout", "parameter-count", "encoder-output"),
    *("residual-connections", "sublayer-output-used", "stray-activation"),
)
"""checks that fail with any other norm"""
MIXES = (
    *("batch-independence", "source-padding", "target-padding", "causal-mask", "training-mode"),
    *("permutation", "position-wise", "head-concatenation", "adapter-encoder", "adapter-decoder"),
    *("embedding-scale", "source-order", "target-order", "source-visible", "evaluation-dropout"),
    *("training-dropout", "decoder-input", "beam-search"),
)
"""checks that also fail with a norm that mixes tokens or sentences"""


@check_of(
    "layer-norm",
    "3.1",
    passes="Every norm is a LayerNorm of each token, with a gain and a bias.",
    fails="A norm is not LayerNorm.",
)
def layer_norms(subject: Subject) -> Finding:
    """Compare each norm with formulas, for tokens of several means and variances."""
    norms = list(called_norms_of(subject).norms.values())
    if not norms:
        return not_run("no module with a norm's parameters or name was called")
    mistakes = {norm.name: mistake_of(norm) for norm in norms}
    wrong = {name: mistake for name, mistake in mistakes.items() if mistake}
    expected = "(x - mean) / √(variance + ε) of each token"
    if wrong:
        first = next(iter(wrong.values()))
        return differs(
            f"{len(wrong)} of {len(norms)} norms: {first}",
            expected,
            says=f"A norm is not LayerNorm: {first}.",
            fix="Use nn.LayerNorm(d_model), whose gain is one and whose bias is zero at first.",
            modules=tuple(wrong),
            explains=(*BREAKS, *MIXES) if "not per token" in first else BREAKS,
        )
    return parts_of_norms(subject, norms)


def parts_of_norms(subject: Subject, norms: list[Norm]) -> Finding:
    """Return the finding on the gradient, the ε, the gains and the biases of LayerNorms."""
    scalars = [norm.name for norm in norms if any(p.numel() == 1 for p in norm.module.parameters())]
    if scalars:
        return differs(
            f"a parameter of one number in {len(scalars)} of {len(norms)} norms",
            f"a gain and a bias of {subject.config.d_model} numbers",
            says="The gain or the bias of a LayerNorm is one number for all dimensions.",
            modules=tuple(scalars),
            explains=("parameter-count", "final-norm"),
        )
    detached = tuple(norm.name for norm in norms if is_detached(norm))
    if detached:
        return differs(
            f"another gradient than LayerNorm's in {len(detached)} of {len(norms)} norms",
            "the derivative with respect to x, its mean and its variance",
            says="A norm computes its mean or variance without gradient.",
            fix="Remove detach() and no_grad() from the norm.",
            modules=detached,
            explains=("gradients",),
        )
    large = {norm.name: epsilon_of_norm(norm) for norm in norms}
    large = {name: epsilon for name, epsilon in large.items() if epsilon > 1e-3}
    if large:
        epsilon = next(iter(large.values()))
        return differs(
            f"ε about {epsilon:.2g} in {len(large)} of {len(norms)} norms",
            "ε = 1e-6",
            says=f"The ε of LayerNorm is {epsilon:.2g}: it makes small activations smaller.",
            modules=tuple(large),
            explains=("residual-sums", "output-scale", "norm-variance", "norm-epsilon"),
        )
    return missing_parts(norms)


def missing_parts(norms: list[Norm]) -> Finding:
    """Return the finding on norms without a gain or a bias."""
    without: dict[str, list[str]] = {}
    for norm in norms:
        has_gain, has_bias = parts_in_use(norm)
        parts = [part for part, has in (("gain", has_gain), ("bias", has_bias)) if not has]
        if parts:
            without.setdefault(" and no ".join(parts), []).append(norm.name)
    if not without:
        return passed()
    part, names = next(iter(without.items()))
    find = variant if part == "bias" else differs
    return find(
        f"no {part} in {len(names)} of {len(norms)} norms",
        "a gain and a bias",
        says=f"A LayerNorm has no {part}.",
        modules=tuple(names),
        explains=("parameter-count", "gradients", "final-norm"),
    )
