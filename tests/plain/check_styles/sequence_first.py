# ruff: noqa: ANN001, ANN201, D102, D103, D107
"""A Transformer with the length first, written with einsum; decoding keeps keys and values.

A style of the faults in tests/plain/check_styles/faults: each replaces a few lines of this text.

Shape letters of einsum: i queries, j keys, b batch, n heads, d per-head width, m d_model.
"""

import torch
from torch import nn
from torch.nn import functional as F

from transformer_check import Config

PAD, START, END = 1, 4, 2
CONFIG = Config(pad=PAD, start=START, end=END)


def sinusoids(positions, width):
    """Return the sinusoids of positions [L]: [L, 1, m]."""
    exponent = torch.arange(0, width, 2.0) / width
    angle = positions[:, None] / torch.pow(torch.tensor(10000.0), exponent)
    table = torch.zeros(len(positions), width)
    table[:, ::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table[:, None]


class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, unbiased=False, keepdim=True)
        return self.gain * (x - mean) / torch.sqrt(variance + self.eps) + self.bias


class Heads(nn.Module):
    """Attention of queries x [i, b, m] over memory [j, b, m]."""

    def __init__(self, config):
        super().__init__()
        d_k, d_v = config.widths()
        self.scale = d_k**-0.5
        self.query = nn.Parameter(torch.empty(config.d_model, config.heads, d_k))
        self.key = nn.Parameter(torch.empty(config.d_model, config.heads, d_k))
        self.value = nn.Parameter(torch.empty(config.d_model, config.heads, d_v))
        self.out = nn.Parameter(torch.empty(config.heads, d_v, config.d_model))
        for weight in self.parameters():
            nn.init.normal_(weight, std=config.d_model**-0.5)
        self.query_bias = nn.Parameter(torch.zeros(config.heads, d_k))
        self.key_bias = nn.Parameter(torch.zeros(config.heads, d_k))
        self.value_bias = nn.Parameter(torch.zeros(config.heads, d_v))
        self.out_bias = nn.Parameter(torch.zeros(config.d_model))

    def keys_and_values(self, memory):
        k = torch.einsum("jbm,mnd->jbnd", memory, self.key) + self.key_bias
        v = torch.einsum("jbm,mnd->jbnd", memory, self.value) + self.value_bias
        return k, v

    def forward(self, x, memory, hidden, cache=None):
        """Attend; ``hidden`` is True where a key is not seen: [i or 1, j, b or 1]."""
        q = torch.einsum("ibm,mnd->ibnd", x, self.query) + self.query_bias
        k, v = self.keys_and_values(memory) if memory is not None else (None, None)
        if cache is not None and k is not None:
            k = torch.cat([cache[0], k]) if cache else k
            v = torch.cat([cache[1], v]) if cache else v
            cache[:] = [k, v]
        if k is None:
            k, v = cache
        score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale
        if hidden is not None:
            score = score.masked_fill(hidden[..., None], float("-inf"))
        weight = F.softmax(score, dim=1)
        context = torch.einsum("ijbn,jbnd->ibnd", weight, v)
        return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias


class FFN(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x):
        hidden = self.inner(x)
        hidden = hidden.clamp(min=0)
        return self.outer(hidden)


class Block(nn.Module):
    """A layer of the encoder, or with cross-attention of the decoder."""

    def __init__(self, config, has_cross):
        super().__init__()
        self.heads = Heads(config)
        self.heads_norm = Norm(config.d_model)
        if has_cross:
            self.cross = Heads(config)
            self.cross_norm = Norm(config.d_model)
        self.ffn = FFN(config)
        self.ffn_norm = Norm(config.d_model)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x, hidden, memory=None, memory_hidden=None, cache=None, cross_cache=None):
        y = self.heads(x, x, hidden, cache)
        x = self.heads_norm(x + self.drop(y))
        if memory is not None or cross_cache:
            y = self.cross(x, memory, memory_hidden, cross_cache)
            x = self.cross_norm(x + self.drop(y))
        y = self.ffn(x)
        x = self.ffn_norm(x + self.drop(y))
        return x


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.d_model
        self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))
        nn.init.normal_(self.words, std=config.d_model**-0.5)
        self.encoder = nn.ModuleList(Block(config, False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Block(config, True) for _ in range(config.layers))
        self.drop = nn.Dropout(config.dropout)

    def embed(self, ids, first=0):
        """Embed ids [L, b] → [L, b, m]."""
        x = F.embedding(ids, self.words) * self.width**0.5
        positions = torch.arange(first, first + len(ids), dtype=torch.float)
        return self.drop(x + sinusoids(positions, self.width))

    def embed_target(self, ids, first=0):
        x = F.embedding(ids, self.words) * self.width**0.5
        positions = torch.arange(first, first + len(ids), dtype=torch.float)
        return self.drop(x + sinusoids(positions, self.width))

    def encode(self, source):
        hidden = (source == PAD)[None]
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, hidden)
        return x, hidden

    def forward(self, source, target):
        memory, source_hidden = self.encode(source)
        later = torch.ones(len(target), len(target)).triu(1).bool()[:, :, None]
        hidden = later | (target == PAD)[None]
        x = self.embed_target(target)
        for layer in self.decoder:
            x = layer(x, hidden, memory, source_hidden)
        return x @ self.words.T

    def step(self, tokens, position, caches, cross_caches, source_hidden):
        """Return logits [b, V] of the next tokens; caches grow by one position."""
        x = self.embed_target(tokens[None], position)
        for layer, cache, cross in zip(self.decoder, caches, cross_caches):
            x = layer(x, None, None, source_hidden, cache, cross)
        return (x @ self.words.T)[0]


