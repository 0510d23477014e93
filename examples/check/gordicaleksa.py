# ruff: noqa: ANN001
"""gordicaleksa/pytorch-original-transformer.

CHECKOUT=pytorch-original-transformer vaswani check examples/check/gordicaleksa.py
"""

import copy
import math
from types import SimpleNamespace

import torch
from checkout import definitions
from torch import nn

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3, d_ff=128)  # its networks are 4 · d_model wide
TOKENS = {"PAD_TOKEN": "<pad>", "BOS_TOKEN": "<s>", "EOS_TOKEN": "</s>"}
MODEL = definitions(
    "models/definitions/transformer_model.py", torch=torch, nn=nn, math=math, copy=copy
)
MASKS = definitions(
    "utils/data_utils.py",
    only=("get_masks_and_count_tokens_src", "get_masks_and_count_tokens_trg"),
    torch=torch,
)
TRAINING = definitions("utils/optimizers_and_distributions.py", torch=torch, nn=nn)
DECODING = definitions(
    "utils/decoding_utils.py",
    only=("greedy_decoding",),
    torch=torch,
    **{"get_masks_and_count_tokens_trg": MASKS.get_masks_and_count_tokens_trg, **TOKENS},
)


def build(config):
    """Build the repository's ``Transformer``."""
    types = (config.vocabulary, config.vocabulary)
    return MODEL.Transformer(config.d_model, *types, config.heads, config.layers, config.dropout)


def logits(model, source, target):
    """Return its log-probabilities, with its masks."""
    source_mask, _ = MASKS.get_masks_and_count_tokens_src(source, CONFIG.pad)
    target_mask, _ = MASKS.get_masks_and_count_tokens_trg(target, CONFIG.pad)
    return model(source, target, source_mask, target_mask).view(*target.shape, -1)


def embedding(model, ids):
    """Embed the source as ``Transformer.encode`` does."""
    return model.src_pos_embedding(model.src_embedding(ids))


def target_embedding(model, ids):
    """Embed the target as ``Transformer.decode`` does."""
    return model.trg_pos_embedding(model.trg_embedding(ids))


def encoder_layer(model, x):
    """Call its first EncoderLayer without a mask."""
    return model.encoder.encoder_layers[0](x, None)


def decoder_layer(model, x, memory):
    """Call its first DecoderLayer with its causal mask."""
    ids = torch.zeros(x.shape[:2], dtype=torch.long)
    mask, _ = MASKS.get_masks_and_count_tokens_trg(ids, CONFIG.pad)
    return model.decoder.decoder_layers[0](x, memory, mask, None)


def loss(logits, target):
    """Return the loss of training_script.py: KLDivLoss of LabelSmoothingDistribution."""
    smoothing = TRAINING.LabelSmoothingDistribution(0.1, CONFIG.pad, logits.size(-1), "cpu")
    log_probs = logits.log_softmax(-1).flatten(0, 1)
    return nn.KLDivLoss(reduction="batchmean")(log_probs, smoothing(target.reshape(-1, 1)))


def training_loss(model, source, target):
    """Return the loss of training_script.py, whose targets begin with a start."""
    target = torch.cat([torch.full_like(target[:, :1], CONFIG.start), target], dim=1)
    return loss(logits(model, source, target[:, :-1]), target[:, 1:])


def learning_rate(step):
    """Return the rate of its CustomLRAdamOptimizer."""
    optimizer = TRAINING.CustomLRAdamOptimizer(None, 512, 4000)
    optimizer.current_step_number = step
    return optimizer.get_current_learning_rate()


def optimizer(model):
    """Return the optimizer of training_script.py."""
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)


def translate(model, source):
    """Translate by its greedy decoding; its beam search is not implemented."""
    names = [f"w{number}" for number in range(CONFIG.vocabulary)]
    for token, number in zip(TOKENS.values(), (CONFIG.pad, CONFIG.start, CONFIG.end), strict=True):
        names[number] = token
    stoi = {name: number for number, name in enumerate(names)}
    processor = SimpleNamespace(vocab=SimpleNamespace(itos=names, stoi=stoi))
    mask, _ = MASKS.get_masks_and_count_tokens_src(source, CONFIG.pad)
    with torch.no_grad():
        rows = DECODING.greedy_decoding(model, model.encode(source, mask), mask, processor)
    return [[stoi[word] for word in row] for row in rows]
