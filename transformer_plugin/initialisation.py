"""Where the weights start. The paper does not say; two answers are common (``--init``).

``t2t``: tensor2tensor's at the paper's release, the authors' code. ``fairseq``, the default:
fairseq's, the same in 0.12.2 and fairseq-fixed 0.12.3.1; from there small models learn more in an
update (docs/learning.md). Both draw embeddings, learned positions and the output matrix from
N(0, 1/√d_model), with the padding row zero, and start every norm at 1 and 0. They differ in the
projections: U(±a) with the following a (d: d_model, in and out: a matrix's two sides).

==========================  =======================  ============================
matrix                      t2t                      fairseq
==========================  =======================  ============================
q, k, v of self-attention   √(6/(in + out)), fused   √(3/(in + out)), each its own
q of cross-attention        √(6/(in + out))          √(3/(in + out))
k, v of cross-attention     √(6/(in + out)), fused   √(3/(in + out)), each its own
their biases                0                        1/√in
W^O; its bias               √(6/(in + out)); 0       √(6/(in + out)); 0
feed-forward                √(6/(in + out))          1/√in
its biases                  0                        1/√in
==========================  =======================  ============================
"""

import math
from typing import Any, Callable, Dict, Sequence

from torch import Tensor, nn

from .attention import CrossAttention, MultiHeadAttention, SelfAttention
from .layers import FeedForward


def initialise(model: nn.Module, scheme: str) -> None:
    """Give a model with embeddings, layers and ``decoder.output_projection`` its first weights.

    Args:
        model: of this plugin
        scheme: one of ``SCHEMES``
    """
    SCHEMES[scheme](model)
    decoder: Any = model.decoder
    nn.init.normal_(
        decoder.output_projection.weight, std=decoder.output_projection.in_features**-0.5
    )
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])


def like_tensor2tensor(model: nn.Module) -> None:
    """Glorot uniform for every matrix, fused projections as one; biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def like_fairseq(model: nn.Module) -> None:
    """Queries, keys and values 1/√2 of Glorot, each matrix by itself; the rest torch's default."""
    for module in model.modules():
        if isinstance(module, SelfAttention):
            key, value = module.sections
            divided(module.qkv_proj, [key, key, value])
        elif isinstance(module, CrossAttention):
            divided(module.q_proj, module.sections[:1])
            divided(module.kv_proj, module.sections)
        elif isinstance(module, FeedForward):
            for linear in (module.fc1, module.fc2):
                uniform(linear.weight, linear.in_features**-0.5)
                uniform(linear.bias, linear.in_features**-0.5)
        if isinstance(module, MultiHeadAttention):
            nn.init.xavier_uniform_(module.out_proj.weight)
            nn.init.zeros_(module.out_proj.bias)


def divided(projection: nn.Linear, rows: Sequence[int]) -> None:
    """Several projections [rows[i], D] in one matrix, each drawn as if it stood alone."""
    for part in projection.weight.split(list(rows)):
        uniform(part, math.sqrt(3 / sum(part.shape)))
    uniform(projection.bias, projection.in_features**-0.5)


def uniform(tensor: Tensor, limit: float) -> None:
    """Fill from U(-limit, limit)."""
    nn.init.uniform_(tensor, -limit, limit)


SCHEMES: Dict[str, Callable[[nn.Module], None]] = {
    "t2t": like_tensor2tensor,
    "fairseq": like_fairseq,
}
