"""Label-smoothed cross entropy (section 5.4): the formula.

Our models' training takes the same value and gradients from fast/chunked_loss.py, which never keeps
the [N, V] logits; ``--attention-impl readable`` takes this. Values are in nats.
"""

from typing import NamedTuple, Tuple

import torch
from torch import Tensor


class LossSums(NamedTuple):
    """Sums over the tokens of a batch, each a tensor of one element."""

    loss: Tensor
    """the smoothed loss; the only one with a gradient"""
    nll: Tensor
    """the negative log-likelihood of the right classes"""
    correct: Tensor
    """how many right classes were the likeliest; 0 if they were not counted"""


def share_of_wrong_class(epsilon: float, classes: int) -> float:
    """ε_i = ε / (V - 1): what the smoothed target distribution has on each class but the right one.

    As in tensor2tensor and fairseq; torch's ``label_smoothing`` spreads ε over all V.
    """
    return epsilon / (classes - 1)


def label_smoothed_loss(
    log_probs: Tensor, target: Tensor, epsilon: float, padding_idx: int
) -> Tuple[Tensor, Tensor]:
    """The smoothed loss and the plain negative log-likelihood, each summed over real tokens.

    The target distribution has 1 - ε on the right class and :func:`ε_i <share_of_wrong_class>` on
    each other; its cross entropy is (1 - ε - ε_i) · -log p(y) + ε_i · Σ_v -log p(v).

    Args:
        log_probs: [..., V], in nats, of any float type; summed in :func:`accumulation_dtype`.
        target: [...], class numbers; those equal to ``padding_idx`` count for nothing.
        epsilon: ε_ls, in [0, 1).
    """
    log_probs = log_probs.to(accumulation_dtype(log_probs.dtype))
    pads = target.eq(padding_idx)
    nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # [...]
    nll = nll.masked_fill(pads, 0.0).sum()
    everywhere = -log_probs.sum(-1).masked_fill(pads, 0.0).sum()
    share = share_of_wrong_class(epsilon, log_probs.size(-1))
    return (1.0 - epsilon - share) * nll + share * everywhere, nll


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which values of ``dtype`` are summed over V: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)
