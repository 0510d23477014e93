"""RMSNorm in place of LayerNorm (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

import torch
from torch import Tensor, nn

from vaswani_transformer import Transformer
from vaswani_transformer.layers import AddAndNorm


class RmsNorm(nn.Module):
    """x / √(mean(x²) + ε) · g: neither centred nor shifted (equation 4 of Zhang and Sennrich).

    torch's own, from 2.4 on, is not in the official stack.

    Args:
        embed_dim: D
        eps: ε
    """

    def __init__(self, embed_dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(embed_dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the root mean square: [B, L, D] → [B, L, D]."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


class RmsNormTransformer(Transformer):
    """The norm after each sum is RMSNorm."""

    def build_add_and_norm(self) -> AddAndNorm:
        """Build the paper's residual connection with RMSNorm."""
        part = super().build_add_and_norm()
        part.norm = RmsNorm(self.d_model, self.config.layer_norm_eps)  # type: ignore[assignment]
        return part
