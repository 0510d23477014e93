"""SwiGLU in place of the feed-forward network's ReLU (Shazeer, 2020, arXiv:2002.05202)."""

import torch.nn.functional as F
from torch import Tensor, nn

from vaswani_transformer import Transformer
from vaswani_transformer.layers import FeedForward


class SwigluFeedForward(FeedForward):
    """(Swish(x W_1 + b_1) ⊙ (x V + c)) W_2 + b_2 (equation 6 of Shazeer, who has no biases).

    Args:
        embed_dim: D
        ffn_embed_dim: the width between W_1 and W_2
        activation_dropout: after the product
    """

    def __init__(self, embed_dim: int, ffn_embed_dim: int, activation_dropout: float = 0.0) -> None:
        super().__init__(embed_dim, ffn_embed_dim, activation_dropout)
        self.gate = nn.Linear(embed_dim, ffn_embed_dim)  # as torch draws it: like fc1 in fairseq

    def forward(self, x: Tensor) -> Tensor:
        """Apply the gated feed-forward network: [B, L, D] → [B, L, D]."""
        return self.fc2(self.dropout(F.silu(self.fc1(x)) * self.gate(x)))


class SwigluTransformer(Transformer):
    """Three matrices in each feed-forward network, two thirds as wide."""

    def build_feed_forward(self, d_ff: int) -> FeedForward:
        """Build a network as large as the paper's with ``d_ff``, up to one column of each
        matrix.
        """
        width = round(2 * d_ff / 3)
        return SwigluFeedForward(self.d_model, width, self.config.activation_dropout)
