"""``--compile``: each layer's training pass as a graph of torch.compile; on a GPU also the loss."""

import logging
from typing import Any

import torch
from torch import nn

from vaswani_transformer.fast.compiled_loss import compiled_loss
from vaswani_transformer.layers import DecoderLayer, EncoderLayer

logger = logging.getLogger(__name__)


class CompiledLayer(nn.Module):
    """Base of layers that are compiled in training, for batches of any shape."""

    compiled: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's output, in training by its compiled function."""
        if not self.training:
            return super().forward(*args, **kwargs)
        if self.compiled is None:
            self.compiled = torch.compile(super().forward, dynamic=True)
        return self.compiled(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy, without the compiled function."""
        return {**self.__dict__, "compiled": None}


class CompiledEncoderLayer(CompiledLayer, EncoderLayer):
    """An encoder layer that is compiled in training."""


class CompiledDecoderLayer(CompiledLayer, DecoderLayer):
    """A decoder layer that is compiled in training."""


COMPILED: dict[type[nn.Module], type[nn.Module]] = {
    EncoderLayer: CompiledEncoderLayer,
    DecoderLayer: CompiledDecoderLayer,
}


def compile_parts(model: Any) -> list[nn.Module]:
    """Let layers and loss be compiled in the first training pass, which takes a minute or more.

    If torch.compile does not work here, a warning is logged, and nothing is compiled.

    Returns:
        The layers.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.compile(lambda x: x + 1, dynamic=True)(torch.ones(2, device=device))
    except Exception as error:  # a missing or broken compiler may raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        logger.warning("--compile: torch.compile fails here (%s); continuing without it", reason)
        return []
    layers = [module for module in model.modules() if type(module) in COMPILED]
    for layer in layers:
        layer.__class__ = COMPILED[type(layer)]
    model.decoder.projected_loss = compiled_loss
    return layers
