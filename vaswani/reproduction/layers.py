"""The kinds of layers that Table 1 compares (section 4): each in torch, with the paper's formulas.

Letters: n words, d width, k words that a convolution sees, r words that restricted attention sees.
table1.py counts and times them. Torch is imported when a layer is made.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

#: k of the convolutions, and r of restricted attention
K, R = 3, 16

Function = Callable[..., Any]
"""A layer: [1, n, d] → [1, n, d]; in a stack it is told its ``level``, from 0."""


class Formula(NamedTuple):
    """A row of the table as the paper prints it, and the first entry as a number of n and d.

    An entry is an order, without factors: attention multiplies twice as often, once for the scores
    and once for the sum of the values.
    """

    complexity: str
    sequential: str
    path: str
    multiplications: Callable[[int, int], int]


@dataclass(frozen=True)
class Layer:
    """A kind of layer.

    Attributes:
        name: as in the table
        make: d → the function; ``countable`` asks for a form whose multiplications torch counts
        formula: the paper's
        inside: whether the path between two words runs through one layer, from word to word
    """

    name: str
    make: Callable[[int, bool], Function]
    formula: Formula
    inside: bool = False


# ---- the layers ------------------------------------------------------------------------------


def self_attention(d: int, countable: bool) -> Function:
    """Return the model's self-attention with one head: more heads need no more multiplications."""
    from vaswani_transformer.attention import SelfAttention
    from vaswani_transformer.fast import use_fast_kernels

    layer = SelfAttention(d, 1)
    if not countable:
        use_fast_kernels(layer)
    return lambda x, level=0: layer(x)


def restricted_attention(d: int, countable: bool) -> Function:
    """Return self-attention to the r nearest words (section 4), without computing the others."""
    import torch
    import torch.nn.functional as F

    from vaswani_transformer.attention import SelfAttention
    from vaswani_transformer.fast import use_fast_kernels

    layer = SelfAttention(d, 1)
    if not countable:
        use_fast_kernels(layer)

    def function(x: Any, level: int = 0) -> Any:
        query, key, value = layer.qkv_proj(x)[0].chunk(3, dim=-1)
        before = (R - 1) // 2
        places = torch.arange(len(query))[:, None] + torch.arange(R) - before  # [n, r]
        outside = (places < 0) | (places >= len(query))
        near = places.clamp(0, len(query) - 1)
        scores = (key[near] @ query[:, :, None])[:, :, 0] / d**0.5  # [n, r]
        weights = F.softmax(scores.masked_fill(outside, float("-inf")), dim=-1)
        return layer.out_proj((weights[:, None] @ value[near])[None, :, 0])

    return function


def recurrent(kind: str) -> Callable[[int, bool], Function]:
    """Return torch's layer of this kind; for counting, its cell applied word by word."""

    def make(d: int, countable: bool) -> Function:
        import torch

        if not countable:
            layer = getattr(torch.nn, kind)(d, d, batch_first=True)
            return lambda x, level=0: layer(x)[0]
        cell = getattr(torch.nn, f"{kind}Cell")(d, d)

        def function(x: Any, level: int = 0) -> Any:
            state = None
            outputs = []
            for word in x.unbind(1):
                state = cell(word, state)
                outputs.append(state[0] if kind == "LSTM" else state)
            return torch.stack(outputs, dim=1)

        return function

    return make


def convolution(dilated: bool) -> Callable[[int, bool], Function]:
    """Return a convolution over k words.

    ``dilated``: in a stack they are 1, k, k² … words apart, as far as there are words, then again.
    """

    def make(d: int, countable: bool) -> Function:
        import torch

        layer = torch.nn.Conv1d(d, d, K)

        def function(x: Any, level: int = 0) -> Any:
            apart = K ** (level % math.ceil(math.log(x.size(1), K))) if dilated else 1
            reach = apart * (K // 2)
            padded = torch.nn.functional.pad(x.transpose(1, 2), (reach, reach))
            return torch.nn.functional.conv1d(
                padded, layer.weight, layer.bias, dilation=apart
            ).transpose(1, 2)

        return function

    return make


ATTENTION = Formula("O(n² · d)", "O(1)", "O(1)", lambda n, d: n * n * d)
RECURRENT = Formula("O(n · d²)", "O(n)", "O(n)", lambda n, d: n * d * d)
CONVOLUTION = Formula("O(k · n · d²)", "O(1)", "O(logₖ(n))", lambda n, d: K * n * d * d)
# the table has one row for convolutions, the dilated; the others are in the text of section 4
CONTIGUOUS = CONVOLUTION._replace(path="O(n/k), section 4")
RESTRICTED = Formula("O(r · n · d)", "O(1)", "O(n/r)", lambda n, d: R * n * d)


LAYERS = (
    Layer("self-attention", self_attention, ATTENTION),
    Layer("RNN", recurrent("RNN"), RECURRENT, inside=True),
    Layer("GRU", recurrent("GRU"), RECURRENT, inside=True),
    Layer("LSTM", recurrent("LSTM"), RECURRENT, inside=True),
    Layer("convolution", convolution(False), CONTIGUOUS),
    Layer("convolution, dilated", convolution(True), CONVOLUTION),
    Layer("self-attention (restricted)", restricted_attention, RESTRICTED),
)
