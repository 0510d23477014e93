# ruff: noqa: ANN001, D101, D102 (as it was handed in)
"""A Transformer as a student might hand it in: 60 lines that train, with deviations from the paper.

    vaswani check examples/check/homework.py

Read it first and say what the card will say. The answers are in docs/check.md.
"""

import math

import torch
from torch import Tensor, nn

from transformer_check import Config

CONFIG = Config(pad=0, start=1, end=2)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute scaled dot-product attention (equation 1)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(dim=-1) @ v


class MultiHead(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.heads
        self.q, self.k, self.v, self.out = (nn.Linear(c.d_model, c.d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        heads = attention(split(self.q(x)), split(self.k(memory)), split(self.v(memory)), mask)
        return self.out(heads.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c: Config, parts: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(MultiHead(c) for _ in range(parts - 1))
        ffn = nn.Linear(c.d_model, c.d_ff), nn.ReLU(), nn.Linear(c.d_ff, c.d_model)
        self.ffn = nn.Sequential(*ffn)
        self.norms = nn.ModuleList(nn.LayerNorm(c.d_model) for _ in range(parts))
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, *memories: tuple[Tensor | None, Tensor | None]) -> Tensor:
        for attend, norm, (memory, mask) in zip(
            self.attentions, self.norms, memories, strict=False
        ):
            x = norm(x + self.dropout(attend(x, x if memory is None else memory, mask)))
        return self.norms[-1](x + self.dropout(self.ffn(x)))


class Homework(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(c.vocabulary, c.d_model)
        angles = torch.arange(c.max_length)[:, None] / 10000 ** (
            2 * torch.arange(0, c.d_model, 2) / c.d_model
        )
        self.positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.encoder = nn.ModuleList(Layer(c, 2) for _ in range(c.layers))
        self.decoder = nn.ModuleList(Layer(c, 3) for _ in range(c.layers))
        self.out = nn.Linear(c.d_model, c.vocabulary)

    def embed(self, ids: Tensor) -> Tensor:
        return self.words(ids) + self.positions[: ids.size(1)]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        real = source.ne(CONFIG.pad)[:, None, None]
        earlier = torch.ones(target.size(1), target.size(1), dtype=torch.bool).tril()
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory, (None, real))
        for layer in self.decoder:
            x = layer(x, (None, earlier), (memory, None))
        return self.out(x)


# ---- functions for 'vaswani check' ---------------------------------------------------------------


def build(config):
    """Build the model of these classes."""
    return Homework(config)


def logits(model, source, target):
    """Call the model, which makes its masks."""
    return model(source, target)


def embedding(model, ids):
    """Return the embeddings of a source or a target."""
    return model.embed(ids)


target_embedding = embedding


def encoder_layer(model, x):
    """Call the encoder's first layer without a mask."""
    return model.encoder[0](x, (None, None))


def decoder_layer(model, x, memory):
    """Call the decoder's first layer with the causal mask."""
    earlier = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
    return model.decoder[0](x, (None, earlier), (memory, None))


def loss(logits, target):
    """Return PyTorch's cross-entropy, without padding."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)


def learning_rate(step):
    """Return the learning rate of equation 3."""
    return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)


def optimizer(model):
    """Return Adam with a fixed rate."""
    return torch.optim.Adam(model.parameters(), lr=1e-4)
