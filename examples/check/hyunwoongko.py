# ruff: noqa: ANN001
"""hyunwoongko/transformer.

CHECKOUT=transformer vaswani check examples/check/hyunwoongko.py
"""

import checkout  # noqa: F401
import torch
from conf import adam_eps, init_lr, weight_decay
from models.layers.scale_dot_product_attention import ScaleDotProductAttention
from models.model.transformer import Transformer
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)  # as torchtext numbers them


def build(config):
    """Build and initialise the model as train.py does."""
    types = {"enc_voc_size": config.vocabulary, "dec_voc_size": config.vocabulary}
    ids = {"src_pad_idx": config.pad, "trg_pad_idx": config.pad, "trg_sos_idx": config.start}
    sizes = {"d_model": config.d_model, "n_head": config.heads, "ffn_hidden": config.d_ff}
    more = {"n_layers": config.layers, "max_len": config.max_length, "drop_prob": config.dropout}
    model = Transformer(**types, **ids, **sizes, **more, device=torch.device("cpu"))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_uniform_(parameter)
    return model


def logits(model, source, target):
    """Call the model, which makes its masks."""
    return model(source, target)


def embedding(model, ids):
    """Call its module ``TransformerEmbedding``."""
    return model.encoder.emb(ids)


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.layers[0](x, None)


def attention(q, k, v, mask):
    """Call its module ScaleDotProductAttention."""
    return ScaleDotProductAttention()(q, k, v, mask)


def loss(logits, target):
    """Return the loss of ``train.py``."""
    return nn.CrossEntropyLoss(ignore_index=CONFIG.pad)(logits.flatten(0, 1), target.flatten())


def optimizer(model):
    """Return the optimizer of ``train.py``."""
    return torch.optim.Adam(model.parameters(), init_lr, weight_decay=weight_decay, eps=adam_eps)


def learning_rate(step):
    """Return the rate of train.py, which is multiplied by 0.9 when validation stagnates."""
    return init_lr
