"""The label-smoothed loss (section 5.4), computed from features.

It is equal to ``label_smoothed_loss`` (loss.py) of the logits' log-softmax, gradients included.
Shapes: N tokens, n of them at a time, D model width, V vocabulary. Values are in nats.

For V = 37,000 the formula's log-probabilities and their gradient take more memory than all the rest
of training a small model. Here the logits are computed for some of the tokens at a time. With

    x = W f      the logits [V] of a token with features f
    z = log Σ_v exp x_v

the two sums of the formula are -log p(y) = z - x_y and Σ_v -log p(v) = V z - Σ_v x_v. The gradient
on the logits is p - q, the model's distribution minus the smoothed target; it needs no second pass.

Every operation over the vocabulary costs time, so what is the same for all classes is kept out:
Σ_v x_v is f · Σ_v W_v, and the uniform part of q, ε_i everywhere, is subtracted from the products
of the gradient, where it is ε_i Σ_v W_v for features and ε_i Σ f for each row of W.
"""

from typing import Any, Iterator, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..loss import LossSums, accumulation_dtype, share_of_wrong_class
from ..precision import without_autocast
from .linear import linear, weight_gradient
from .processor import choices_for


def projected_loss(
    features: Tensor, weight: Tensor, target: Tensor, epsilon: float, count_correct: bool = False
) -> LossSums:
    """The label-smoothed loss of logits ``features`` · ``weight``ᵀ, without keeping the logits.

    Products are computed in the type that autocast, if it is on, would give them; everything else
    in at least float32.

    Args:
        features: [N, D], of real tokens only
        weight: [V, D], the pre-softmax matrix
        target: [N], class numbers
        epsilon: ε_ls, in [0, 1)
        count_correct: also count the tokens whose likeliest class is right
    """
    with torch.no_grad():  # one product of one number, to learn it
        dtype = (features[:1] @ weight[:1].t()).dtype  # what autocast makes of a product
    with without_autocast(features.device):
        if dtype == torch.float16 and torch.is_grad_enabled():
            logits = F.linear(features.to(dtype), weight.to(dtype))
            return LossSums(*LossOfLogits.apply(logits, target, epsilon, count_correct))
        with_gradient = torch.is_grad_enabled()
        return LossSums(
            *ProjectedLoss.apply(
                features, weight, target, epsilon, dtype, count_correct, with_gradient
            )
        )


class ProjectedLoss(torch.autograd.Function):
    """The loss of some rows at a time, and, while their logits are in memory, its gradients.

    The backward pass then only multiplies these by the gradient of the loss.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        epsilon: float,
        dtype: torch.dtype,
        count_correct: bool,
        with_gradient: bool,
    ) -> LossSums:
        """See :func:`projected_loss`; ``dtype`` is that of the products."""
        matrix = weight.to(dtype)  # W
        column_sums = weight.sum(0, dtype=accumulation_dtype(dtype))  # Σ_v W_v: [D]
        total = zero_sums(dtype, target)
        if with_gradient:
            grad_features = torch.empty_like(features)
            grad_matrix = torch.zeros_like(weight, dtype=accumulation_dtype(dtype))
        for rows in slices(target.numel(), choices_for(weight.device.type).product_rows):
            f = features[rows].to(dtype)
            logits = linear(f, matrix)  # x: [n, V]
            logit_sums = f.to(column_sums.dtype) @ column_sums  # Σ_v x_v
            sums = sums_of(logits, logit_sums, target[rows], epsilon, count_correct, with_gradient)
            for so_far, more in zip(total, sums, strict=True):
                so_far += more
            if with_gradient:
                # sums_of has overwritten the logits: a second [n, V] would cost as much again
                gradient = logits
                grad_features[rows] = linear(gradient, matrix.t())
                grad_matrix += weight_gradient(gradient, f)
        if with_gradient:
            # the uniform part of the target, left out above: once, and not for each [n, V]
            share = share_of_wrong_class(epsilon, weight.size(0))
            grad_features -= share * column_sums.to(features.dtype)
            grad_matrix -= share * features.sum(0, dtype=grad_matrix.dtype)
            ctx.save_for_backward(grad_features, grad_matrix.to(weight.dtype))
        # else autograd would expect gradients for them, too
        ctx.mark_non_differentiable(total.nll, total.correct)
        return total

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *unused: Any) -> Tuple[Any, ...]:
        """The gradients on ``features`` and ``weight``."""
        grad_features, grad_weight = ctx.saved_tensors
        return grad_features * grad_loss, grad_weight * grad_loss, None, None, None, None, None


class LossOfLogits(torch.autograd.Function):
    """The loss of logits [N, V] that are kept; the gradient overwrites them in the backward pass.

    For float16: in it, the probabilities of rare classes vanish unless they are first multiplied by
    fairseq's loss scale, which is known only in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, epsilon: float, count_correct: bool
    ) -> LossSums:
        """See :func:`projected_loss`."""
        ctx.save_for_backward(logits, target)
        ctx.epsilon = epsilon
        logit_sums = logits.sum(1, dtype=accumulation_dtype(logits.dtype))
        sums = sums_of(logits, logit_sums, target, epsilon, count_correct, with_gradient=False)
        ctx.mark_non_differentiable(sums.nll, sums.correct)
        return sums

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *unused: Any) -> Tuple[Any, ...]:
        """The gradient on the logits, in their memory."""
        logits, target = ctx.saved_tensors
        share = share_of_wrong_class(ctx.epsilon, logits.size(1))
        for rows in slices(target.numel(), choices_for(logits.device.type).softmax_rows):
            p = torch.softmax(logits[rows], 1, dtype=accumulation_dtype(logits.dtype))
            subtract_target_(p, target[rows], ctx.epsilon)
            logits[rows] = p.sub_(share).mul_(grad_loss)
        return logits, None, None, None


