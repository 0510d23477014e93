"""``--checkpoint-activations``: a layer's activations are computed again in the backward pass.

In training only a layer's input is kept; torch.utils.checkpoint runs the layer a second time, with
the same dropout, when its gradient is computed. Memory falls, time grows by about a forward pass.
"""

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from vaswani_transformer.layers import DecoderLayer, EncoderLayer, LayerContext


class CheckpointedLayer(nn.Module):
    """For a subclass of a layer: checkpointed in training, as it is otherwise."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the layer's."""
        # a second pass would append the attention weights twice
        need_weights = any(asks_for_weights(value) for value in (*args, *kwargs.values()))
        if not self.training or need_weights:
            return super().forward(*args, **kwargs)
        return checkpoint(super().forward, *args, use_reentrant=False, **kwargs)


def asks_for_weights(argument: Any) -> bool:
    """Return whether a layer's argument is a list for attention weights, or has one."""
    if isinstance(argument, LayerContext):
        return argument.need_weights
    return isinstance(argument, list)


class CheckpointedEncoderLayer(CheckpointedLayer, EncoderLayer):
    """The encoder's."""


class CheckpointedDecoderLayer(CheckpointedLayer, DecoderLayer):
    """The decoder's."""


CHECKPOINTED: dict[type[nn.Module], type[nn.Module]] = {
    EncoderLayer: CheckpointedEncoderLayer,
    DecoderLayer: CheckpointedDecoderLayer,
}


def checkpoint_layers(model: nn.Module) -> None:
    """Let every layer keep its input alone, a variant's too.

    A variant's layer of a class of its own gets a class made of it.
    """
    for module in model.modules():
        if isinstance(module, (EncoderLayer, DecoderLayer)):
            module.__class__ = checkpointed_class(type(module))


def checkpointed_class(layer: type[nn.Module]) -> type[nn.Module]:
    """Return the class of a layer with its activations checkpointed."""
    if layer in CHECKPOINTED:
        return CHECKPOINTED[layer]
    return type(f"Checkpointed{layer.__name__}", (CheckpointedLayer, layer), {})
