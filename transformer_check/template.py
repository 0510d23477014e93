# ruff: noqa: ANN001, ANN201 (a file to fill in: types would be in the way)
"""What 'vaswani check' has to know about your Transformer. This file checks the project's own.

Replace the body of each function by one that calls yours, then run: vaswani check FILE.py
The first two are needed. Remove any of the others: its checks then say "not checked".

Shape letters: B batch, S source, T target, L either, V vocabulary, D d_model, H heads.
Ids are 0 to config.vocabulary - 1, the same for both languages; sentences are padded on the right
with config.pad.
"""

import torch

from transformer_check import Config
from vaswani_transformer import Transformer, TransformerConfig, beam_search
from vaswani_transformer.attention import attention as equation_1
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.loss import label_smoothed_loss
from vaswani_transformer.schedule import learning_rate as equation_3

# What build is asked for. Give what is fixed in your model, such as its ids, and sizes if it has
# but one: Config(layers=6, d_model=512, d_ff=2048, heads=8, pad=0, start=2, end=3).
CONFIG = Config(pad=1, start=2, end=2)


def build(config):
    """A new model with these sizes: a torch.nn.Module."""
    sizes = {
        "layers": config.layers,
        "embed_dim": config.d_model,
        "ffn_embed_dim": config.d_ff,
        "attention_heads": config.heads,
        "learned_pos": config.learned_positions,
    }
    both = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    chosen = TransformerConfig(
        **both,
        head_key_dim=config.d_k,
        head_value_dim=config.d_v,
        dropout=config.dropout,
        max_source_positions=config.max_length,
        max_target_positions=config.max_length,
    )
    return Transformer(chosen, config.vocabulary, config.vocabulary)


def logits(model, source, target):
    """Ids [B, S] and [B, T] → what the softmax is given [B, T, V]. Make your masks here.

    The target begins with config.start: row t of the result predicts word t + 1 of the target.
    """
    return model(source, target)


def embedding(model, ids):
    """Ids [B, L] → what the encoder's first layer gets [B, L, D]: words, positions, dropout."""
    return model.encoder.embedding(ids)


def target_embedding(model, ids):
    """The same of the decoder's first layer: ids [B, L] → [B, L, D]."""
    return model.decoder.embedding(ids)


def encoder_layer(model, x):
    """The encoder's first layer, without padding: [B, L, D] → [B, L, D]."""
    return model.encoder.layers[0](x, None)


def decoder_layer(model, x, memory):
    """The decoder's first layer, without padding: [B, T, D] and [B, S, D] → [B, T, D]."""
    return model.decoder.layers[0](x, causal_mask(x.size(1)), memory, None)


def attention(q, k, v, mask):
    """Equation 1: [B, H, T, d_k], [B, H, S, d_k], [B, H, S, d_v] → [B, H, T, d_v].

    The mask is None, or True where a query may look at a key: bool [B, 1, T, S].
    """
    return equation_1(q, k, v, mask)[0]


def loss(logits, target):
    """Logits [B, T, V] and the words to predict [B, T], with padding → one number."""
    log_probs = torch.log_softmax(logits, dim=-1)
    total, _ = label_smoothed_loss(log_probs, target, CONFIG.label_smoothing, CONFIG.pad)
    return total / target.ne(CONFIG.pad).sum()


def training_loss(model, source, target):
    """The loss of a batch as your training loop computes it; the target has no start yet.

    A row of the target is words, config.end, and padding.
    """
    previous = target.roll(1, dims=1)
    previous[:, 0] = CONFIG.start
    return loss(logits(model, source, previous), target)


def learning_rate(step):
    """Of the base model (d_model 512, 4,000 steps of warm-up); step 1 is the first."""
    return equation_3(step, d_model=512, warmup_steps=4000)


def optimizer(model):
    """A torch.optim.Optimizer."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)


def translate(model, source):
    """Ids [B, S], each row ending with config.end → a list of B lists of ids, by beam search.

    A list may begin with config.start and end with config.end and padding, or not.
    """
    return beam_search(model, source, beam=4, alpha=0.6)
