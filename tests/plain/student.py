"""A Transformer as a student writes it beside the paper, with faults that can be switched on.

``adapter()`` is the clean one; ``adapter("queries from the layer's input")`` has that fault. Each
name in ``has(...)`` below is a fault. It shares no code with the project.

Shape letters: B batch, S source, T target, L either, H heads, V vocabulary, D d_model.
"""

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_check import Config

CONFIG = Config(pad=0, start=1, end=2)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute equation 1; the mask is True where a query may attend."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


def attention_over_queries(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute attention with the softmax over the queries."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-2) @ v


def attention_masked_late(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute attention with the mask after the softmax."""
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).softmax(-1)
    return (weights if mask is None else weights * mask) @ v


class Faulty(nn.Module):
    """A part that knows the faults that were switched on."""

    def __init__(self, faults: frozenset[str]) -> None:
        super().__init__()
        self.faults = faults

    def has(self, fault: str) -> bool:
        """Return whether this fault is on."""
        return fault in self.faults


class MultiHead(Faulty):
    """3.2.2."""

    def __init__(self, c: Config, faults: frozenset[str]) -> None:
        super().__init__(faults)
        self.heads = c.heads
        d_k, d_v = c.widths()
        self.q = nn.Linear(c.d_model, c.heads * d_k)
        self.k = nn.Linear(c.d_model, c.heads * d_k)
        self.v = nn.Linear(c.d_model, c.heads * d_v)
        self.out = nn.Linear(c.heads * d_v, c.d_model)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(keys)), self.split(self.v(values))
        if self.has("scale of √d_model"):
            q = q * math.sqrt(q.size(-1) / x.size(-1))
        if self.has("scores not divided"):
            q = q * math.sqrt(q.size(-1))
        if self.has("scores divided twice"):
            k = k / math.sqrt(k.size(-1))
        if self.has("heads alike"):
            q, k = q[:, :1].expand_as(q), k[:, :1].expand_as(k)
        if self.has("decoder: heads alike") and x.size(1) < keys.size(1):
            q, k = q[:, :1].expand_as(q), k[:, :1].expand_as(k)
        if self.has("one head sees the future") and mask is not None and mask.size(-2) > 1:
            mask = mask.expand(-1, self.heads, -1, -1).clone()
            mask[:, -1] = True
        function = attention_over_queries if self.has("softmax over queries") else attention
        if self.has("mask behind the softmax"):
            function = attention_masked_late
        heads = function(q, k, v, mask)
        if self.has("heads joined wrongly"):
            return self.out(heads.reshape(*x.shape[:2], -1))
        return self.out(heads.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        if self.has("heads split wrongly"):
            return x.view(x.size(0), self.heads, x.size(1), -1)
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """3.3."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.first = nn.Linear(c.d_model, c.d_ff)
        self.second = nn.Linear(c.d_ff, c.d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


class AddAndNorm(Faulty):
    """LayerNorm(x + Dropout(y)): 3.1, 5.4."""

    def __init__(self, c: Config, faults: frozenset[str]) -> None:
        super().__init__(faults)
        self.norm = nn.LayerNorm(c.d_model, eps=1e-6)
        self.dropout = nn.Dropout(0.1 if self.has("dropout of a fixed rate") else c.dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.norm(x + self.dropout(y))


class EncoderLayer(Faulty):
    """3.1."""

    def __init__(self, c: Config, faults: frozenset[str]) -> None:
        super().__init__(faults)
        self.attention = MultiHead(c, faults)
        self.r1 = AddAndNorm(c, faults)
        self.ffn = FeedForward(c)
        self.r2 = AddAndNorm(c, faults)

    def forward(self, x0: Tensor, mask: Tensor | None) -> Tensor:
        if self.has("encoder: feed-forward first"):
            x0 = self.r2(x0, self.ffn(x0))
            return self.r1(x0, self.attention(x0, x0, x0, mask))
        q = k = v = x0
        if self.has("encoder: queries normed, keys not"):
            q = self.r1.norm(x0)
        if self.has("encoder: values normed, keys not"):
            v = F.layer_norm(x0, x0.shape[-1:])
        if self.has("encoder: keys normed, queries not"):
            k = v = F.layer_norm(x0, x0.shape[-1:])
        y = self.attention(q, k, v, mask)
        if self.has("encoder: residual of attention missing"):
            x = self.r1.norm(self.r1.dropout(y))
        else:
            twice = self.has("encoder: residual of attention twice")
            x = self.r1(x0 + x0 if twice else x0, y)
        y = self.ffn(x0 if self.has("encoder: feed-forward reads the layer's input") else x)
        if self.has("encoder: residual of feed-forward missing"):
            return self.r2.norm(self.r2.dropout(y))
        if self.has("encoder: residual of feed-forward from the layer's input"):
            return self.r2(x0, y)
        return self.r2(x, y)


class DecoderLayer(Faulty):
    """3.1."""

    def __init__(self, c: Config, faults: frozenset[str]) -> None:
        super().__init__(faults)
        self.attention = MultiHead(c, faults)
        self.r1 = AddAndNorm(c, faults)
        self.cross = MultiHead(c, faults)
        self.r2 = AddAndNorm(c, faults)
        self.ffn = FeedForward(c)
        self.r3 = AddAndNorm(c, faults)
        self.values: Tensor | None = None
        if self.has("one norm for all three sums"):
            self.r2 = self.r3 = self.r1
        if self.has("decoder: ε of torch"):
            for each in (self.r1, self.r2, self.r3):
                each.norm.eps = 1e-5

    def forward(self, x0: Tensor, memory: Tensor, mask: Tensor | None, pads: Any) -> Tensor:
        if self.has("cross-attention before self-attention"):
            x1 = self.r2(x0, self.cross(x0, memory, memory, pads))
            x2 = self.r1(x1, self.attention(x1, x1, x1, mask))
            return self.r3(x2, self.ffn(x2))
        if self.has("norms of the decoder before the sub-layers"):
            x1 = self.r1.norm(x0)
            x1 = x0 + self.r1.dropout(self.attention(x1, x1, x1, mask))
            y = self.cross(self.r2.norm(x1), memory, memory, pads)
            x2 = x1 + self.r2.dropout(y)
            return x2 + self.r3.dropout(self.ffn(self.r3.norm(x2)))
        x1 = self.self_attention(x0, mask)
        x2 = self.cross_attention(x0, x1, memory, pads)
        y = self.ffn(self.input_of_ffn(x0, x1, x2))
        if self.has("decoder: GELU"):
            y = self.ffn.second(F.gelu(self.ffn.first(x2)))
        if self.has("residual of feed-forward missing"):
            return self.r3.norm(self.r3.dropout(y))
        if self.has("residual of feed-forward from the layer's input"):
            return self.r3(x0, y)
        if self.has("residual of feed-forward from before cross-attention"):
            return self.r3(x1, y)
        if self.has("residual of feed-forward twice"):
            return self.r3(x2 + x2, y)
        if self.has("last norm of each decoder layer left out"):
            return x2 + self.r3.dropout(y)
        return self.r3(x2, y)

    def self_attention(self, x0: Tensor, mask: Tensor | None) -> Tensor:
        keys = x0
        if self.has("decoder: keys normed, queries not"):
            keys = F.layer_norm(x0, x0.shape[-1:])
        y = self.attention(x0, keys, keys, mask)
        if self.has("residual of self-attention missing"):
            return self.r1.norm(self.r1.dropout(y))
        if self.has("residual of self-attention twice"):
            return self.r1(x0 + x0, y)
        return self.r1(x0, y)

    def cross_attention(self, x0: Tensor, x1: Tensor, memory: Tensor, pads: Any) -> Tensor:
        queries = x0 if self.has("queries from the layer's input") else x1
        keys = (
            F.layer_norm(memory, memory.shape[-1:]) if self.has("memory normed again") else memory
        )
        values = keys
        if self.has("memory normed again for values"):
            values = F.layer_norm(memory, memory.shape[-1:])
        if self.has("causal mask in cross-attention"):
            pads = torch.ones(x0.size(1), memory.size(1), dtype=torch.bool).tril(2)[None, None]
        y = self.cross(queries, keys, values if self.values is None else self.values, pads)
        if self.has("residual of cross-attention missing"):
            return self.r2.norm(self.r2.dropout(y))
        if self.has("residual of cross-attention from the layer's input"):
            return self.r2(x0, y)
        if self.has("layer's input in each sum"):
            return self.r2(x1 + x0, y)
        if self.has("dropout of cross-attention missing"):
            return self.r2.norm(x1 + y)
        if self.has("residual of cross-attention twice"):
            return self.r2(x1 + x1, y)
        if self.has("residual of cross-attention halved"):
            return self.r2(0.5 * x1, y)
        if self.has("norm of cross-attention left out"):
            return x1 + self.r2.dropout(y)
        return self.r2(x1, y)

    def input_of_ffn(self, x0: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
        if self.has("feed-forward reads the layer's input"):
            return x0
        if self.has("feed-forward reads what self-attention gives"):
            return x1
        return x2


class Student(Faulty):
    """Section 3."""

    def __init__(self, c: Config, faults: frozenset[str]) -> None:
        super().__init__(faults)
        self.c = c
        self.words = nn.Embedding(c.vocabulary, c.d_model)
        nn.init.normal_(self.words.weight, std=c.d_model**-0.5)
        if self.has("three matrices"):
            self.target_words = nn.Embedding(c.vocabulary, c.d_model)
            nn.init.normal_(self.target_words.weight, std=c.d_model**-0.5)
            self.out = nn.Linear(c.d_model, c.vocabulary)
        angles = torch.arange(c.max_length + 2)[:, None] / 10000 ** (
            torch.arange(0, c.d_model, 2) / c.d_model
        )
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.register_buffer("positions", table)
        self.dropout = nn.Dropout(c.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(c, faults) for _ in range(c.layers))
        self.decoder = nn.ModuleList(DecoderLayer(c, faults) for _ in range(c.layers))

    def embed(self, ids: Tensor) -> Tensor:
        positions = self.positions[: ids.size(1)]
        return self.dropout(self.words(ids) * self.c.d_model**0.5 + positions)

    def embed_target(self, ids: Tensor) -> Tensor:
        first = 0
        factor = self.c.d_model**0.5
        if self.has("target: positions from 1"):
            first = 1
        if self.has("target: positions from 2"):
            first = 2
        if self.has("target: not multiplied by √d_model"):
            factor = 1.0
        if self.has("target: multiplied by d_model"):
            factor = self.c.d_model
        positions = self.positions[first : first + ids.size(1)]
        if self.has("target: no positions"):
            positions = 0.0 * positions
        if self.has("target: positions turned round"):
            positions = positions.flip(0)
        words = self.target_words if self.has("three matrices") else self.words
        x = words(ids) * factor + positions
        return x if self.has("target: no dropout") else self.dropout(x)

    def earlier(self, length: int) -> Tensor:
        """Return the causal mask [1, 1, T, T]."""
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        if self.has("mask shows three words"):
            mask = mask.triu(-2)
        if self.has("mask shows eight words"):
            mask = mask.triu(-7)
        if self.has("mask hides the first word"):
            mask[1:, 0] = False
        if self.has("mask hides the word before"):
            mask[1:] &= ~torch.eye(length, dtype=torch.bool)[1:].roll(-1, 1)
        if self.has("mask hides the last row's own word"):
            mask[-1, -1] = False
        if self.has("mask one too far"):
            mask = torch.ones(length, length, dtype=torch.bool).tril(1)
        if self.has("mask hides a word from itself"):
            mask = torch.ones(length, length, dtype=torch.bool).tril(-1)
            mask[0, 0] = True
        return mask[None, None]

    def encode(self, source: Tensor, pads: Tensor) -> list[Tensor]:
        """Return the embeddings, and the output of each layer."""
        outputs = [self.embed(source)]
        for number, layer in enumerate(self.encoder):
            x = outputs[-1]
            if number == 1 and self.has("encoder: second layer reads the embeddings"):
                x = outputs[0]
            if number and self.has("encoder: one layer again and again"):
                layer = self.encoder[0]
            outputs.append(layer(x, pads))
        return outputs

    def memory(self, outputs: list[Tensor], number: int) -> Tensor:
        """Return the memory for decoder layer ``number``."""
        if self.has("ladder"):
            return outputs[number + 1]
        if self.has("ladder from the top"):
            return outputs[-number - 1]
        if self.has("the first layer reads another memory") and number == 0:
            return outputs[-2]
        if self.has("memory is the embeddings"):
            return outputs[0]
        if self.has("memory is the last layer but one"):
            return outputs[-2]
        if self.has("memory without gradient"):
            return outputs[-1].detach()
        return outputs[-1]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        pads = source.ne(self.c.pad)[:, None, None]
        outputs = self.encode(source, pads)
        mask = self.earlier(target.size(1))
        x = embedded = self.embed_target(target)
        if self.has("source added to the target's embeddings"):
            x = x + outputs[-1].mean(1, keepdim=True)
        for number, layer in enumerate(self.decoder):
            if number == 1 and self.has("decoder: second layer reads the embeddings"):
                x = embedded
            if self.has("values of cross-attention from the embeddings"):
                layer.values = outputs[0]
            if number == 1 and self.has("second layer sees the future"):
                mask = None
            if number == 1 and self.has("second layer sees three words"):
                mask = mask.triu(-2)
            cross_pads = None if self.has("padding seen by cross-attention") else pads
            x = layer(x, self.memory(outputs, number), mask, cross_pads)
        if self.has("ReLU before the output"):
            x = F.relu(x)
        if self.has("dropout in evaluation"):
            x = F.dropout(x, self.c.dropout or 0.1)
        matrix = self.out.weight if self.has("three matrices") else self.words.weight
        logits = x @ matrix.T
        if self.has("logits multiplied"):
            logits = logits * self.c.d_model**0.5
        if self.has("logits divided"):
            logits = logits * self.c.d_model**-0.5
        return logits + self.out.bias if self.has("three matrices") else logits


def adapter(*faults: str) -> SimpleNamespace:
    """Return the functions for ``check``, without ``translate``, which takes seconds."""

    def build(config: Config) -> nn.Module:
        return Student(config, frozenset(faults))

    def logits(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return model(source, target)

    def embedding(model: Any, ids: Tensor) -> Tensor:
        return model.embed(ids)

    def target_embedding(model: Any, ids: Tensor) -> Tensor:
        return model.embed_target(ids)

    def encoder_layer(model: Any, x: Tensor) -> Tensor:
        return model.encoder[0](x, None)

    def decoder_layer(model: Any, x: Tensor, memory: Tensor) -> Tensor:
        return model.decoder[0](x, memory, model.earlier(x.size(1)), None)

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        log_probs = logits.log_softmax(-1)
        right = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        others = (log_probs.sum(-1) - right) * 0.1 / (logits.size(-1) - 1)
        real = target.ne(CONFIG.pad)
        if "ends of sentences left out of the loss" in faults:
            real = real & target.ne(CONFIG.end)
        each = -(0.9 * right + others) * real
        if "loss divided by sentences" in faults:
            return each.sum() / len(target)
        if "loss a mean of sentences' means" in faults:
            return (each.sum(1) / real.sum(1)).mean()
        return each.sum() / real.sum()

    def training_loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        start = target.new_full((len(target), 1), CONFIG.start)
        each = loss(model(source, torch.cat([start, target[:, :-1]], dim=1)), target)
        if "training loss divided by sentences" in faults:
            return each * target.ne(CONFIG.pad).sum() / len(target)
        return each

    def learning_rate(step: int) -> float:
        return float(512**-0.5 * min(step**-0.5, step * 4000**-1.5))

    def optimizer(model: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)

    functions = dict(locals(), attention=attention, CONFIG=CONFIG)
    functions.pop("faults")
    return SimpleNamespace(**functions)
