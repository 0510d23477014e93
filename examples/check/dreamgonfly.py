# ruff: noqa: ANN001
"""dreamgonfly/transformer-pytorch, with the options of its configs/example_config.json.

CHECKOUT=transformer-pytorch vaswani check examples/check/dreamgonfly.py
"""

import importlib
from typing import Any

import checkout
import torch
from losses import LabelSmoothingLoss
from optimizers import NoamOptimizer
from utils.pad import pad_masking, subsequent_masking

from transformer_check import Config

models: Any = importlib.import_module("models")
CONFIG = Config(pad=0, start=2, end=3)
# newer torch takes no mask of uint8, and divides integers to floats
models.subsequent_masking = lambda ids: subsequent_masking(ids).bool()
BEAM = checkout.definitions(
    "beam.py", changes={" / vocabulary_size": " // vocabulary_size"}, torch=torch
)
PREDICTOR = checkout.definitions(
    "predictors.py", torch=torch, Beam=BEAM.Beam, pad_masking=pad_masking
)


def build(config):
    """Call the repository's ``build_model``."""
    sizes = {
        "d_model": config.d_model,
        "layers_count": config.layers,
        "heads_count": config.heads,
        "d_ff": config.d_ff,
        "dropout_prob": config.dropout,
        "positional_encoding": True,
    }
    return models.build_model(sizes, config.vocabulary, config.vocabulary)


def logits(model, source, target):
    """Call the model, which makes its masks."""
    return model(source, target)


def embedding(model, ids):
    """Return the encoder's embeddings."""
    return model.encoder.embedding(ids)


def target_embedding(model, ids):
    """Return the decoder's embeddings."""
    return model.decoder.embedding(ids)


def encoder_layer(model, x):
    """Call its first TransformerEncoderLayer without a mask."""
    return model.encoder.encoder_layers[0](x, None)


def decoder_layer(model, x, memory):
    """Call its first TransformerDecoderLayer with its causal mask."""
    mask = models.subsequent_masking(torch.zeros(x.shape[:2]))
    return model.decoder.decoder_layers[0](x, memory, None, mask)


def loss(logits, target):
    """Return the loss of ``LabelSmoothingLoss``."""
    return LabelSmoothingLoss(0.1, logits.size(-1))(logits, target)[0]


def training_loss(model, source, target):
    """Return the loss of EpochSeq2SeqTrainer.run_epoch, whose inputs begin with a start."""
    start = torch.full_like(target[:, :1], CONFIG.start)
    return loss(model(source, torch.cat([start, target[:, :-1]], dim=1)), target)


def learning_rate(step):
    """Return the rate of its NoamOptimizer, with its default factor."""
    optimizer = NoamOptimizer([torch.nn.Parameter(torch.zeros(1))], 512)
    optimizer.step_num = step
    return optimizer.lrate()


def optimizer(model):
    """Return ``NoamOptimizer``, the repository's own."""
    return NoamOptimizer(model.parameters(), d_model=512)


def translate(model, source):
    """Translate by its Predictor, one sentence at a time, with the paper's length limit."""
    predictor = PREDICTOR.Predictor.__new__(PREDICTOR.Predictor)
    predictor.preprocess = predictor.postprocess = lambda ids: ids
    predictor.model = model
    predictor.max_length = source.size(1) + 50
    predictor.beam_size = 4
    with torch.no_grad():
        return [predictor.predict_one(row.tolist(), num_candidates=1)[-1] for row in source]
