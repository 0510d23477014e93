# ruff: noqa: ANN001, ANN201 (a file to fill in: types would be in the way)
"""What 'vaswani check' has to know about your Transformer. This file checks the project's own.

1. Answer the three questions below.
2. Replace the body of build and logits by calls of your model. Run: vaswani check FILE.py
3. Then the other functions, for more checks. Remove those that you do not need: where it can, the
   card derives embedding, target_embedding, encoder_layer and decoder_layer from build and logits.

Shape letters: B batch, S source, T target, L either, V vocabulary, D d_model, H heads.
Ids are 0 to config.vocabulary - 1, the same for both languages. Sentences are padded on the right
with config.pad. The functions below get and return tensors with the batch first.
"""

import torch

from transformer_check import Config
from vaswani_transformer import Transformer, TransformerConfig, beam_search
from vaswani_transformer.attention import attention as equation_1
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.loss import label_smoothed_loss
from vaswani_transformer.schedule import learning_rate as equation_3

# Three questions about your model. The functions below use the answers.
BATCH_FIRST = True  # False if ids are [L, B] and activations [L, B, D], as nn.Transformer's default
ONE_CLASS = True  # False if you call an encoder, and a decoder with the encoder's output
MAKES_MASKS = True  # False if the model is given its masks; then fill in masks()

# The argument of build. Set what is fixed in your model: its ids, and its sizes if they cannot be
# chosen, as Config(layers=6, d_model=512, d_ff=2048, heads=8, pad=0, start=2, end=3).
CONFIG = Config(pad=1, start=2, end=2)

# Differences from the paper that you intend, for 'vaswani check --strict': ids such as "pre-norm".
ACCEPT: list[str] = []


def build(config):
    """Return a new model with these sizes: a torch.nn.Module."""
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
    """Return the logits [B, T, V], the input of the softmax, of ids [B, S] and [B, T].

    The target begins with config.start: row t of the result predicts token t + 1 of the target.
    """
    of_source, of_target = ([], []) if MAKES_MASKS else masks(source, target)
    source, target = swapped(source), swapped(target)
    if ONE_CLASS:
        result = model(source, target, *of_source, *of_target)
    else:
        memory = model.encoder(source, *of_source)
        result = model.decoder(target, memory, *of_source, *of_target)
    return swapped(result)


def masks(source, target):
    """Return the masks for your encoder, and the masks that your decoder gets in addition.

    Here True means attend. Many models expect the opposite, or 0 and -inf.
    """
    length = target.size(1)
    of_source = source.ne(CONFIG.pad)[:, None, None]  # [B, 1, 1, S]
    of_target = torch.ones(length, length, dtype=torch.bool).tril()  # [T, T]
    return [of_source], [of_target]


def swapped(tensor):
    """Swap batch and length if your model has the length first."""
    return tensor if BATCH_FIRST else tensor.transpose(0, 1)


def embedding(model, ids):
    """Return the input [B, L, D] of the encoder's first layer: embeddings, positions, dropout."""
    return swapped(model.encoder.embedding(swapped(ids)))


def target_embedding(model, ids):
    """Return the input [B, L, D] of the decoder's first layer for ids [B, L]."""
    return swapped(model.decoder.embedding(swapped(ids)))


def encoder_layer(model, x):
    """Run the encoder's first layer, without padding: [B, L, D] → [B, L, D]."""
    return swapped(model.encoder.layers[0](swapped(x), None))


def decoder_layer(model, x, memory):
    """Run the decoder's first layer, without padding: [B, T, D] and [B, S, D] → [B, T, D]."""
    mask = causal_mask(x.size(1))
    return swapped(model.decoder.layers[0](swapped(x), mask, swapped(memory), None))


def attention(q, k, v, mask):
    """Return equation 1 of q [B, H, T, d_k], k [B, H, S, d_k], v [B, H, S, d_v]: [B, H, T, d_v].

    The mask is None, or True where a query may attend to a key: bool [B, 1, T, S].
    """
    return equation_1(q, k, v, mask)[0]


def loss(logits, target):
    """Return the loss, one number, of logits [B, T, V] and the tokens to predict [B, T].

    The tokens include padding.
    """
    log_probs = torch.log_softmax(logits, dim=-1)
    total, _ = label_smoothed_loss(log_probs, target, CONFIG.label_smoothing, CONFIG.pad)
    return total / target.ne(CONFIG.pad).sum()


def training_loss(model, source, target):
    """Return the loss of a batch as your training loop computes it; the target has no start yet.

    A row of the target is tokens, config.end, and padding.
    """
    previous = target.roll(1, dims=1)
    previous[:, 0] = CONFIG.start
    return loss(logits(model, source, previous), target)


def learning_rate(step):
    """Return the base model's learning rate (d_model 512, 4,000 warm-up steps); step 1 is first."""
    return equation_3(step, d_model=512, warmup_steps=4000)


def optimizer(model):
    """Return a torch.optim.Optimizer of the model's parameters."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)


def translate(model, source):
    """Translate ids [B, S], whose rows end with config.end, by beam search: B lists of ids.

    A list may begin with config.start and end with config.end and padding, or not.
    """
    return beam_search(model, source, beam=4, alpha=0.6)
