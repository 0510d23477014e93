# ruff: noqa: ANN001
"""tunz/transformer-pytorch, with the options of its train.py.

CHECKOUT=transformer-pytorch vaswani check examples/check/tunz.py
"""

import checkout  # noqa: F401
import torch
from model.transformer import Transformer
from utils import utils
from utils.optimizer import LRScheduler

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3, heads=8)  # a number of heads that no option changes
own_mask = utils.create_trg_self_mask
# newer torch takes no mask of uint8
utils.create_trg_self_mask = lambda length, device=None: own_mask(length, device=device).bool()


def build(config):
    """Build its Transformer, whose source and target share a matrix."""
    types = (config.vocabulary, config.vocabulary)
    sizes = {"n_layers": config.layers, "hidden_size": config.d_model, "filter_size": config.d_ff}
    pads = {"src_pad_idx": config.pad, "trg_pad_idx": config.pad}
    return Transformer(*types, **sizes, **pads, dropout_rate=config.dropout)


def without_start_of(target):
    """Return the target without its start, since the model shifts it; the end is padded."""
    return torch.nn.functional.pad(target[:, 1:], (0, 1), value=CONFIG.end)


def logits(model, source, target):
    """Call the model, which makes its masks and shifts the target."""
    return model(source, without_start_of(target))


def embedding(model, ids):
    """Embed the source as ``Transformer.encode`` does."""
    words = model.i_vocab_embedding(ids) * model.emb_scale
    return model.i_emb_dropout(words + model.get_position_encoding(ids))


def loss(logits, target):
    """Return its get_loss, with train.py's default."""
    return utils.get_loss(logits.flatten(0, 1), target.flatten(), logits.size(-1), 0.1, CONFIG.pad)


def training_loss(model, source, target):
    """Return the loss of ``train.py``."""
    return loss(model(source, target), target)


def learning_rate(step):
    """Return the rate of LRScheduler, with the paper's warm-up instead of 16,000 steps."""
    schedule = LRScheduler([torch.nn.Parameter(torch.zeros(1))], 512, 4000, step=step)
    return schedule.learning_rate()


def optimizer(model):
    """Return the optimizer that ``LRScheduler`` wraps."""
    return LRScheduler(model.parameters(), 512, 16000).optimizer
