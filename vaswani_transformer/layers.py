"""The sub-layers and layers of encoder and decoder (sections 3.1 and 3.3).

Shape letters: B batch, S source, T target, L either of them, D model width, H heads.
Every layer maps [B, L, D] to [B, L, D]. Widths are passed as numbers, never as a configuration.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import CrossAttention, Mask, SelfAttention, Weights
from .cache import LayerCache


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 at every position (equation 2).

    Args:
        embed_dim: D, d_model
        ffn_embed_dim: d_ff
        activation_dropout: after the ReLU (0 in the paper)
    """

    def __init__(self, embed_dim: int, ffn_embed_dim: int, activation_dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, ffn_embed_dim)
        self.dropout = nn.Dropout(activation_dropout)
        self.fc2 = nn.Linear(ffn_embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network at every position: [B, L, D] → [B, L, D]."""
        return self.fc2(self.dropout(F.relu(self.fc1(x))))


class AddAndNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the norm comes **after** the sum (3.1, 5.4).

    Args:
        embed_dim: D
        dropout: P_drop
        eps: of the norm; 1e-6 in tensor2tensor, not given in the paper
    """

    def __init__(self, embed_dim: int, dropout: float, eps: float = 1e-6) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(embed_dim, eps=eps)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalised sum of x [B, L, D] and ``sublayer(x)``, of the same shape."""
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (3.1).

    Args:
        self_attention: over the source
        after_self_attention: the residual connection around it, and its norm
        feed_forward: position-wise
        after_feed_forward: the residual connection around it, and its norm
    """

    def __init__(
        self,
        self_attention: SelfAttention,
        after_self_attention: AddAndNorm,
        feed_forward: FeedForward,
        after_feed_forward: AddAndNorm,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.after_self_attention = after_self_attention
        self.feed_forward = feed_forward
        self.after_feed_forward = after_feed_forward

    def forward(self, x: Tensor, mask: Mask = None, weights: Weights = None) -> Tensor:
        """Return the output of the layer.

        Args:
            x: [B, S, D]
            mask: hides padding: [B, 1, 1, S]
            weights: gets the attention weights [B, H, S, S]

        Returns:
            [B, S, D].
        """
        x = self.after_self_attention(x, lambda x: self.self_attention(x, mask, weights=weights))
        return self.after_feed_forward(x, self.feed_forward)


class LayerContext(NamedTuple):
    """Options of a pass through a decoder layer, for kernels, decoding and plots.

    The paper's equations need none of them.
    """

    is_causal: bool = False
    """No position attends to later ones (3.2.3), without a mask; only for a whole sequence."""
    cache: LayerCache | None = None
    """In incremental decoding, this layer's keys and values; extended in place."""
    self_weights: Weights = None
    """Gets the weights of self-attention [B, H, T, T]."""
    cross_weights: Weights = None
    """Gets the weights of cross-attention [B, H, T, S]."""

    @property
    def need_weights(self) -> bool:
        """Whether any attention weights are needed."""
        return self.self_weights is not None or self.cross_weights is not None


NO_CONTEXT = LayerContext()
"""A pass over a whole sequence, masked by its mask alone."""


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward (3.1).

    Args:
        self_attention: over the target so far
        after_self_attention: the residual connection around it, and its norm
        cross_attention: over the encoder's output
        after_cross_attention: the residual connection around it, and its norm
        feed_forward: position-wise
        after_feed_forward: the residual connection around it, and its norm
    """

    def __init__(
        self,
        self_attention: SelfAttention,
        after_self_attention: AddAndNorm,
        cross_attention: CrossAttention,
        after_cross_attention: AddAndNorm,
        feed_forward: FeedForward,
        after_feed_forward: AddAndNorm,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.after_self_attention = after_self_attention
        self.cross_attention = cross_attention
        self.after_cross_attention = after_cross_attention
        self.feed_forward = feed_forward
        self.after_feed_forward = after_feed_forward

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        memory: Tensor,
        memory_mask: Mask,
        context: LayerContext = NO_CONTEXT,
    ) -> Tensor:
        """Return the output of the layer.

        Args:
            x: [B, T, D]; in incremental decoding the new positions only
            mask: hides positions of the target; None for one position
            memory: the encoder's output [B, S, D]
            memory_mask: hides padding: [B, 1, 1, S]
            context: options for kernels, decoding and plots

        Returns:
            [B, T, D].
        """
        cache = context.cache
        x = self.after_self_attention(
            x,
            lambda x: self.self_attention(x, mask, cache, context.self_weights, context.is_causal),
        )
        x = self.after_cross_attention(
            x,
            lambda x: self.cross_attention(x, memory, memory_mask, cache, context.cross_weights),
        )
        return self.after_feed_forward(x, self.feed_forward)
