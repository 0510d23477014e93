"""The encoder (section 3.1): embeddings, then a stack of N layers.

Shape letters: B batch, S source, D model width, H heads. Everything is batch-first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from .attention import Mask, padding_mask
from .embedding import InputEmbedding
from .layers import EncoderLayer


class Memory(NamedTuple):
    """The encoder's output, to which the decoder attends."""

    states: Tensor
    """[B, S, D]"""
    is_padding: Tensor | None = None
    """bool [B, S], True at padding; None if nothing is padded"""

    @property
    def mask(self) -> Mask:
        """The mask of positions to which the decoder may attend."""
        return padding_mask(self.is_padding)

    def select(self, sentences: Tensor) -> "Memory":
        """Return the memory of the sentences with these numbers, int64 [B']."""
        return Memory(*(None if t is None else t.index_select(0, sentences) for t in self))


class Encoder(nn.Module):
    """Embeddings, then a stack of N layers.

    Args:
        embedding: of source tokens and positions
        layers: N of them
        final_norm: ends the stack; none in the paper, where each layer ends with a norm
    """

    def __init__(
        self,
        embedding: InputEmbedding,
        layers: Iterable[EncoderLayer],
        final_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    def forward(self, tokens: Tensor, is_padding: Tensor | None = None) -> Memory:
        """Return the memory, to which the decoder attends.

        Args:
            tokens: [B, S], padded on either side; a row of padding alone gives NaN
            is_padding: bool [B, S], True at padding; found from the ids, if not given
        """
        return self.encode(tokens, is_padding=is_padding)[0]

    def encode(
        self, tokens: Tensor, need_weights: bool = False, is_padding: Tensor | None = None
    ) -> tuple[Memory, list[Tensor]]:
        """Return the memory and, if needed, each layer's attention weights [B, H, S, S].

        Arguments as in :meth:`forward`.
        """
        x = self.embedding(tokens, is_padding=is_padding)  # [B, S, D]
        if is_padding is None:
            is_padding = self.find_padding(tokens)
        mask = padding_mask(is_padding)
        weights: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, mask, weights if need_weights else None)
        return Memory(self.final_norm(x), is_padding), weights

    def find_padding(self, tokens: Tensor) -> Tensor | None:
        """Return which tokens are padding, bool [B, S].

        A subclass may return None if nothing is padded.
        """
        return tokens.eq(self.embedding.tokens.padding_idx)