def build(config):
    return Model(config)


def logits(model, source, target):
    return model(source.T, target.T).transpose(0, 1)


def embedding(model, ids):
    return model.embed(ids.T).transpose(0, 1)


def target_embedding(model, ids):
    return model.embed_target(ids.T).transpose(0, 1)


def encoder_layer(model, x):
    return model.encoder[0](x.transpose(0, 1), None).transpose(0, 1)


def decoder_layer(model, x, memory):
    later = torch.ones(x.size(1), x.size(1)).triu(1).bool()[:, :, None]
    x, memory = x.transpose(0, 1), memory.transpose(0, 1)
    return model.decoder[0](x, later, memory, None).transpose(0, 1)


def loss(logits, target):
    log_p = torch.log_softmax(logits.flatten(0, 1), -1)
    words = target.flatten()
    truth = F.one_hot(words, log_p.size(-1)).float()
    eps = CONFIG.label_smoothing
    truth = truth * (1 - eps) + (1 - truth) * eps / (log_p.size(-1) - 1)
    per_word = -(truth * log_p).sum(-1)
    per_word = per_word.masked_fill(words == PAD, 0.0)
    return per_word.sum() / (words != PAD).sum()


def training_loss(model, source, target):
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = START
    return loss(logits(model, source, shifted), target)


def learning_rate(step):
    rate = step * 4000**-1.5 if step < 4000 else step**-0.5
    return rate / 512**0.5


def optimizer(model):
    parameters = list(model.parameters())
    return torch.optim.Adam(parameters, lr=1e-7, betas=(0.9, 0.98), eps=1e-9)


@torch.no_grad()
def translate(model, source, width=4, alpha=0.6):
    model.eval()
    return [beam_search(model, row[row != PAD], width, alpha, 50) for row in source]


def beam_search(model, sentence, width, alpha, extra):
    """Search step by step with caches, for one sentence [S]."""
    longest = len(sentence) + extra
    memory, source_hidden = model.encode(sentence[:, None])
    caches = [[] for _ in model.decoder]
    cross_caches = [list(layer.cross.keys_and_values(memory)) for layer in model.decoder]
    histories = torch.full((1, 1), START)
    scores = torch.zeros(1)
    done = []
    for position in range(longest):
        output = model.step(histories[:, -1], position, caches, cross_caches, source_hidden)
        log_p = output.log_softmax(-1)
        log_p[:, PAD] = float("-inf")
        totals = scores[:, None] + log_p
        top, places = totals.flatten().topk(2 * width)
        parents = torch.div(places, log_p.size(1), rounding_mode="floor")
        tokens = places % log_p.size(1)
        grown = torch.cat([histories[parents], tokens[:, None]], dim=1)
        is_end = tokens == END
        for row, score in zip(grown[is_end], top[is_end]):
            done.append((float(score) / ((5 + position + 1) / 6) ** alpha, row[1:].tolist()))
        alive = (~is_end).nonzero().flatten()[:width]
        histories = grown[alive]
        scores = top[alive]
        chosen = parents[alive]
        for cache in caches:
            cache[:] = [part[:, chosen] for part in cache]
        for cross in cross_caches:
            cross[:] = [part[:, :1].expand(-1, len(alive), -1, -1) for part in cross]
        if done and max(done)[0] > float(scores[0]) / ((5 + longest) / 6) ** alpha:
            break
    return max(done)[1] if done else histories[0, 1:].tolist()
