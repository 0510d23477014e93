"""Scaled token embeddings (section 3.4) and positions (section 3.5).

Shape letters: B batch, L length, D model width.

Positions count **real tokens**: where the source is padded on the left, a token's column is not its
position. The first token of a sentence is at position 0, however much padding precedes it.
"""

import math

import torch
from torch import Tensor, nn

SINUSOID_LAYOUTS = ["paper", "t2t", "fairseq"]


def sinusoids(length: int, dim: int, layout: str = "paper") -> Tensor:
    """The table of sinusoidal positions (section 3.5), in float64.

    ``paper``: PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1) = cos(same), interleaved.
    ``t2t``: tensor2tensor's, all sines, then all cosines, with wavelengths from 2π to 10000·2π in
    a geometric progression of D/2 - 1 intervals.
    ``fairseq``: as ``t2t``, but the first token is at position 2 (its padding index + 1).

    Args:
        length: number of positions
        dim: D, even
        layout: one of ``SINUSOID_LAYOUTS``

    Returns:
        [length, dim]; row n belongs to the n-th token, counted from 0.

    Raises:
        ValueError: the layout is unknown, or the width is odd.
    """
    if dim % 2:
        raise ValueError(f"sinusoids come in pairs of sine and cosine: {dim} is odd")
    if layout not in SINUSOID_LAYOUTS:
        raise ValueError(f"sinusoid layout {layout!r} is not one of {', '.join(SINUSOID_LAYOUTS)}")
    half = dim // 2
    intervals = half if layout == "paper" else max(half - 1, 1)
    exponents = torch.arange(half, dtype=torch.float64) / intervals
    first = 2 if layout == "fairseq" else 0
    positions = torch.arange(first, first + length, dtype=torch.float64)
    angles = torch.outer(positions, torch.exp(-math.log(10000.0) * exponents))  # [length, D/2]
    parts = [angles.sin(), angles.cos()]
    if layout == "paper":
        return torch.stack(parts, dim=-1).flatten(1)
    return torch.cat(parts, dim=-1)


def token_positions(tokens: Tensor, padding_idx: int) -> Tensor:
    """For each token, the number of real tokens before it; 0 at padding.

    Args:
        tokens: [B, L], padded on either side with ``padding_idx``

    Returns:
        [B, L], int64.
    """
    is_token = tokens.ne(padding_idx)
    return (is_token.cumsum(dim=1) - 1).clamp(min=0) * is_token


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions of any length; the table grows when a longer sentence arrives.

    The table is computed in float64 and kept outside the state dict: it is a formula, not a
    parameter.
    """

    def __init__(self, dim: int, layout: str = "paper") -> None:
        super().__init__()
        self.dim = dim
        self.layout = layout
        self.table = sinusoids(256, dim, layout)

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:
        """Args:
            positions: [B, L], int64
            length: more than any of ``positions``; their maximum would have to come from the device
            like: gives dtype and device

        Returns:
            [B, L, D].
        """
        stale = self.table.dtype != like.dtype or self.table.device != like.device
        if length > self.table.size(0) or stale:
            rows = max(256, 2 ** math.ceil(math.log2(max(length, 1))))
            self.table = sinusoids(rows, self.dim, self.layout).to(like)
        return self.table[positions]


class LearnedPositions(nn.Embedding):
    """Learned positions (Table 3 row E): a table of ``max_positions`` rows, no more.

    Raises:
        ValueError: in ``forward``, a sentence is longer than the table.
    """

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:  # type: ignore[override]
        """As :meth:`SinusoidalPositions.forward`."""
        # `length` may count padding: where it is too much, the maximum comes from the device
        longest = length if length <= self.num_embeddings else int(positions.max()) + 1
        if longest > self.num_embeddings:
            raise ValueError(
                f"a sentence of {longest} tokens is longer than the {self.num_embeddings} learned "
                "positions of this model; shorten it, or train with sinusoidal or more positions"
            )
        return super().forward(positions)


class InputEmbedding(nn.Module):
    """Token embeddings times √d_model, plus positions, then dropout (sections 3.4, 3.5, 5.4).

    Args:
        tokens: the embedding table, which may be shared with other parts of the model
        positions: sinusoidal or learned
        dropout: P_drop
    """

    def __init__(self, tokens: nn.Embedding, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, skip: int = 0) -> Tensor:
        """Args:
            tokens: [B, L]
            skip: in incremental decoding, how many leading tokens are embedded already

        Returns:
            [B, L - skip, D]
        """
        positions = token_positions(tokens, self.tokens.padding_idx)[:, skip:]
        return self.embed(tokens[:, skip:], positions=positions, length=tokens.size(1))

    def embed(self, tokens: Tensor, *, positions: Tensor, length: int) -> Tensor:
        """Args:
            tokens: [B, L]
            positions: as :func:`token_positions` gives them, broadcastable to [B, L]
            length: more than any of ``positions``

        Returns:
            [B, L, D]
        """
        embedded = self.tokens(tokens) * math.sqrt(self.tokens.embedding_dim)
        return self.dropout(embedded + self.positions(positions, length, like=embedded))
