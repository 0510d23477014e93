"""Faster versions of some modules; nothing here is needed to understand the model. Each subclass
computes what its parent computes, within rounding, and adds no parameter:

    linear.py        FastLinear: products by the library that is quicker on this processor
    dropout.py       FastDropout: masks that a CPU draws quickly; equal in distribution
    attention.py     FastSelfAttention, FastCrossAttention: torch's fused kernels; FastEncoder: no
                     mask where nothing is padded
    step.py          FastDecoder: a step of a search as one function
    chunked_loss.py  the loss of loss.py, from features instead of logits
    compiled_loss.py the same by torch.compile, on a GPU
    malloc.py        the allocator's defaults; no result changes
    processor.py     computes nothing; says which form is quick on which processor
"""

from collections.abc import Iterable

from torch import nn

from ..attention import CrossAttention, SelfAttention
from ..decoder import Decoder
from ..encoder import Encoder
from .attention import FastCrossAttention, FastEncoder, FastSelfAttention
from .dropout import FastDropout
from .linear import FastLinear
from .step import FastDecoder

FUSED_ATTENTION: dict[type[nn.Module], type[nn.Module]] = {
    SelfAttention: FastSelfAttention,
    CrossAttention: FastCrossAttention,
    Encoder: FastEncoder,
    Decoder: FastDecoder,
}
"""The classes to replace, and their replacements, if only attention uses torch's kernels."""
FAST: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FastLinear,
    nn.Dropout: FastDropout,
    **FUSED_ATTENTION,
}
"""All classes to replace, and their replacements."""
COMPILED = (nn.Linear, nn.Dropout)
"""Classes that torch.compile makes faster itself."""


def use_fast_kernels(model: nn.Module, compiled: Iterable[nn.Module] = ()) -> nn.Module:
    """Replace the class of each module whose exact type is in :data:`FAST`.

    Subclasses are left alone. Parameters, their names and hooks stay as they are, as under torch's
    parametrisations, which also change a module's class.

    Args:
        model: is changed, and returned
        compiled: parts of it that torch.compile will compile; only attention is replaced in them
    """
    left: set[int] = set()
    for part in compiled:
        left |= {id(m) for m in part.modules() if isinstance(m, COMPILED)}
    for module in model.modules():
        if id(module) not in left:
            module.__class__ = FAST.get(type(module), type(module))
    return model


def use_fused_attention(model: nn.Module) -> nn.Module:
    """Compute the paper's attention by torch's kernels; the model is changed, and returned.

    The public way is ``Transformer(…, attention="sdpa")``.
    """
    for module in model.modules():
        module.__class__ = FUSED_ATTENTION.get(type(module), type(module))
    return model
