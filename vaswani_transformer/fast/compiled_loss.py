"""The label-smoothed loss (section 5.4) as a graph of torch.compile, for training on a GPU.

It is equal to ``label_smoothed_loss`` (loss.py) of the logits' log-softmax, gradients included.
Shapes: N tokens, D model width, V vocabulary. Values are in nats.

Where the logits fit in memory, one pass over them is quicker than the several of chunked_loss.py:
with its layers compiled, an update of the base model in bf16 takes 40 to 45 ms of an H200 with this
loss and 48 to 54 without, at 25,000 tokens a batch.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..loss import LossSums, accumulation_dtype, smoothing_per_class
from .chunked_loss import product_dtype, projected_loss, without_autocast

ROWS = 32_768
"""Logits of more tokens are computed in parts: for V up to 65,536 a part has at most 2³¹ numbers,
which 32 bits can count."""


def loss_of_logits(
    features: Tensor, weight: Tensor, target: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood, summed over tokens.

    The second has no gradient. The sums over classes are those of loss.py: -log p(y) = log Z -
    logit(y), and Σ_v -log p(v) = V log Z - Σ_v logit(v). torch.compile fuses everything after the
    product.

    Args:
        features: [N, D]
        weight: [V, D], as it is stored: if it were cast before, torch.compile would not take V and
            D for constants
        target: [N], class numbers
        epsilon: ε_ls, in [0, 1)
        dtype: of the product
    """
    logits = F.linear(features.to(dtype), weight.to(dtype)).to(accumulation_dtype(dtype))  # [N, V]
    log_z = logits.logsumexp(1)  # [N]
    nll = (log_z - logits.gather(1, target[:, None]).squeeze(1)).sum()
    nll_over_all_classes = (weight.size(0) * log_z - logits.sum(1)).sum()
    per_class = smoothing_per_class(epsilon, weight.size(0))
    loss = (1.0 - epsilon - per_class) * nll + per_class * nll_over_all_classes
    return loss, nll.detach()


@functools.lru_cache(maxsize=None)
def compiled_loss_of_logits() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return :func:`loss_of_logits`, compiled in its first call for any number of tokens."""
    return torch.compile(loss_of_logits, dynamic=True)


def loss_by_graph(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> LossSums:
    """Return the loss by the compiled function, computed in equal parts of at most ``ROWS``.

    Arguments as in ``projected_loss``; correct tokens are not counted.
    """
    dtype = product_dtype(features, weight)
    parts = -(-len(target) // ROWS)
    slices = zip(features.tensor_split(parts), target.tensor_split(parts), strict=True)
    with without_autocast(features.device):
        sums = [
            compiled_loss_of_logits()(some_features, weight, some_target, epsilon, dtype)
            for some_features, some_target in slices
        ]
    losses, nlls = zip(*sums, strict=True)
    return LossSums(sum(losses), sum(nlls), target.new_zeros(()))


def compiled_loss(
    features: Tensor, weight: Tensor, target: Tensor, epsilon: float, count_correct: bool = False
) -> LossSums:
    """Return the loss as ``projected_loss`` does; in training on a GPU, by the compiled function.

    On a CPU the compiled function is slower. torch.compile would specialise it for a batch of one
    token or none, so ``projected_loss`` computes these.
    """
    in_training = torch.is_grad_enabled() and not count_correct
    if features.device.type == "cpu" or not in_training or len(target) < 2:
        return projected_loss(features, weight, target, epsilon, count_correct)
    return loss_by_graph(features, weight, target, epsilon)
