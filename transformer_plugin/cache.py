"""What the decoder keeps between the steps of beam search, so that no token is computed twice.

Shape letters: L layers, R rows (hypotheses), B sentences, T steps, H heads, S source,
W = H·(K + V), the keys and values of all heads of one position.
"""

from typing import Dict, List, Optional

import torch
from torch import Tensor

FIRST_ROOM = 32
"""Steps for which there is room at first; the room doubles when they are used up."""


class DecoderCache:
    """Every layer's keys and values, per hypothesis (self-attention) or sentence (cross-attention).

    Self-attention's are in one tensor [room, L, R, W]. Its first dimension is time, so that the
    filled part is one block of memory, and reordering the hypotheses of all layers takes one copy
    into a second tensor of the same kind.

    Nothing in the cache has a gradient.

    Args:
        layers: L
    """

    def __init__(self, layers: int) -> None:
        self.length = 0  # steps kept
        self.cross: List[Dict[str, Tensor]] = [{} for _ in range(layers)]  # see LayerCache
        self.steps: Optional[Tensor] = None  # [room, L, R, W]
        self.spare: Optional[Tensor] = None  # memory for the next reordering, flat

    def extend(self, layer: int, fresh: Tensor) -> Tensor:
        """Add the newest positions of one layer; call :meth:`advance` after the last layer.

        Args:
            layer: 0 to L - 1
            fresh: [R, T, W], usually T = 1

        Returns:
            [R, length + T, W], a view of all positions so far.
        """
        end = self.length + fresh.size(1)
        if self.steps is None or end > self.steps.size(0):
            self.make_room(end, fresh)
        assert self.steps is not None
        self.steps[self.length : end, layer] = fresh.detach().transpose(0, 1)
        return self.steps[:end, layer].transpose(0, 1)

    def make_room(self, end: int, like: Tensor) -> None:
        """Allocate a tensor for at least ``end`` positions, and copy what is cached into it."""
        shape = (max(FIRST_ROOM, 2 * end), len(self.cross), like.size(0), like.size(2))
        steps = like.new_empty(shape)
        if self.steps is not None:
            steps[: self.length] = self.steps[: self.length]
        self.steps, self.spare = steps, None

    def advance(self, positions: int) -> None:
        """Record that every layer has added this many positions."""
        self.length += positions

    def reorder(self, order: Tensor) -> None:
        """Row i becomes what row ``order[i]`` was, for self-attention; ``order`` is [R']."""
        if self.steps is None:
            return
        old = self.steps
        room, layers, _, width = old.shape
        size = room * layers * len(order) * width
        if self.spare is None or self.spare.numel() < size:
            self.spare = old.new_empty(size)
        new = self.spare[:size].view(room, layers, len(order), width)
        filled = old[: self.length].flatten(0, 1)  # [length·L, R, W]
        torch.index_select(filled, 1, order, out=new[: self.length].flatten(0, 1))
        self.steps, self.spare = new, old.view(-1)

    def select_sentences(self, order: Tensor) -> None:
        """Sentence i becomes what sentence ``order[i]`` was, for cross-attention."""
        for layer in self.cross:
            for name, tensor in layer.items():
                layer[name] = tensor.index_select(0, order)

    def layer(self, index: int) -> "LayerCache":
        """One layer's part, as the layer sees it."""
        return LayerCache(self, index)


class LayerCache:
    """One layer's part of a :class:`DecoderCache`.

    Attributes:
        cross: ``{"key": [B, H, S, K], "value": [B, H, S, V]}``, empty before the first step
    """

    def __init__(self, owner: DecoderCache, index: int) -> None:
        self.owner = owner
        self.index = index
        self.cross = owner.cross[index]

    def extend(self, fresh: Tensor) -> Tensor:
        """[R, T, W], keys and values of self-attention → those of all positions so far."""
        return self.owner.extend(self.index, fresh)
