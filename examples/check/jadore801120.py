# ruff: noqa: ANN001
"""jadore801120/attention-is-all-you-need-pytorch, with the options of its README's training.

CHECKOUT=attention-is-all-you-need-pytorch vaswani check examples/check/jadore801120.py
"""

import torch
from checkout import definitions
from torch.nn import functional
from transformer.Models import Transformer
from transformer.Modules import ScaledDotProductAttention
from transformer.Optim import ScheduledOptim
from transformer.Translator import Translator

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)  # as torchtext numbers them
TRAINING = definitions("train.py", torch=torch, F=functional)


def build(config):
    """Build its Transformer with shared matrices; train.py's default scales the logits."""
    d_k, d_v = config.widths()
    sizes = {"d_word_vec": config.d_model, "d_model": config.d_model, "d_inner": config.d_ff}
    heads = {"n_layers": config.layers, "n_head": config.heads, "d_k": d_k, "d_v": d_v}
    types = (config.vocabulary, config.vocabulary, config.pad, config.pad)
    model = Transformer(*types, **sizes, **heads, dropout=config.dropout, scale_emb_or_prj="prj")
    for part in model.modules():  # always 0.1
        if isinstance(part, ScaledDotProductAttention):
            part.dropout.p = min(part.dropout.p, config.dropout)
    return model


def logits(model, source, target):
    """Call the model, which returns one row for each token of the batch."""
    return model(source, target).view(*target.shape, -1)


def embedding(model, ids):
    """Return the input of the first layer in its Encoder.forward."""
    encoder = model.encoder
    return encoder.layer_norm(encoder.dropout(encoder.position_enc(encoder.src_word_emb(ids))))


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.layer_stack[0](x)[0]


def attention(q, k, v, mask):
    """Call its ScaledDotProductAttention without its dropout."""
    return ScaledDotProductAttention(q.size(-1) ** 0.5).eval()(q, k, v, mask)


def loss(logits, target):
    """Return the loss of train.py, which divides only the logged loss by the tokens."""
    return TRAINING.cal_loss(logits.flatten(0, 1), target, CONFIG.pad, smoothing=True)


def training_loss(model, source, target):
    """Return the loss of train_epoch, whose targets begin with a start and are transposed."""
    target = torch.cat([torch.full_like(target[:, :1], CONFIG.start), target], dim=1)
    decoder_input, words = TRAINING.patch_trg(target.T, CONFIG.pad)
    return TRAINING.cal_loss(model(source, decoder_input), words, CONFIG.pad, smoothing=True)


def optimizer(model):
    """Return the optimizer of train.py."""
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-09)


def learning_rate(step):
    """Return the rate of ScheduledOptim, with train.py's lr_mul and the paper's sizes."""
    schedule = ScheduledOptim(torch.optim.SGD([torch.zeros(1)], 1.0), 2.0, 512, 4000)
    schedule.n_steps = step
    return schedule.lr_mul * schedule._get_lr_scale()


def translate(model, source):
    """Translate by its Translator, one sentence at a time; translate.py's limit is 100."""
    translator = Translator(model, 4, 100, CONFIG.pad, CONFIG.pad, CONFIG.start, CONFIG.end)
    return [translator.translate_sentence(sentence[None]) for sentence in source]
