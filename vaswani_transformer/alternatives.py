"""Two parts that fairseq's models may have instead of the paper's; no default uses them.

Pre-norm (Wang et al., 2019, arXiv:1906.01787), and another function than the ReLU between the two
matrices of the feed-forward network. The paper's parts are in layers.py.

Shape letters: B batch, L length, D model width.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from .layers import AddAndNorm, FeedForward

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
}
"""Functions by their fairseq names (``--activation-fn``); the first is the paper's (equation 2)."""


class NormFirst(AddAndNorm):
    """x + Dropout(Sublayer(LayerNorm(x))): the norm comes **before** the sub-layer.

    A stack of such layers ends with a sum, so one more norm follows it.
    """

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x plus the sub-layer's output [B, L, D]; ``sublayer`` maps [B, L, D] to itself."""
        return x + self.dropout(sublayer(self.norm(x)))


class ActivatedFeedForward(FeedForward):
    """activation(x W_1 + b_1) W_2 + b_2.

    Args:
        embed_dim: D
        ffn_embed_dim: d_ff
        activation_dropout: after the activation
        activation: one of ``ACTIVATIONS``
    """

    def __init__(
        self, embed_dim: int, ffn_embed_dim: int, activation_dropout: float, activation: str
    ) -> None:
        super().__init__(embed_dim, ffn_embed_dim, activation_dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network at every position: [B, L, D] → [B, L, D]."""
        return self.fc2(self.dropout(self.activation(self.fc1(x))))
