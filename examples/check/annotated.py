# ruff: noqa: ANN001
"""The Annotated Transformer: the model, loss and rate with which its page trains.

CHECKOUT=annotated-transformer vaswani check examples/check/annotated.py
"""

import copy
import math

import torch
from checkout import definitions
from torch import nn
from torch.nn.functional import log_softmax

from transformer_check import Config

CONFIG = Config(start=0, end=1, pad=2)  # as in its build_vocabulary
PAGE = definitions(
    "the_annotated_transformer.py",
    **{"torch": torch, "nn": nn, "math": math, "copy": copy, "log_softmax": log_softmax},
)


def build(config):
    """Build its model by make_model; attention and embedding keep dropouts of 0.1 or less."""
    sizes = {"N": config.layers, "d_model": config.d_model, "d_ff": config.d_ff}
    types = (config.vocabulary, config.vocabulary)
    model = PAGE.make_model(*types, **sizes, h=config.heads, dropout=config.dropout)
    for part in model.modules():
        if isinstance(part, PAGE.MultiHeadedAttention):
            part.dropout.p = min(part.dropout.p, config.dropout)
    return model


def logits(model, source, target):
    """Return the input of the softmax in its Generator."""
    batch = PAGE.Batch(source, torch.nn.functional.pad(target, (0, 1)), CONFIG.pad)
    return model.generator.proj(model(source, target, batch.src_mask, batch.tgt_mask))


def embedding(model, ids):
    """Return the output of its Embeddings and PositionalEncoding."""
    return model.src_embed(ids)


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.layers[0](x, None)


def attention(q, k, v, mask):
    """Call the page's function ``attention``."""
    return PAGE.attention(q, k, v, mask)


def loss(logits, target):
    """Return its LabelSmoothing of the Generator's output."""
    criterion = PAGE.LabelSmoothing(logits.size(-1), CONFIG.pad, smoothing=0.1)
    rows = log_softmax(logits, dim=-1).flatten(0, 1)
    return criterion(rows, target.flatten()) / target.ne(CONFIG.pad).sum()


def training_loss(model, source, target):
    """Return the loss of run_epoch, whose Batch shifts a target that begins with a start."""
    start = torch.full_like(target[:, :1], CONFIG.start)
    batch = PAGE.Batch(source, torch.cat([start, target], dim=1), CONFIG.pad)
    hidden = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return loss(model.generator.proj(hidden), batch.tgt_y)


def optimizer(model):
    """Return the optimizer of train_worker, whose base_lr is 1.0."""
    return torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)


def learning_rate(step):
    """Return its function ``rate``, which LambdaLR calls with the number of steps before.

    In its configuration warmup is 3,000 and factor 1; here they are the paper's.
    """
    return PAGE.rate(step - 1, model_size=512, factor=1, warmup=4000)
