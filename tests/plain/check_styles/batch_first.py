# ruff: noqa: ANN001, ANN201, D102, D103, D107
"""A Transformer written by hand: batch first, one class, which makes its own masks.

A style of the faults in tests/plain/check_styles/faults: each replaces a few lines of this text.

Shape letters: B batch, S source, T target, L either, H heads, D d_model, K per-head width.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_check import Config

PAD, START, END = 0, 1, 2
CONFIG = Config(pad=PAD, start=START, end=END)


def attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = F.softmax(scores, dim=-1)
    return weights @ v


def positional_table(length, width):
    position = torch.arange(length)[:, None]
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * rates)
    table[:, 1::2] = torch.cos(position * rates)
    return table


class MultiHeadAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_k, d_v = config.widths()
        self.heads = config.heads
        self.w_q = nn.Linear(config.d_model, config.heads * d_k)
        self.w_k = nn.Linear(config.d_model, config.heads * d_k)
        self.w_v = nn.Linear(config.d_model, config.heads * d_v)
        self.w_o = nn.Linear(config.heads * d_v, config.d_model)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x, memory, mask):
        q = self.split(self.w_q(x))
        k = self.split(self.w_k(memory))
        v = self.split(self.w_v(memory))
        context = attention(q, k, v, mask)
        return self.w_o(context.transpose(1, 2).reshape(x.size(0), x.size(1), -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x):
        return self.w_2(F.relu(self.w_1(x)))


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.ffn = FeedForward(config)
        self.norm_1 = nn.LayerNorm(config.d_model, eps=1e-6)
        self.norm_2 = nn.LayerNorm(config.d_model, eps=1e-6)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask):
        x = self.norm_1(x + self.dropout(self.attention(x, x, mask)))
        return self.norm_2(x + self.dropout(self.ffn(x)))


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.cross = MultiHeadAttention(config)
        self.ffn = FeedForward(config)
        self.norm_1 = nn.LayerNorm(config.d_model, eps=1e-6)
        self.norm_2 = nn.LayerNorm(config.d_model, eps=1e-6)
        self.norm_3 = nn.LayerNorm(config.d_model, eps=1e-6)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, memory, target_mask, source_mask):
        x = self.norm_1(x + self.dropout(self.attention(x, x, target_mask)))
        x = self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))
        return self.norm_3(x + self.dropout(self.ffn(x)))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.register_buffer("table", positional_table(config.max_length + 2, config.d_model))
        self.encoder = nn.ModuleList([EncoderLayer(config) for _ in range(config.layers)])
        self.decoder = nn.ModuleList([DecoderLayer(config) for _ in range(config.layers)])
        self.output = nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)

    def embed(self, ids):
        x = self.embedding(ids) * math.sqrt(self.config.d_model)
        return self.dropout(x + self.table[: ids.size(1)])

    def embed_target(self, ids):
        x = self.embedding(ids) * math.sqrt(self.config.d_model)
        return self.dropout(x + self.table[: ids.size(1)])

    def source_mask(self, source):
        return (source != PAD)[:, None, None, :]

    def target_mask(self, target):
        length = target.size(1)
        causal = torch.tril(torch.ones(length, length, dtype=torch.bool))
        return (target != PAD)[:, None, None, :] & causal

    def encode(self, source, source_mask):
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, source_mask)
        return x

    def decode(self, target, memory, target_mask, source_mask):
        x = self.embed_target(target)
        for layer in self.decoder:
            x = layer(x, memory, target_mask, source_mask)
        return self.output(x)

    def forward(self, source, target):
        source_mask = self.source_mask(source)
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, self.target_mask(target), source_mask)


def build(config):
    return Transformer(config)


def logits(model, source, target):
    return model(source, target)


def embedding(model, ids):
    return model.embed(ids)


def target_embedding(model, ids):
    return model.embed_target(ids)


def encoder_layer(model, x):
    return model.encoder[0](x, None)


def decoder_layer(model, x, memory):
    causal = torch.tril(torch.ones(x.size(1), x.size(1), dtype=torch.bool))
    return model.decoder[0](x, memory, causal, None)


def loss(logits, target):
    log_probs = F.log_softmax(logits, dim=-1)
    smooth = CONFIG.label_smoothing / (logits.size(-1) - 1)
    shares = torch.full_like(log_probs, smooth)
    shares.scatter_(-1, target[..., None], 1 - CONFIG.label_smoothing)
    each = -(shares * log_probs).sum(-1)
    real = target != PAD
    return (each * real).sum() / real.sum()


def training_loss(model, source, target):
    start = torch.full_like(target[:, :1], START)
    previous = torch.cat([start, target[:, :-1]], dim=1)
    return loss(model(source, previous), target)


def learning_rate(step):
    return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)


@torch.no_grad()
def translate(model, source, beam=4, alpha=0.6, extra=50):
    """Translate all sentences together: the beams of a sentence are adjacent rows."""
    model.eval()
    batch = source.size(0)
    limit = source.size(1) + extra
    source = source.repeat_interleave(beam, dim=0)
    source_mask = model.source_mask(source)
    memory = model.encode(source, source_mask)
    rows = torch.full((batch * beam, 1), START)
    scores = torch.full((batch, beam), float("-inf"))
    scores[:, 0] = 0.0
    best = [(float("-inf"), [])] * batch
    for length in range(1, limit + 1):
        target_mask = model.target_mask(rows)
        output = model.decode(rows, memory, target_mask, source_mask)[:, -1]
        log_probs = F.log_softmax(output, dim=-1)
        log_probs[:, PAD] = float("-inf")
        types = log_probs.size(-1)
        totals = scores[:, :, None] + log_probs.view(batch, beam, types)
        top, places = totals.view(batch, -1).topk(2 * beam, dim=-1)
        penalty = ((5 + length) / 6) ** alpha
        kept_rows, kept_scores = [], []
        for n in range(batch):
            live = []
            for score, place in zip(top[n].tolist(), places[n].tolist()):
                row = [*rows[n * beam + place // types].tolist(), place % types]
                if place % types == END:
                    best[n] = max(best[n], (score / penalty, row[1:]))
                else:
                    live.append((score, row))
            live = live[:beam]
            kept_rows += [row for _, row in live]
            kept_scores.append([score for score, _ in live])
        rows = torch.tensor(kept_rows)
        scores = torch.tensor(kept_scores)
        bound = scores[:, 0] / ((5 + limit) / 6) ** alpha
        if all(best[n][0] > bound[n] for n in range(batch)):
            break
    rows = rows.view(batch, beam, -1)
    return [best[n][1] or rows[n, 0, 1:].tolist() for n in range(batch)]
