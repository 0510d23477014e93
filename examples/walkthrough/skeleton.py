# ruff: noqa: ANN001, ANN201, ANN204, D101, D102, D103, D107 (a file to fill in)
"""A Transformer of your own: the functions that paper.ipynb asks for, and classes that call them.

    cp examples/walkthrough/skeleton.py mine.py
    vaswani check mine.py

Replace the functions of the first part by yours. The classes below hold the parameters. The last
part has the functions that `vaswani check` calls.

Shape letters: B batch, S source, T target, L either, V vocabulary, D d_model, H heads, K d_k.
"""

import math

import torch
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=2)

# ---- Yours ---------------------------------------------------------------------------------------


def my_causal_mask(length):
    raise NotImplementedError("section 3")


def my_heads(query, key, value, heads, mask=None):
    raise NotImplementedError("section 4")


def my_positions(length, d_model):
    raise NotImplementedError("section 5")


def my_feed_forward(x, fc1, fc2):
    raise NotImplementedError("section 6")


def my_add_and_norm(x, output, norm):
    raise NotImplementedError("section 6")


def my_encoder_layer(x, mask, attend, feed_forward, add_and_norm_1, add_and_norm_2):
    raise NotImplementedError("section 7")


def my_decoder_layer(x, mask, memory, memory_mask, self_attend, cross_attend, feed_forward, norms):
    raise NotImplementedError("section 8")


def my_loss(log_probs, target, epsilon, pad):
    raise NotImplementedError("section 10")


def my_learning_rate(step, d_model, warmup_steps):
    raise NotImplementedError("section 11")


# ---- The modules ---------------------------------------------------------------------------------


class Embedding(nn.Module):
    """Token embeddings times √d_model, plus positions, then dropout (3.4, 3.5, 5.4)."""

    def __init__(self, matrix, dropout):
        super().__init__()
        self.matrix = matrix
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        x = self.matrix(ids)
        length, d_model = x.shape[-2:]
        return self.dropout(x * math.sqrt(d_model) + my_positions(length, d_model).to(x))


class Attention(nn.Module):
    """Multi-head attention (3.2.2)."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, memory, mask):
        query, key, value = self.query(x), self.key(memory), self.value(memory)
        return self.out(my_heads(query, key, value, self.heads, mask))


class FeedForward(nn.Module):
    """Equation 2."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return my_feed_forward(x, self.fc1, self.fc2)


class AddAndNorm(nn.Module):
    """The residual connection and the norm (3.1), with dropout on the sub-layer's output (5.4)."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(d_model, eps=1e-6)  # the paper does not say; its code has this

    def forward(self, x, output):
        return my_add_and_norm(x, self.dropout(output), self.norm)


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config.d_model, config.heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.norm_1 = AddAndNorm(config.d_model, config.dropout)
        self.norm_2 = AddAndNorm(config.d_model, config.dropout)

    def forward(self, x, mask):
        return my_encoder_layer(
            x, mask, self.attention, self.feed_forward, self.norm_1, self.norm_2
        )


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attention = Attention(config.d_model, config.heads)
        self.cross_attention = Attention(config.d_model, config.heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.norms = nn.ModuleList(AddAndNorm(config.d_model, config.dropout) for _ in range(3))

    def forward(self, x, mask, memory, memory_mask):
        attentions = self.self_attention, self.cross_attention
        return my_decoder_layer(
            x, mask, memory, memory_mask, *attentions, self.feed_forward, self.norms
        )


class MyTransformer(nn.Module):
    """One matrix for source, target and output (3.4)."""

    def __init__(self, config):
        super().__init__()
        self.matrix = nn.Embedding(config.vocabulary, config.d_model)
        self.source = Embedding(self.matrix, config.dropout)
        self.target = Embedding(self.matrix, config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.pad = config.pad
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.matrix.weight, std=config.d_model**-0.5)

    def forward(self, source, target):
        """Return logits [B, T, V] of source ids [B, S] and target ids [B, T], shifted right."""
        memory_mask = source.ne(self.pad)[:, None, None, :]  # [B, 1, 1, S]
        memory = self.source(source)
        for layer in self.encoder:
            memory = layer(memory, memory_mask)
        x = self.target(target)
        mask = my_causal_mask(target.size(1)).to(source.device)
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return x @ self.matrix.weight.T


# ---- Functions for the check ---------------------------------------------------------------------


def build(config):
    return MyTransformer(config)


def logits(model, source, target):
    return model(source, target)


def embedding(model, ids):
    return model.source(ids)


def target_embedding(model, ids):
    return model.target(ids)


def encoder_layer(model, x):
    return model.encoder[0](x, None)


def decoder_layer(model, x, memory):
    return model.decoder[0](x, my_causal_mask(x.size(1)), memory, None)


def attention(q, k, v, mask):
    def side_by_side(tensor):  # [B, H, L, K] → [B, L, H·K]
        return tensor.transpose(1, 2).flatten(2)

    heads = q.size(1)
    outputs = my_heads(side_by_side(q), side_by_side(k), side_by_side(v), heads, mask)
    return outputs.unflatten(-1, (heads, -1)).transpose(1, 2)


def loss(logits, target):
    return my_loss(logits.log_softmax(dim=-1), target, CONFIG.label_smoothing, CONFIG.pad)


def training_loss(model, source, target):
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = CONFIG.start
    return loss(logits(model, source, shifted), target)


def learning_rate(step):
    return my_learning_rate(step, d_model=512, warmup_steps=4000)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
