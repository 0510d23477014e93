"""Scaled token embeddings (section 3.4) and positions (section 3.5).

Shape letters: B batch, L length, D model width.

Positions count **real tokens**: where the source is padded on the left, a token's column is not its
position. The first token of a sentence is at position 0, however much padding precedes it.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from .vocabulary import PAD

SINUSOID_LAYOUTS = ["paper", "t2t", "fairseq"]
ROWS = 256
"""Positions in the table of each :class:`SinusoidalPositions`."""
HAS_IS_COMPILING = hasattr(torch.compiler, "is_compiling")
"""False in torch 2.2, whose torch.export cannot trace the model."""


def sinusoids(length: int, dim: int, layout: str = "paper", padding_idx: int = PAD) -> Tensor:
    """Return the table of sinusoidal positions (section 3.5), in float64.

    ``paper``: PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1) = cos(same), interleaved.
    ``t2t``: tensor2tensor's, all sines, then all cosines, with wavelengths from 2π to 10000·2π in
    a geometric progression of D/2 - 1 intervals.
    ``fairseq``: as ``t2t``, but the first token is at position ``padding_idx`` + 1.

    Args:
        length: number of positions
        dim: D, even
        layout: one of ``SINUSOID_LAYOUTS``
        padding_idx: the id of padding, for ``fairseq`` alone

    Returns:
        [length, dim]; row n belongs to the n-th token, counted from 0.

    Raises:
        ValueError: the layout is unknown, or the width is odd.
    """
    check_layout(dim, layout)
    half = dim // 2
    intervals = half if layout == "paper" else max(half - 1, 1)
    exponents = torch.arange(half, dtype=torch.float64) / intervals
    first = padding_idx + 1 if layout == "fairseq" else 0
    positions = torch.arange(first, first + length, dtype=torch.float64)
    angles = torch.outer(positions, torch.exp(-math.log(10000.0) * exponents))  # [length, D/2]
    parts = [angles.sin(), angles.cos()]
    if layout == "paper":
        return torch.stack(parts, dim=-1).flatten(1)
    return torch.cat(parts, dim=-1)


def check_layout(dim: int, layout: str) -> None:
    """Raise ValueError for an odd width, or an unknown layout of sinusoids."""
    if dim % 2:
        raise ValueError(
            f"the width {dim} is odd, but sinusoids come in pairs of sine and cosine: give an even "
            "width"
        )
    if layout not in SINUSOID_LAYOUTS:
        raise ValueError(f"sinusoid layout {layout!r} is not one of {', '.join(SINUSOID_LAYOUTS)}")


def token_positions(tokens: Tensor, padding_idx: int) -> Tensor:
    """Return the number of real tokens before each token; 0 at padding.

    Args:
        tokens: [B, L], padded on either side with ``padding_idx``

    Returns:
        [B, L], int64.
    """
    return places(tokens.ne(padding_idx))


def places(is_token: Tensor) -> Tensor:
    """Return the number of real tokens before each real token, int64 [B, L]; 0 at padding.

    ``is_token`` is bool [B, L], True at real tokens.
    """
    return (is_token.cumsum(dim=1) - 1).clamp(min=0) * is_token


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions of any length, from a table of the first ``ROWS``.

    The table is computed in float64 and kept outside the state dict: it is a formula, not a
    parameter. A longer sentence gets a table of its own.

    Args:
        dim: D, even
        layout: one of ``SINUSOID_LAYOUTS``
        padding_idx: the id of padding, for the layout ``fairseq``
    """

    table: Tensor

    def __init__(self, dim: int, layout: str = "paper", padding_idx: int = PAD) -> None:
        super().__init__()
        self.dim = dim
        self.layout = layout
        self.padding_idx = padding_idx
        check_layout(dim, layout)
        table = torch.empty(ROWS, dim)
        if not table.is_meta:  # on the device meta there are no values to compute
            table = self.first(ROWS).to(table.dtype)
        self.register_buffer("table", table, persistent=False)

    def first(self, length: int) -> Tensor:
        """Return the first ``length`` positions [length, D], in float64."""
        return sinusoids(length, self.dim, self.layout, self.padding_idx)

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:
        """Return the sinusoids of positions.

        Args:
            positions: [B, L], int64
            length: any number larger than every position. ``positions.max()`` is not computed: on
                a GPU the program would wait for it.
            like: tensor whose dtype and device the result has

        Returns:
            [B, L, D].
        """
        # a traced graph must not depend on the length of the traced sentences; and a model made on
        # the device "meta" may have received its parameters, but no table
        elsewhere = self.table.device != like.device
        if is_traced() or elsewhere or length > self.table.size(0):
            return self.first(length).to(like)[positions]
        return self.table[positions].to(like.dtype)

    def _apply(self, *args: Any, **kwargs: Any) -> "SinusoidalPositions":
        """Convert the module as ``to``, ``half``, ``double`` and ``to_empty`` do.

        Values of the new type are computed from the formula, not converted from the old type.
        """
        super()._apply(*args, **kwargs)
        self.table = self.first(ROWS).to(self.table)
        return self


def is_traced() -> bool:
    """Return whether torch is tracing a graph (jit.trace, export, compile)."""
    return torch.jit.is_tracing() or (HAS_IS_COMPILING and torch.compiler.is_compiling())


class LearnedPositions(nn.Embedding):
    """Learned positions (Table 3 row E): a table of ``max_positions`` rows, no more.

    Raises:
        ValueError: in ``forward``, a sentence is longer than the table.
    """

    def forward(self, positions: Tensor, length: int, like: Tensor) -> Tensor:  # type: ignore[override]
        """Return the learned positions; arguments as in :class:`SinusoidalPositions`."""
        # `length` may count padding: if it is too large, get the maximum from the device
        longest = length if length <= self.num_embeddings else int(positions.max()) + 1
        if longest > self.num_embeddings:
            raise ValueError(
                f"a sentence of {longest} tokens is longer than the {self.num_embeddings} learned "
                "positions of this model: shorten it, or train with sinusoidal or more positions"
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

    def forward(self, tokens: Tensor, skip: int = 0, is_padding: Tensor | None = None) -> Tensor:
        """Return the embeddings of a batch of tokens.

        Args:
            tokens: [B, L]
            skip: number of leading tokens that are already embedded, in incremental decoding
            is_padding: bool [B, L], True at padding; found from the ids, if not given

        Returns:
            [B, L - skip, D].
        """
        if is_padding is None:
            is_padding = tokens.eq(self.tokens.padding_idx)
        positions = places(~is_padding)[:, skip:]
        return self.embed(tokens[:, skip:], positions=positions, length=tokens.size(1))

    def embed(self, tokens: Tensor, *, positions: Tensor, length: int) -> Tensor:
        """Return the embeddings of tokens at given positions.

        Args:
            tokens: [B, L]
            positions: as from :func:`token_positions`, broadcastable to [B, L]
            length: any number larger than every position

        Returns:
            [B, L, D].
        """
        embedded = self.tokens(tokens) * math.sqrt(self.tokens.embedding_dim)
        return self.dropout(embedded + self.positions(positions, length, like=embedded))
