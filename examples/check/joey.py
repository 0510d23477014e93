# ruff: noqa: ANN001
"""JoeyNMT, with the options of its configs/wmt17_ende_bpe.yaml.

CHECKOUT=joeynmt vaswani check examples/check/joey.py
"""

from types import SimpleNamespace

import torch
import yaml
from checkout import FOLDER
from joeynmt.builders import WarmupInverseSquareRootScheduler, build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)
FILE = yaml.safe_load((FOLDER / "configs/wmt17_ende_bpe.yaml").read_text(encoding="utf-8"))


def build(config):
    """Build the model of its configuration with other sizes."""
    symbols = {**FILE["data"]["special_symbols"], "sep_token": None, "lang_tags": []}
    words = [f"w{number}" for number in range(config.vocabulary - 4)]
    vocabulary = Vocabulary(words, SimpleNamespace(**symbols))
    sizes = yaml.safe_load(yaml.safe_dump(FILE["model"]))
    for side in (sizes["encoder"], sizes["decoder"]):
        side.update(num_layers=config.layers, num_heads=config.heads, dropout=config.dropout)
        side.update(hidden_size=config.d_model, ff_size=config.d_ff)
        side["embeddings"].update(embedding_dim=config.d_model, dropout=config.dropout)
    model = build_model(sizes, vocabulary, vocabulary)
    model.loss_function = (FILE["training"]["loss"], FILE["training"]["label_smoothing"])
    return model


def batch(source, target=None):
    """Return the fields of its Batch for these ids; the target begins with a start."""
    real = source.ne(CONFIG.pad)
    arguments = {"src": source, "src_mask": real[:, None], "src_length": real.sum(1)}
    arguments["has_trg"] = False
    if target is not None:
        arguments["trg_input"] = target
        arguments["trg_mask"] = target.ne(CONFIG.pad)[:, None]
    return arguments


def logits(model, source, target):
    """Return the input of the softmax in its loss."""
    return model._encode_decode(**batch(source, target))[0]


def embedding(model, ids):
    """Embed the source as TransformerEncoder.forward does."""
    return model.encoder.emb_dropout(model.encoder.pe(model.src_embed(ids)))


def encoder_layer(model, x):
    """Call its first TransformerEncoderLayer without a mask."""
    return model.encoder.layers[0](x, None)


def loss(logits, target):
    """Return its XentLoss, whose sum its training divides by the tokens."""
    total = build(CONFIG).loss_function(logits.log_softmax(-1), trg=target)
    return total / target.ne(CONFIG.pad).sum()


def optimizer(model):
    """Return the optimizer of the configuration."""
    return build_optimizer(FILE["training"], model.parameters())


def learning_rate(step):
    """Return the configuration's rate, which its training sets one update ahead."""
    options = FILE["training"]
    if step == 1:
        return options["learning_rate"]
    adam = torch.optim.SGD([torch.zeros(1)], 1.0)
    rates = (options["learning_rate"], options["learning_rate_warmup"])
    schedule = WarmupInverseSquareRootScheduler(adam, *rates, options["learning_rate_min"])
    schedule.step(step - 2)
    return adam.param_groups[0]["lr"]


def translate(model, source):
    """Translate by its search, with the paper's beam, α and limit."""
    limit = source.size(1) + 50
    return search(model, SimpleNamespace(**batch(source)), limit, 4, 0.6)[0].tolist()
