"""The encoder (section 3.1): embeddings, then a stack of N layers.

Shape letters: B batch, S source, D model width, H heads. Everything is batch-first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from .attention import Mask
from .embedding import InputEmbedding
from .layers import EncoderLayer


class Memory(NamedTuple):
    """The encoder's output, to which the decoder attends."""

    states: Tensor
    """[B, S, D]"""
    is_padding: Tensor | None = None
    """bool [B, S], True at padding; None where nothing is padded"""

    @property
    def mask(self) -> Mask:
        """Bool [B, 1, 1, S]: every query may look at every key that is not padding."""
        return None if self.is_padding is None else ~self.is_padding[:, None, None, :]

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of these sentences, int64 [B']."""
        return Memory(*(None if t is None else t.index_select(0, sentences) for t in self))


class Encoder(nn.Module):
    """A stack of N layers without a final norm: each layer already ends with one.

    Args:
        embedding: of source tokens and positions
        layers: N of them
    """

    def __init__(self, embedding: InputEmbedding, layers: Iterable[EncoderLayer]) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)

    def forward(self, tokens: Tensor) -> Memory:
        """[B, S], padded on either side → what the decoder attends to."""
        return self.encode(tokens)[0]

    def encode(
        self, tokens: Tensor, need_weights: bool = False
    ) -> tuple[Memory, list[Tensor | None]]:
        """As :meth:`forward`, with each layer's attention weights [B, H, S, S], or None."""
        x = self.embedding(tokens)  # [B, S, D]
        is_padding = self.find_padding(tokens)
        mask = Memory(x, is_padding).mask
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, mask, need_weights)
            weights.append(layer_weights)
        return Memory(x, is_padding), weights

    def find_padding(self, tokens: Tensor) -> Tensor | None:
        """Which tokens are padding, bool [B, S]; a subclass may answer None where none is."""
        return tokens.eq(self.embedding.tokens.padding_idx)
