"""Checks of ``attention``: equation 1 and its mask (3.2.1, 3.2.3).

Shape letters: B batch, H heads, T queries, S keys, K d_k.
"""

import torch
from torch import Tensor

from .card import DIFFERS, ERROR, Result, check_of, not_checked
from .subject import Subject


class Attention:
    """``attention`` of random queries and keys, with values [S, S] that show the weights."""

    def __init__(self, subject: Subject, size: float = 1.0) -> None:
        numbers = torch.Generator().manual_seed(4)
        self.subject = subject
        self.q = size * torch.randn(2, 4, 5, 8, generator=numbers)  # [B, H, T, K]
        self.k = torch.randn(2, 4, 7, 8, generator=numbers)  # [B, H, S, K]

    def weights(self, mask: Tensor | None = None) -> Tensor:
        """[B, H, T, S]."""
        values = torch.eye(7).expand(2, 4, 7, 7)
        shape = (2, 4, 5, 7)
        return self.subject.tensor("attention", shape, self.q, self.k, values, mask).detach()


@check_of("3.2.1", "softmax is over the keys: weights of a query sum to one", "attention")
def softmax_over_keys(subject: Subject) -> Result:
    """Values that are all one stay one."""
    sums = Attention(subject).weights().sum(-1)
    away = float((sums - 1).abs().max())
    if away < 1e-4:
        return Result()
    return Result(
        DIFFERS,
        "sums of 1",
        f"sums from {float(sums.min()):.3g} to {float(sums.max()):.3g}",
        "The softmax is over another dimension, or weights are changed after it.",
    )


@check_of("3.2.1", "scores are divided by √d_k", "attention")
def scale(subject: Subject) -> Result:
    """The slope of log-weights over products of queries and keys."""
    attention = Attention(subject)
    products = attention.q @ attention.k.transpose(-2, -1)
    products = products - products.mean(-1, keepdim=True)
    logs = attention.weights().clamp(min=1e-30).log()
    logs = logs - logs.mean(-1, keepdim=True)
    slope = float((products * logs).sum() / (products * products).sum())
    if float((logs - slope * products).abs().max()) > 1e-2:
        return not_checked("the weights are no softmax of products of queries and keys")
    if abs(slope * 8**0.5 - 1) < 1e-3:
        return Result()
    return Result(
        DIFFERS,
        f"products times 1/√{8} = {8**-0.5:.4f}",
        f"times {slope:.4f}",
        "The softmax is sharper or flatter than the paper's, the more so the larger d_k is.",
    )


@check_of("3.2.3", "the mask of attention hides keys", "attention")
def mask_hides(subject: Subject) -> Result:
    """A hidden key has weight zero, and the others share one."""
    mask = torch.ones(5, 7, dtype=torch.bool).tril(1).expand(2, 1, 5, 7)
    attention = Attention(subject)
    weights = attention.weights(mask)
    hidden = float(weights.masked_fill(mask, 0).max())
    rows = float((weights.sum(-1) - 1).abs().max())
    if hidden < 1e-5 and rows < 1e-4:
        return Result()
    return Result(
        ERROR if hidden >= 1e-5 else DIFFERS,
        "weight 0 for keys whose mask is False, and 1 for the others together",
        f"up to {hidden:.3g} for a hidden key, and sums up to {rows:.2g} away from 1",
        "The mask does nothing, is used the other way round, or comes after the softmax.",
    )


@check_of("3.2.1", "large scores have finite weights", "attention")
def large_scores(subject: Subject) -> Result:
    """exp(89) is infinite in float32: a softmax subtracts the maximum first."""
    attention = Attention(subject, size=1000.0)
    values = torch.eye(7).expand(2, 4, 7, 7)
    output = subject.call("attention", attention.q, attention.k, values, None)
    output = output[0] if isinstance(output, tuple) else output
    if bool(output.isfinite().all()):
        return Result()
    return Result(
        ERROR,
        "finite weights for scores of a thousand",
        f"{int((~output.isfinite()).sum())} of {output.numel()} that are not",
        "One large score makes a sentence NaN, and its gradient the whole model.",
    )
