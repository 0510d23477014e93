# ruff: noqa: ANN001
"""bentrevett/pytorch-seq2seq, its sixth notebook of 2021.

CHECKOUT=pytorch-seq2seq vaswani check examples/check/bentrevett.py
"""

import torch
from checkout import definitions
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)  # as torchtext numbers them
PAGE = definitions("legacy/6 - Attention is All You Need.ipynb", torch=torch, nn=nn)


def build(config):
    """Build its Seq2Seq, with its initial weights."""
    sizes = (config.d_model, config.layers, config.heads, config.d_ff, config.dropout)
    device = torch.device("cpu")
    encoder = PAGE.Encoder(config.vocabulary, *sizes, device, config.max_length)
    decoder = PAGE.Decoder(config.vocabulary, *sizes, device, config.max_length)
    model = PAGE.Seq2Seq(encoder, decoder, config.pad, config.pad, device)
    return model.apply(PAGE.initialize_weights)


def logits(model, source, target):
    """Call the model, which makes its masks."""
    return model(source, target)[0]


def embedding(model, ids):
    """Return the input of the first layer in its Encoder.forward."""
    return embed(model.encoder, ids)


def target_embedding(model, ids):
    """Return the input of the first layer in its Decoder.forward."""
    return embed(model.decoder, ids)


def embed(stack, ids):
    """Return embeddings times their scale, plus learned positions."""
    positions = torch.arange(ids.size(1)).expand_as(ids)
    return stack.dropout(stack.tok_embedding(ids) * stack.scale + stack.pos_embedding(positions))


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.layers[0](x, None)


def decoder_layer(model, x, memory):
    """Call its first DecoderLayer with its causal mask."""
    mask = model.make_trg_mask(torch.zeros(x.shape[:2]))
    return model.decoder.layers[0](x, memory, mask, None)[0]


def loss(logits, target):
    """Return the notebook's loss."""
    return nn.CrossEntropyLoss(ignore_index=CONFIG.pad)(logits.flatten(0, 1), target.flatten())


def training_loss(model, source, target):
    """Return the loss of its function train, whose targets begin with a start."""
    target = torch.cat([torch.full_like(target[:, :1], CONFIG.start), target], dim=1)
    return loss(model(source, target[:, :-1])[0], target[:, 1:])


def learning_rate(step):
    """Return the notebook's learning rate."""
    return 0.0005


def optimizer(model):
    """Return the notebook's optimizer."""
    return torch.optim.Adam(model.parameters(), lr=0.0005)
