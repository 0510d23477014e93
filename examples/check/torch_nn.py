# ruff: noqa: ANN001
"""torch's nn.Transformer, with embeddings and positions as in PyTorch's tutorial on translation.

vaswani check examples/check/torch_nn.py
"""

import math

import torch
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)


class Translator(nn.Module):
    """Embeddings, positions, nn.Transformer and a generator; batches first."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.d_model
        self.source = nn.Embedding(config.vocabulary, width)
        self.target = nn.Embedding(config.vocabulary, width)
        rates = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
        angles = torch.arange(config.max_length)[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.register_buffer("positions", table)
        self.dropout = nn.Dropout(config.dropout)
        sizes = (width, config.heads, config.layers, config.layers, config.d_ff, config.dropout)
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.generator = nn.Linear(width, config.vocabulary)

    def embed(self, table: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings plus positions [B, L, D] of ids [B, L]."""
        words = table(ids) * math.sqrt(table.embedding_dim)
        return self.dropout(words + self.positions[: ids.size(1)])


def build(config):
    """Build the model, with Glorot's initial weights as in the tutorial."""
    model = Translator(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def logits(model, source, target):
    """Call the model with the three masks that nn.Transformer needs."""
    later = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
    pads = source.eq(CONFIG.pad)
    hidden = model.transformer(
        model.embed(model.source, source),
        model.embed(model.target, target),
        tgt_mask=later,
        src_key_padding_mask=pads,
        tgt_key_padding_mask=target.eq(CONFIG.pad),
        memory_key_padding_mask=pads,
    )
    return model.generator(hidden)


def embedding(model, ids):
    """Return the embeddings of the source."""
    return model.embed(model.source, ids)


def target_embedding(model, ids):
    """Return the embeddings of the target."""
    return model.embed(model.target, ids)


def encoder_layer(model, x):
    """Call the first encoder layer without a mask."""
    return model.transformer.encoder.layers[0](x)


def decoder_layer(model, x, memory):
    """Call the first decoder layer with its causal mask."""
    later = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
    return model.transformer.decoder.layers[0](x, memory, tgt_mask=later)


def attention(q, k, v, mask):
    """Call the function that the layers of torch.nn call."""
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def loss(logits, target):
    """Return the tutorial's loss."""
    criterion = nn.CrossEntropyLoss(ignore_index=CONFIG.pad)
    return criterion(logits.flatten(0, 1), target.flatten())


def training_loss(model, source, target):
    """Return the tutorial's loss, whose targets begin with a start."""
    target = torch.cat([torch.full_like(target[:, :1], CONFIG.start), target], dim=1)
    return loss(logits(model, source, target[:, :-1]), target[:, 1:])


def learning_rate(step):
    """Return the tutorial's learning rate."""
    return 0.0001


def optimizer(model):
    """Return the tutorial's optimizer."""
    return torch.optim.Adam(model.parameters(), lr=0.0001, betas=(0.9, 0.98), eps=1e-9)
