"""Label-smoothed cross entropy (section 5.4): the formula, and the same computed with less.

Shapes: N tokens, D model width, V vocabulary. Values are in nats.

:func:`label_smoothed_loss` is the formula. For V = 37,000 its log-probabilities and their gradient
take more memory than all the rest of a small training. :func:`projected_loss` gives the same loss
and the same gradients from the decoder's features and never has a log-probability per class: with

    x = W f      the logits [V] of a token with features f
    z = log Σ_v exp x_v
    ε_i = ε / (V - 1)

the two sums of the formula are -log p(y) = z - x_y and Σ_v -log p(v) = V z - f · Σ_v W_v, and the
gradient on the logits is softmax(x) - ε_i - (1 - ε - ε_i) [v = y], which needs no second pass.
"""

from typing import Any, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_AT_ONCE = 512
"""Tokens whose logits are held at a time: 76 MB in float32 for V = 37,000. From 128 to 4,096 the
products, which are nearly all of the time, take equally long."""


class LossSums(NamedTuple):
    """Sums over tokens, each a tensor of one element."""

    loss: Tensor
    """the smoothed loss; the only one with a gradient"""
    nll: Tensor
    """the negative log-likelihood of the right classes"""
    correct: Tensor
    """how many right classes were the likeliest; 0 if that was not asked for"""


def label_smoothed_loss(
    log_probs: Tensor, target: Tensor, epsilon: float, padding_idx: int
) -> Tuple[Tensor, Tensor]:
    """The smoothed loss and the plain negative log-likelihood, each summed over real tokens.

    The target distribution has 1 - ε on the right class and ε / (V - 1) on each other (as in
    tensor2tensor and fairseq; torch's ``label_smoothing`` spreads ε over all V). With ε_i short
    for ε / (V - 1), its cross entropy is (1 - ε - ε_i) · -log p(y) + ε_i · Σ_v -log p(v).

    Args:
        log_probs: [..., V], in nats, of any float type; summed in float32 at least.
        target: [...], class numbers; those equal to ``padding_idx`` count for nothing.
        epsilon: ε_ls, in [0, 1).
    """
    log_probs = log_probs.to(wide(log_probs.dtype))
    pads = target.eq(padding_idx)
    nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # [...]
    nll = nll.masked_fill(pads, 0.0).sum()
    everywhere = -log_probs.sum(-1).masked_fill(pads, 0.0).sum()
    share = epsilon / (log_probs.size(-1) - 1)  # ε_i
    return (1.0 - epsilon - share) * nll + share * everywhere, nll


