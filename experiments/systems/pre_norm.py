"""Pre-norm with a final norm (Wang et al., 2019, arXiv:1906.01787; Xiong et al., 2020,
arXiv:2002.04745)."""

from collections.abc import Callable

from torch import Tensor, nn

from vaswani_transformer import Transformer
from vaswani_transformer.layers import AddAndNorm


class PreNorm(AddAndNorm):
    """x + Dropout(Sublayer(LayerNorm(x)))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the sub-layer's output for the normalised input: [B, L, D] → [B, L, D]."""
        return x + self.dropout(sublayer(self.norm(x)))


class PreNormTransformer(Transformer):
    """Norms come before the sub-layers, and one ends each stack, which would end with a sum."""

    def build_add_and_norm(self) -> AddAndNorm:
        """Build the norm, the sub-layer, then the sum."""
        return PreNorm(self.d_model, self.config.dropout, self.config.layer_norm_eps)

    def build_final_norm(self) -> nn.Module:
        """Build the norm at the end of a stack."""
        return nn.LayerNorm(self.d_model, self.config.layer_norm_eps)
