"""The sizes of the model and their defaults, those of the paper (Table 3)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional


def option(default: Any, help: str) -> Any:
    """Return a field with its default and a help text, which fairseq shows for its flag."""
    return field(default=default, metadata={"help": help})


@dataclass
class TransformerConfig:
    """Sizes and options; the defaults are the base model's (Table 3, first row).

    Names are fairseq's; each text names the paper's symbol. Types are written ``Optional[int]``:
    fairseq makes flags of them, and cannot read ``int | None``.
    """

    encoder_layers: int = option(6, "N, encoder layers (3.1)")
    encoder_embed_dim: int = option(512, "d_model, equal to the decoder's (3.1)")
    encoder_ffn_embed_dim: int = option(2048, "d_ff of the encoder (3.3)")
    encoder_attention_heads: int = option(8, "h of the encoder (3.2.2)")
    encoder_learned_pos: bool = option(
        False, "learned positions on the source side (3.5, Table 3 row E)"
    )
    decoder_layers: int = option(6, "N, decoder layers (3.1)")
    decoder_embed_dim: int = option(512, "d_model, equal to the encoder's (3.1)")
    decoder_ffn_embed_dim: int = option(2048, "d_ff of the decoder (3.3)")
    decoder_attention_heads: int = option(8, "h of the decoder (3.2.2)")
    decoder_learned_pos: bool = option(
        False, "learned positions on the target side (3.5, Table 3 row E)"
    )
    head_key_dim: Optional[int] = option(
        None, "d_k, width of each head's queries and keys; default d_model / h (Table 3 row B)"
    )
    head_value_dim: Optional[int] = option(
        None, "d_v, width of each head's values; default d_model / h (3.2.2)"
    )
    dropout: float = option(
        0.1, "P_drop, on each sub-layer's output and on embeddings plus positions (5.4)"
    )
    attention_dropout: float = option(0.0, "dropout on attention weights (not in the paper)")
    activation_dropout: float = option(
        0.0, "dropout after the feed-forward ReLU (not in the paper)"
    )
    share_all_embeddings: bool = option(
        False,
        "one matrix for source embedding, target embedding and output projection (3.4): already "
        "the default, accepted because fairseq has the option; implies "
        "share_decoder_input_output_embed",
    )
    share_decoder_input_output_embed: bool = option(
        False,
        "one matrix for target embedding and output projection, and another for the source "
        "embedding, whose dictionary may differ (in the paper all three are one matrix, 3.4)",
    )
    untie_embeddings: bool = option(
        False,
        "separate matrices for source embedding, target embedding and output projection (in "
        "the paper all three are one matrix, 3.4)",
    )
    sinusoid_layout: str = option(
        "paper",
        "sinusoidal positions as in the paper (sines and cosines interleaved), in tensor2tensor "
        "or in fairseq (both: all sines, then all cosines) (3.5)",
    )
    layer_norm_eps: float = option(
        1e-6,
        "epsilon of LayerNorm (default as in tensor2tensor; fairseq has 1e-5; the paper does "
        "not say)",
    )
    init: str = option(
        "fairseq", "initial weights: as in fairseq or as in tensor2tensor (the paper does not say)"
    )
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    encoder_normalize_before: bool = option(
        False, "pre-norm encoder: LayerNorm before each sub-layer and after the last layer"
    )
    decoder_normalize_before: bool = option(
        False, "pre-norm decoder: LayerNorm before each sub-layer and after the last layer"
    )
    activation_fn: str = option("relu", "the feed-forward activation; relu in the paper (3.3)")


def base(
    *,
    layers: int | None = None,
    d_model: int | None = None,
    d_ff: int | None = None,
    heads: int | None = None,
    **changes: Any,
) -> TransformerConfig:
    """Return the base model (Table 3, first row), with changes.

    Args:
        layers: N of the encoder and of the decoder
        d_model: the width of both
        d_ff: of both
        heads: h of both
        changes: by the names in :class:`TransformerConfig`, also where the two sides differ
    """
    both_sides = {
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_embed_dim": d_model,
        "decoder_embed_dim": d_model,
        "encoder_ffn_embed_dim": d_ff,
        "decoder_ffn_embed_dim": d_ff,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
    }
    sizes = {name: size for name, size in both_sides.items() if size is not None}
    return TransformerConfig(**{**sizes, **changes})


def big(**changes: Any) -> TransformerConfig:
    """Return the big model (Table 3, last row), with changes as in :func:`base`."""
    return base(**{"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3, **changes})


ACTIVATION_NAMES = ["relu", "gelu", "swish"]
"""Names of the feed-forward activations; alternatives.py has the functions."""
SIZES = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "decoder_layers",
    "decoder_embed_dim",
    "decoder_ffn_embed_dim",
    "decoder_attention_heads",
    "head_key_dim",
    "head_value_dim",
)
"""Options that are a size: whole numbers of at least 1."""


def check_sizes(config: Any, spelling: Callable[[str], str] = str) -> None:
    """Raise ValueError for sizes and options with which no model can be made.

    Args:
        config: a :class:`TransformerConfig`, or anything with its fields
        spelling: function that writes a field's name in the message
    """
    width = config.encoder_embed_dim
    if config.decoder_embed_dim != width:
        raise ValueError(
            f"{spelling('encoder_embed_dim')} {width} and {spelling('decoder_embed_dim')} "
            f"{config.decoder_embed_dim} must be equal: the paper has one d_model"
        )
    for name in SIZES:
        size = getattr(config, name)
        if size is not None and size < 1:  # None: the width of a head by default
            raise ValueError(f"{spelling(name)} must be at least 1, not {size}")
    if str(config.activation_fn) not in ACTIVATION_NAMES:
        raise ValueError(
            f"{spelling('activation_fn')} {config.activation_fn} is not one of "
            f"{', '.join(ACTIVATION_NAMES)}"
        )
    for side in ("encoder", "decoder"):
        heads = getattr(config, f"{side}_attention_heads")
        width_name = spelling(f"{side}_embed_dim")
        heads_name = spelling(f"{side}_attention_heads")
        if width % heads and (config.head_key_dim is None or config.head_value_dim is None):
            raise ValueError(
                f"{width_name} {width} is not divisible by {heads_name} {heads}: change one, or "
                f"give {spelling('head_key_dim')} and {spelling('head_value_dim')}"
            )
        if width % 2 and not getattr(config, f"{side}_learned_pos"):
            raise ValueError(
                f"{width_name} {width} is odd, but sinusoids come in pairs (section 3.5 of the "
                f"paper): make it even, or give {spelling(f'{side}_learned_pos')}"
            )