def projected_loss(
    features: Tensor, weight: Tensor, target: Tensor, epsilon: float, count_correct: bool = False
) -> LossSums:
    """The label-smoothed loss of logits ``features`` · ``weight``ᵀ, without keeping the logits.

    Products are computed in the type that autocast, if it is on, would give them; everything else
    in float32 at least.

    Args:
        features: [N, D], of real tokens only
        weight: [V, D], the pre-softmax matrix
        target: [N], class numbers
        epsilon: ε_ls, in [0, 1)
        count_correct: also count the likeliest classes that are right
    """
    with torch.no_grad():
        dtype = (features[:1] @ weight[:1].t()).dtype  # what autocast makes of a product
    with torch.autocast(features.device.type, enabled=False):
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
    """The loss of some rows at a time, and, while their logits are there, its gradients.

    The backward pass has only to multiply these by the gradient of the loss.
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
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """See :func:`projected_loss`; ``dtype`` is that of the products."""
        classes = weight.size(0)
        share = epsilon / (classes - 1)  # ε_i
        matrix = weight.to(dtype)  # W
        matrix_sum = matrix.sum(0, dtype=wide(dtype))  # Σ_v W_v: [D]
        nll, everywhere = matrix_sum.new_zeros(2)
        correct = target.new_zeros(())
        if with_gradient:
            grad_features = torch.empty_like(features)
            # ε_i is taken from every class alike, so it need not be taken from each logit
            token_sum = features.sum(0, dtype=wide(dtype))
            grad_matrix = (-share * token_sum).expand(classes, -1).clone()
        for start in range(0, target.numel(), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            f, y = features[rows].to(dtype), target[rows].unsqueeze(1)
            product = f @ matrix.t()  # x: [n, V]
            logits = product.to(wide(dtype))  # the same memory, if it is float32 already
            right = logits.gather(1, y)
            if count_correct:
                correct += logits.argmax(1, keepdim=True).eq(y).sum()
            total, log_total = exponentials_(logits)
            nll += (log_total - right).sum()
            everywhere += classes * log_total.sum() - (f.to(wide(dtype)) @ matrix_sum).sum()
            if with_gradient:
                # over the logits: softmax(x) - (1 - ε - ε_i) [v = y], times `total`, by which
                # the smaller results of both products are divided instead
                logits.scatter_add_(1, y, -(1.0 - epsilon - share) * total)
                product.copy_(logits)
                grad_features[rows] = (product @ matrix) / total - share * matrix_sum
                add_product_(grad_matrix, product.t(), (f / total).to(dtype))
        if with_gradient:
            ctx.save_for_backward(grad_features, grad_matrix.to(weight.dtype))
        ctx.mark_non_differentiable(nll, correct)
        return (1.0 - epsilon - share) * nll + share * everywhere, nll, correct

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *unused: Any) -> Tuple[Any, ...]:
        """The gradients on ``features`` and ``weight``."""
        grad_features, grad_weight = ctx.saved_tensors
        return grad_features * grad_loss, grad_weight * grad_loss, None, None, None, None, None


class LossOfLogits(torch.autograd.Function):
    """The loss of logits [N, V] that are kept; the gradient overwrites them in the backward pass.

    For float16: probabilities of rare classes vanish in it unless they are multiplied by fairseq's
    loss scale first, which is known in the backward pass only.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, epsilon: float, count_correct: bool
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """See :func:`projected_loss`."""
        count, classes = logits.shape
        type_of_sums = wide(logits.dtype)
        log_total = logits.new_empty(count, 1, dtype=type_of_sums)
        everywhere = log_total.new_zeros(())
        correct = target.new_zeros(())
        y = target.unsqueeze(1)
        for start in range(0, count, ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            x = logits[rows].to(type_of_sums, copy=True)
            if count_correct:
                correct += x.argmax(1, keepdim=True).eq(y[rows]).sum()
            everywhere -= x.sum()
            log_total[rows] = exponentials_(x)[1]
        everywhere += classes * log_total.sum()
        nll = (log_total - logits.gather(1, y)).sum()
        ctx.save_for_backward(logits, log_total, y)
        ctx.epsilon = epsilon
        ctx.mark_non_differentiable(nll, correct)
        share = epsilon / (classes - 1)
        return (1.0 - epsilon - share) * nll + share * everywhere, nll, correct

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *unused: Any) -> Tuple[Any, ...]:
        """The gradient on the logits, in their memory."""
        logits, log_total, y = ctx.saved_tensors
        share = ctx.epsilon / (logits.size(1) - 1)
        for start in range(0, logits.size(0), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            gradient = (logits[rows] - log_total[rows]).exp_().sub_(share)
            right = torch.full_like(log_total[rows], -(1.0 - ctx.epsilon - share))
            logits[rows] = gradient.scatter_add_(1, y[rows], right).mul_(grad_loss)
        return logits, None, None, None


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type of sums over the vocabulary: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def exponentials_(logits: Tensor) -> Tuple[Tensor, Tensor]:
    """Overwrite logits x [n, V] with exp(x - max x).

    Returns:
        Their sums [n, 1], and log Σ_v exp x_v [n, 1].
    """
    largest = logits.amax(1, keepdim=True)
    total = logits.sub_(largest).exp_().sum(1, keepdim=True)
    return total, largest + total.log()


def add_product_(result: Tensor, left: Tensor, right: Tensor) -> None:
    """result += left · right, where the product may be of a smaller type."""
    if result.dtype == left.dtype:
        result.addmm_(left, right)  # in one pass over `result`
    else:
        result.add_(left @ right)
