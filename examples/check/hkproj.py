# ruff: noqa: ANN001
"""hkproj/pytorch-transformer.

CHECKOUT=pytorch-transformer vaswani check examples/check/hkproj.py
"""

import torch
from checkout import definitions
from config import get_config
from model import MultiHeadAttentionBlock, build_transformer
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)  # as its tokenizer's trainer numbers them
DATASET = definitions("dataset.py", torch=torch, Dataset=torch.utils.data.Dataset)


def build(config):
    """Call the repository's ``build_transformer``."""
    lengths = (config.max_length, config.max_length)
    sizes = {"d_model": config.d_model, "N": config.layers, "h": config.heads, "d_ff": config.d_ff}
    types = (config.vocabulary, config.vocabulary)
    return build_transformer(*types, *lengths, **sizes, dropout=config.dropout)


def logits(model, source, target):
    """Call the model with the masks of its data set, for a batch."""
    source_mask = (source != CONFIG.pad)[:, None, None].int()
    target_mask = (target != CONFIG.pad)[:, None, None].int() & DATASET.causal_mask(target.size(1))
    memory = model.encode(source, source_mask)
    return model.project(model.decode(memory, source_mask, target, target_mask))


def embedding(model, ids):
    """Return the output of its InputEmbeddings and PositionalEncoding."""
    return model.src_pos(model.src_embed(ids))


def encoder_layer(model, x):
    """Call its first EncoderBlock without a mask."""
    return model.encoder.layers[0](x, None)


def attention(q, k, v, mask):
    """Call its function ``MultiHeadAttentionBlock.attention``."""
    return MultiHeadAttentionBlock.attention(q, k, v, mask, None)


def loss(logits, target):
    """Return the loss of ``train.py``."""
    criterion = nn.CrossEntropyLoss(ignore_index=CONFIG.pad, label_smoothing=0.1)
    return criterion(logits.flatten(0, 1), target.flatten())


def optimizer(model):
    """Return the optimizer of ``train.py``."""
    return torch.optim.Adam(model.parameters(), lr=get_config()["lr"], eps=1e-9)


def learning_rate(step):
    """Return the learning rate of ``train.py``."""
    return get_config()["lr"]