def zero_sums(dtype: torch.dtype, target: Tensor) -> LossSums:
    """Sums over no tokens, for products of type ``dtype``, on the device of ``target``."""
    loss = torch.zeros((), dtype=accumulation_dtype(dtype), device=target.device)
    return LossSums(loss, torch.zeros_like(loss), target.new_zeros(()))


def sums_of(
    logits: Tensor,
    logit_sums: Tensor,
    target: Tensor,
    epsilon: float,
    count_correct: bool,
    with_gradient: bool,
) -> LossSums:
    """The sums over the rows of ``logits`` [n, V], with right classes ``target`` [n].

    Args:
        logit_sums: [n], the sum of each row
        with_gradient: overwrite the logits with the gradient of the loss, except for its
            uniform part -ε_i
    """
    dtype, classes = accumulation_dtype(logits.dtype), logits.size(1)
    nll = torch.zeros((), dtype=dtype, device=logits.device)
    everywhere = torch.zeros_like(nll)
    correct = target.new_zeros(())
    for rows in slices(target.numel(), choices_for(logits.device.type).softmax_rows):
        x, y = logits[rows], target[rows]
        p = torch.softmax(x, 1, dtype=dtype)
        z, nll_of_row = log_sum_exp(x, p, y)
        nll += nll_of_row.sum()
        everywhere += (classes * z - logit_sums[rows]).sum()
        if count_correct:
            correct += x.argmax(1).eq(y).sum()
        if with_gradient:
            logits[rows] = subtract_target_(p, y, epsilon)
    share = share_of_wrong_class(epsilon, classes)
    return LossSums((1.0 - epsilon - share) * nll + share * everywhere, nll, correct)


def log_sum_exp(x: Tensor, p: Tensor, target: Tensor) -> Tuple[Tensor, Tensor]:
    """z = log Σ_v exp x_v and -log p(y), each [n], from logits x and p = softmax(x), both [n, V].

    Any class v gives z = x_v - log p(v), as long as p(v) is not too small to have a logarithm. The
    target's values are looked up anyway; on a GPU, where the host would have to wait to learn
    whether its p is too small, the likeliest class is used.
    """
    y = target.unsqueeze(1)
    x_y, p_y = x.gather(1, y).squeeze(1), p.gather(1, y).squeeze(1)
    if p.device.type == "cpu" and bool(p_y.ge(torch.finfo(p.dtype).tiny).all()):
        log_p = p_y.log()
        return x_y - log_p, -log_p
    z = x.amax(1) - p.amax(1).log()
    return z, z - x_y


def subtract_target_(p: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """p - (q - ε_i) in the memory of p [n, V]: q is 1 - ε at the target and ε_i elsewhere."""
    share = share_of_wrong_class(epsilon, p.size(1))
    y = target.unsqueeze(1)
    return p.scatter_add_(1, y, p.new_full(y.shape, share - (1.0 - epsilon)))


def slices(count: int, step: int) -> Iterator[slice]:
    """Slices of ``count`` rows, ``step`` at a time."""
    return (slice(start, start + step) for start in range(0, count, step))
