# ruff: noqa: ANN001
"""SamLynnEvans/Transformer.

CHECKOUT=Transformer vaswani check examples/check/samlynnevans.py
"""

from types import SimpleNamespace

import numpy as np
import torch
from checkout import definitions
from Models import get_model
from Sublayers import attention as its_attention
from torch.nn import functional

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3, d_ff=2048)  # a d_ff that no option changes
BATCH = definitions(
    "Batch.py",
    **{"torch": torch, "np": np, "Variable": torch.autograd.Variable},
    data=SimpleNamespace(Iterator=object),
)
OPTIONS = {"device": "cpu", "src_pad": CONFIG.pad, "trg_pad": CONFIG.pad, "load_weights": None}


def build(config):
    """Call the repository's ``get_model``."""
    sizes = {"d_model": config.d_model, "n_layers": config.layers, "heads": config.heads}
    options = SimpleNamespace(**OPTIONS, **sizes, dropout=config.dropout)
    return get_model(options, config.vocabulary, config.vocabulary)


def logits(model, source, target):
    """Call the model with the masks of ``create_masks``."""
    return model(source, target, *BATCH.create_masks(source, target, SimpleNamespace(**OPTIONS)))


def embedding(model, ids):
    """Return the output of its Embedder and PositionalEncoder."""
    return model.encoder.pe(model.encoder.embed(ids))


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.layers[0](x, None)


def attention(q, k, v, mask):
    """Call its function attention, which adds the dimension of heads to a mask."""
    return its_attention(q, k, v, q.size(-1), None if mask is None else mask[:, 0])


def loss(logits, target):
    """Return the loss of ``train.py``."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=CONFIG.pad)


def optimizer(model):
    """Return the optimizer of ``train.py``."""
    return torch.optim.Adam(model.parameters(), lr=0.0001, betas=(0.9, 0.98), eps=1e-9)


def learning_rate(step):
    """Return the rate of train.py without its option SGDR."""
    return 0.0001
