"""Checks of ``attention``: equation 1 and its mask (3.2.1, 3.2.3).

Shape letters: B batch, H heads, T queries, S keys, K d_k.
"""

import torch
from torch import Tensor

from .findings import DIFFERENCE, ERROR, Finding, differs, error, not_run, passed
from .registry import check_of
from .subject import Subject


class Attention:
    """``attention`` of random queries and keys; the values are the identity matrix [S, S]."""

    def __init__(self, subject: Subject, size: float = 1.0) -> None:
        numbers = torch.Generator().manual_seed(4)
        self.subject = subject
        self.q = size * torch.randn(2, 4, 5, 8, generator=numbers)  # [B, H, T, K]
        self.k = torch.randn(2, 4, 7, 8, generator=numbers)  # [B, H, S, K]

    def weights(self, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights, shape [B, H, T, S]."""
        values = torch.eye(7).expand(2, 4, 7, 7)
        shape = (2, 4, 5, 7)
        return self.subject.tensor("attention", shape, self.q, self.k, values, mask).detach()


@check_of(
    "equation-1-softmax",
    "3.2.1",
    passes="attention() takes the softmax over the keys.",
    fails="attention() does not take the softmax over the keys.",
    needs=("attention",),
    explains=("equation-1-mask",),
)
def softmax_over_keys(subject: Subject) -> Finding:
    """Check that the weights of each query sum to one."""
    sums = Attention(subject).weights().sum(-1)
    away = float((sums - 1).abs().max())
    if away < 1e-4:
        return passed()
    return differs(
        f"the weights of a query sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}",
        "1",
        fix="Use softmax(dim=-1) for scores [B, H, T, S].",
    )


@check_of(
    "equation-1-scale",
    "3.2.1",
    passes="attention() divides the scores by √d_k.",
    fails="attention() does not divide the scores by √d_k.",
    needs=("attention",),
)
def scale(subject: Subject) -> Finding:
    """Fit the factor between products of queries and keys and the logarithms of the weights."""
    attention = Attention(subject)
    products = attention.q @ attention.k.transpose(-2, -1)
    products = products - products.mean(-1, keepdim=True)
    logs = attention.weights().clamp(min=1e-30).log()
    logs = logs - logs.mean(-1, keepdim=True)
    slope = float((products * logs).sum() / (products * products).sum())
    if float((logs - slope * products).abs().max()) > 1e-2:
        return not_run("the weights are not a softmax of products of queries and keys")
    if abs(slope * 8**0.5 - 1) < 1e-3:
        return passed()
    return differs(
        f"factor {slope:.4f}", f"1/√8 = {8**-0.5:.4f}", fix="Divide by math.sqrt(q.size(-1))."
    )


@check_of(
    "equation-1-mask",
    "3.2.3",
    passes="The mask of attention() hides keys.",
    fails="The mask of attention() does not hide keys.",
    needs=("attention",),
)
def mask_hides(subject: Subject) -> Finding:
    """Check that hidden keys have weight zero, and that the other weights sum to one."""
    mask = torch.ones(5, 7, dtype=torch.bool).tril(1).expand(2, 1, 5, 7)
    attention = Attention(subject)
    weights = attention.weights(mask)
    hidden = float(weights.masked_fill(mask, 0).max())
    rows = float((weights.sum(-1) - 1).abs().max())
    if hidden < 1e-5 and rows < 1e-4:
        return passed()
    if float((weights - attention.weights()).abs().max()) < 1e-6:
        return error(
            f"the same weights with a mask and without; a hidden key has one of up to {hidden:.3g}",
            "0",
            says="attention() ignores its mask: it is not applied to the scores.",
            fix="Assign the result: masked_fill returns new scores, and masked_fill_ changes them.",
            explains=("causal-mask", "source-padding", "target-padding"),
        )
    return Finding(
        ERROR if hidden >= 1e-5 else DIFFERENCE,
        f"a hidden key has a weight of up to {hidden:.3g}; sums of weights are up to {rows:.2g} "
        "away from 1",
        "0 and 0",
        fix="Set the scores to -inf where the mask is False, before the softmax.",
    )


@check_of(
    "equation-1-overflow",
    "3.2.1",
    passes="attention() gives finite weights to scores of a thousand.",
    fails="attention() gives weights that are not finite to large scores.",
    needs=("attention",),
)
def large_scores(subject: Subject) -> Finding:
    """Check that scores of about a thousand give finite weights.

    exp(89) is infinite in float32, so a softmax has to subtract the maximum first.
    """
    attention = Attention(subject, size=1000.0)
    values = torch.eye(7).expand(2, 4, 7, 7)
    output = subject.call("attention", attention.q, attention.k, values, None)
    output = output[0] if isinstance(output, tuple) else output
    if bool(output.isfinite().all()):
        return passed()
    return error(
        f"{int((~output.isfinite()).sum())} of {output.numel()} outputs are NaN or infinite",
        "0",
        fix="Use torch.softmax, or subtract the maximum of each row first.",
    )
