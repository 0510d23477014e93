"""No biases, as the equations of the paper's attention show none (Chowdhery et al., 2022, PaLM,
arXiv:2204.02311, leave out all)."""

from typing import Any

from torch import nn

from vaswani_transformer import Transformer


class NoBiasTransformer(Transformer):
    """Matrices and norms without biases."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.register_parameter("bias", None)
