"""``--checkpoint-activations``: a layer's activations are computed again in the backward pass.

In training only a layer's input is kept; torch.utils.checkpoint runs the layer a second time, with
the same dropout, when its gradient is computed. Memory falls, time grows by about a forward pass.
"""

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from vaswani_transformer.layers import DecoderLayer, EncoderLayer, LayerContext


class CheckpointedLayer(nn.Module):
    """Base of layers whose activations are checkpointed in training."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's output; in training, keep only its input for the backward pass."""
        # a second pass would append the attention weights twice
        need_weights = any(asks_for_weights(value) for value in (*args, *kwargs.values()))
        if not self.training or need_weights:
            return super().forward(*args, **kwargs)
        return checkpoint(super().forward, *args, use_reentrant=False, **kwargs)


def asks_for_weights(argument: Any) -> bool:
    """Return whether a layer's argument is, or contains, a list for attention weights."""
    if isinstance(argument, LayerContext):
        return argument.need_weights
    return isinstance(argument, list)


class CheckpointedEncoderLayer(CheckpointedLayer, EncoderLayer):
    """An encoder layer with checkpointed activations."""


class CheckpointedDecoderLayer(CheckpointedLayer, DecoderLayer):
    """A decoder layer with checkpointed activations."""


CHECKPOINTED: dict[type[nn.Module], type[nn.Module]] = {
    EncoderLayer: CheckpointedEncoderLayer,
    DecoderLayer: CheckpointedDecoderLayer,
}


def checkpoint_layers(model: nn.Module) -> None:
    """Let every layer checkpoint its activations, including the layers of a variant.

    A layer of another class gets a new subclass of its class.
    """
    for module in model.modules():
        if isinstance(module, (EncoderLayer, DecoderLayer)):
            module.__class__ = checkpointed_class(type(module))


def checkpointed_class(layer: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass of a layer's class that checkpoints its activations."""
    if layer in CHECKPOINTED:
        return CHECKPOINTED[layer]
    return type(f"Checkpointed{layer.__name__}", (CheckpointedLayer, layer), {})
