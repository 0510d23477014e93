"""The whole Transformer (section 3), its sizes in the paper, and shared matrices (3.4)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from torch import Tensor, nn

from .attention import CrossAttention, SelfAttention
from .decoder import Decoder
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions
from .encoder import Encoder
from .initialisation import initialise
from .layers import AddAndNorm, DecoderLayer, EncoderLayer, FeedForward
from .vocabulary import PAD


def option(default: Any, help: str) -> Any:
    """A field with its default and a help text, which fairseq shows for its flag."""
    return field(default=default, metadata={"help": help})


@dataclass
class TransformerConfig:
    """Sizes and options; the defaults are the base model's (Table 3, first row).

    Names are fairseq's; each text names the paper's symbol. Types are written ``Optional[int]``:
    fairseq makes flags of them, and cannot read ``int | None``.
    """

    encoder_layers: int = option(6, "N, encoder layers (3.1)")
    encoder_embed_dim: int = option(512, "d_model, as wide as the decoder (3.1)")
    encoder_ffn_embed_dim: int = option(2048, "d_ff of the encoder (3.3)")
    encoder_attention_heads: int = option(8, "h of the encoder (3.2.2)")
    encoder_learned_pos: bool = option(
        False, "learned positions on the source side (3.5, Table 3 row E)"
    )
    decoder_layers: int = option(6, "N, decoder layers (3.1)")
    decoder_embed_dim: int = option(512, "d_model, as wide as the encoder (3.1)")
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
        False, "one matrix for source, target and output: the default anyway (3.4)"
    )
    share_decoder_input_output_embed: bool = option(
        False,
        "one matrix for target and output, and another for the source, whose dictionary may differ "
        "(in the paper all are one, 3.4)",
    )
    untie_embeddings: bool = option(
        False, "three separate matrices for source, target and output instead of one (3.4)"
    )
    sinusoid_layout: str = option(
        "paper",
        "sinusoidal positions as in the paper (interleaved), in tensor2tensor or in fairseq (3.5)",
    )
    layer_norm_eps: float = option(
        1e-6, "epsilon of LayerNorm (tensor2tensor's; the paper gives none, fairseq has 1e-5)"
    )
    init: str = option(
        "fairseq", "initial weights: as in fairseq or as in tensor2tensor (the paper does not say)"
    )
    max_source_positions: int = 1024
    max_target_positions: int = 1024


def base(**changes: Any) -> TransformerConfig:
    """The base model (Table 3, first row), with ``changes``."""
    return TransformerConfig(**changes)


def big(**changes: Any) -> TransformerConfig:
    """The big model (Table 3, last row), with ``changes``."""
    sizes = {"embed_dim": 1024, "ffn_embed_dim": 4096, "attention_heads": 16}
    both = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    return TransformerConfig(**{**both, "dropout": 0.3, **changes})


class Transformer(nn.Module):
    """Encoder and decoder that share one embedding matrix, also before the softmax (3.4).

    Args:
        config: its sizes
        source_vocab_size: types of the source, the special ones included
        target_vocab_size: types of the target: the same ones, where the matrix is shared
    """

    def __init__(
        self, config: TransformerConfig, source_vocab_size: int, target_vocab_size: int
    ) -> None:
        super().__init__()
        source, target, output = embedding_matrices(config, source_vocab_size, target_vocab_size)
        self.config = config
        self.encoder = Encoder(
            input_embedding(config, source, "encoder"),
            [encoder_layer(config) for _ in range(config.encoder_layers)],
        )
        self.decoder = Decoder(
            input_embedding(config, target, "decoder"),
            [decoder_layer(config) for _ in range(config.decoder_layers)],
            output,
        )
        initialise(self, str(config.init))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Transformer":
        """The model in a folder that ``vaswani pack`` made, in evaluation mode; see packed.py."""
        from .packed import load

        return load(folder)[0]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[B, S] and, shifted right, [B, T] → logits [B, T, V]."""
        return self.decoder(target, self.encoder(source))


def source_has_own_matrix(config: TransformerConfig) -> bool:
    """Whether the source's embedding is not the decoder's matrix, as it is in the paper (3.4).

    As in fairseq, sharing all includes sharing the decoder's.
    """
    decoder_alone = config.share_decoder_input_output_embed and not config.share_all_embeddings
    return bool(config.untie_embeddings or decoder_alone)


def embedding_matrices(
    config: TransformerConfig, source_vocab_size: int, target_vocab_size: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """The tables of source and target and the pre-softmax matrix, one parameter in the paper (3.4).

    A table's padding row gets no gradient from being looked up. Where the output matrix is the same
    table, the row is still trained, as a class that is never right; it reaches no real token.

    Raises:
        ValueError: the sizes of vocabularies that would share a matrix differ.
    """
    dim = config.encoder_embed_dim
    source = nn.Embedding(source_vocab_size, dim, padding_idx=PAD)
    output = nn.Linear(dim, target_vocab_size, bias=False)
    target = source
    if source_has_own_matrix(config):
        target = nn.Embedding(target_vocab_size, dim, padding_idx=PAD)
    elif source_vocab_size != target_vocab_size:
        raise ValueError(
            f"{source_vocab_size} source and {target_vocab_size} target types cannot share one "
            "embedding matrix: join the vocabularies, or set untie_embeddings"
        )
    if not config.untie_embeddings:
        output.weight = target.weight
    return source, target, output


def input_embedding(config: TransformerConfig, tokens: nn.Embedding, side: str) -> InputEmbedding:
    """Tokens and positions of one side, ``encoder`` or ``decoder``."""
    positions: nn.Module
    if getattr(config, f"{side}_learned_pos"):
        rows = config.max_source_positions if side == "encoder" else config.max_target_positions
        positions = LearnedPositions(rows, tokens.embedding_dim)
    else:
        positions = SinusoidalPositions(tokens.embedding_dim, str(config.sinusoid_layout))
    return InputEmbedding(tokens, positions, config.dropout)


def encoder_layer(config: TransformerConfig) -> EncoderLayer:
    """One layer of the encoder."""
    dim, heads = config.encoder_embed_dim, config.encoder_attention_heads
    widths = (config.head_key_dim, config.head_value_dim, config.attention_dropout)
    return EncoderLayer(
        SelfAttention(dim, heads, *widths),
        FeedForward(dim, config.encoder_ffn_embed_dim, config.activation_dropout),
        lambda: AddAndNorm(dim, config.dropout, config.layer_norm_eps),
    )


def decoder_layer(config: TransformerConfig) -> DecoderLayer:
    """One layer of the decoder."""
    dim, heads = config.decoder_embed_dim, config.decoder_attention_heads
    widths = (config.head_key_dim, config.head_value_dim, config.attention_dropout)
    return DecoderLayer(
        SelfAttention(dim, heads, *widths),
        CrossAttention(dim, heads, *widths),
        FeedForward(dim, config.decoder_ffn_embed_dim, config.activation_dropout),
        lambda: AddAndNorm(dim, config.dropout, config.layer_norm_eps),
    )
