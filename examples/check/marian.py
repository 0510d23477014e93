# ruff: noqa: ANN001
"""Marian of Hugging Face's transformers, with sizes and options set to the paper's.

pip install transformers
vaswani check examples/check/marian.py
"""

import torch
from transformers import MarianConfig, MarianMTModel

from transformer_check import Config

CONFIG = Config(pad=1, start=3, end=2)


def build(config):
    """Build a model with the paper's value of every option."""
    sizes = {
        "layers": config.layers,
        "attention_heads": config.heads,
        "ffn_dim": config.d_ff,
    }
    both = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    return MarianMTModel(
        MarianConfig(
            **both,
            vocab_size=config.vocabulary,
            d_model=config.d_model,
            dropout=config.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=config.max_length,
            pad_token_id=config.pad,
            eos_token_id=config.end,
            decoder_start_token_id=config.start,
            forced_eos_token_id=None,
        )
    )


def logits(model, source, target):
    """Call the model with a mask of the source's padding."""
    mask = source.ne(CONFIG.pad)
    return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits


def embedding(model, ids):
    """Add embeddings and positions as MarianEncoder.forward does."""
    encoder = model.get_encoder()
    words = encoder.embed_tokens(ids) * encoder.embed_scale
    sum_of_both = words + encoder.embed_positions(ids.shape)
    return torch.nn.functional.dropout(sum_of_both, encoder.dropout, encoder.training)


def encoder_layer(model, x):
    """Call its first encoder layer without a mask."""
    output = model.get_encoder().layers[0](x, attention_mask=None)
    return output[0] if isinstance(output, tuple) else output


def target_embedding(model, ids):
    """Add embeddings and positions as MarianDecoder.forward does."""
    decoder = model.get_decoder()
    words = decoder.embed_tokens(ids) * decoder.embed_scale
    sum_of_both = words + decoder.embed_positions(ids.shape)
    return torch.nn.functional.dropout(sum_of_both, decoder.dropout, decoder.training)


def translate(model, source):
    """Translate by its beam search, whose length penalty is not GNMT's."""
    return model.generate(
        source,
        attention_mask=source.ne(CONFIG.pad).long(),
        num_beams=4,
        length_penalty=0.6,
        max_new_tokens=source.size(1) + 50,
        do_sample=False,
    )
