"""The whole Transformer (section 3), and the matrix that its parts share (3.4).

Shape letters: B batch, S source, T target, V vocabulary.
"""

import contextlib
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from .alternatives import ActivatedFeedForward, NormFirst
from .attention import CrossAttention, SelfAttention
from .config import TransformerConfig, check_sizes
from .decoder import Decoder
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions, is_traced
from .encoder import Encoder
from .fast import use_fused_attention
from .initialisation import WithoutDraws, initialise
from .io.packed import CONFIG, PackedModel, errors_of, read_packed
from .layers import AddAndNorm, DecoderLayer, EncoderLayer, FeedForward
from .vocabulary import PAD

Model = TypeVar("Model", bound="Transformer")
"""The paper's model, or a variant of it."""


class Transformer(nn.Module):
    """Encoder and decoder that share one embedding matrix, also before the softmax (3.4).

    A variant is a subclass that overrides a ``build_`` method: docs/extend.md. A size that may
    differ between encoder and decoder is an argument of these methods.

    Args:
        config: its sizes
        source_vocab_size: types of the source, the special ones included
        target_vocab_size: types of the target; the same types, if the matrix is shared
        padding_idx: the id of padding in both
        attention: ``readable``, equation 1 as it is written; or ``sdpa``, the same within rounding
            by torch's ``scaled_dot_product_attention``
        device: where to make the parameters; torch's default device, if not given
        dtype: of the parameters; torch's default type, if not given

    Raises:
        ValueError: no model can have these sizes.
    """

    def __init__(
        self,
        config: TransformerConfig,
        source_vocab_size: int,
        target_vocab_size: int,
        padding_idx: int = PAD,
        *,
        attention: Literal["readable", "sdpa"] = "readable",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(config)
        self.config = config
        self.d_model = config.encoder_embed_dim
        self.padding_idx = padding_idx
        with torch.device(device) if device else contextlib.nullcontext():
            source, target, output = embedding_matrices(
                config, source_vocab_size, target_vocab_size, padding_idx
            )
            self.encoder = self.build_encoder(source)
            self.decoder = self.build_decoder(target, output)
        self.reset_parameters()
        if dtype:
            self.to(dtype)
        if attention == "sdpa":
            use_fused_attention(self)
        elif attention != "readable":
            raise ValueError(f"attention is {attention!r}: give 'readable' or 'sdpa'")

    def forward(
        self, source: Tensor, target: Tensor, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits [B, T, V] of the next target tokens.

        Args:
            source: ids [B, S], padded on either side; each row has at least one token
            target: ids [B, T], shifted right; padded on the right, where the causal mask hides it
            src_key_padding_mask: bool [B, S], True at padding, as in torch.nn.Transformer; by
                default where the ids are ``padding_idx``

        Raises:
            ValueError: source and target have different numbers of sentences; or, on a CPU, the
                padding is not as described.
        """
        check_padding(source, target, self.padding_idx, src_key_padding_mask)
        return self.decoder(target, self.encoder(source, src_key_padding_mask))

    def reset_parameters(self) -> None:
        """Draw new initial values, by the scheme ``config.init``; norms get gain 1 and bias 0.

        A shared output matrix is shared again, which ``to_empty`` undoes. Parameters of a variant's
        own parts are not changed, unless they are in an nn.Embedding, an nn.LayerNorm or the
        paper's projections.
        """
        if not self.config.untie_embeddings:
            self.decoder.output_projection.weight = self.decoder.embedding.tokens.weight
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        initialise(self, str(self.config.init))

    def build_encoder(self, tokens: nn.Embedding) -> Encoder:
        """Build the encoder (3.1) from its token embedding."""
        config = self.config
        positions = self.build_positions(config.encoder_learned_pos, config.max_source_positions)
        embedding = self.build_embedding(tokens, positions)
        layers = [self.build_encoder_layer() for _ in range(config.encoder_layers)]
        return Encoder(embedding, layers, self.build_end_of_stack(config.encoder_normalize_before))

    def build_decoder(self, tokens: nn.Embedding, output: nn.Linear) -> Decoder:
        """Build the decoder (3.1) from its token embedding and the output matrix."""
        config = self.config
        positions = self.build_positions(config.decoder_learned_pos, config.max_target_positions)
        embedding = self.build_embedding(tokens, positions)
        layers = [self.build_decoder_layer() for _ in range(config.decoder_layers)]
        final_norm = self.build_end_of_stack(config.decoder_normalize_before)
        return Decoder(embedding, layers, output, final_norm)

    def build_encoder_layer(self) -> EncoderLayer:
        """Build an encoder layer, with add and norm after each sub-layer (3.1)."""
        norm_first = self.config.encoder_normalize_before
        return EncoderLayer(
            self.build_self_attention(self.config.encoder_attention_heads),
            self.build_around(norm_first),
            self.build_feed_forward(self.config.encoder_ffn_embed_dim),
            self.build_around(norm_first),
        )

    def build_decoder_layer(self) -> DecoderLayer:
        """Build a decoder layer, with add and norm after each sub-layer (3.1)."""
        norm_first = self.config.decoder_normalize_before
        return DecoderLayer(
            self.build_self_attention(self.config.decoder_attention_heads),
            self.build_around(norm_first),
            self.build_cross_attention(self.config.decoder_attention_heads),
            self.build_around(norm_first),
            self.build_feed_forward(self.config.decoder_ffn_embed_dim),
            self.build_around(norm_first),
        )

    def build_embedding(self, tokens: nn.Embedding, positions: nn.Module) -> InputEmbedding:
        """Build the sum of scaled tokens and positions (3.4, 3.5)."""
        return InputEmbedding(tokens, positions, self.config.dropout)

    def build_positions(self, learned: bool, max_length: int) -> nn.Module:
        """Build sinusoids, or a learned table of ``max_length`` rows (3.5)."""
        if learned:
            return LearnedPositions(max_length, self.d_model)
        return SinusoidalPositions(self.d_model, str(self.config.sinusoid_layout), self.padding_idx)

    def build_self_attention(self, heads: int) -> SelfAttention:
        """Build self-attention with ``heads`` heads (3.2.2)."""
        return SelfAttention(
            self.d_model,
            heads,
            self.config.head_key_dim,
            self.config.head_value_dim,
            self.config.attention_dropout,
        )

    def build_cross_attention(self, heads: int) -> CrossAttention:
        """Build attention with ``heads`` heads over the encoder's output (3.2.3)."""
        return CrossAttention(
            self.d_model,
            heads,
            self.config.head_key_dim,
            self.config.head_value_dim,
            self.config.attention_dropout,
        )

    def build_feed_forward(self, d_ff: int) -> FeedForward:
        """Build the feed-forward network (3.3)."""
        activation = str(self.config.activation_fn)
        if activation != "relu":
            dropout = self.config.activation_dropout
            return ActivatedFeedForward(self.d_model, d_ff, dropout, activation)
        return FeedForward(self.d_model, d_ff, self.config.activation_dropout)

    def build_around(self, norm_first: bool) -> AddAndNorm:
        """Build the residual connection and norm around a sub-layer; the norm may be first."""
        if norm_first:
            return NormFirst(self.d_model, self.config.dropout, self.config.layer_norm_eps)
        return self.build_add_and_norm()

    def build_add_and_norm(self) -> AddAndNorm:
        """Build the paper's residual connection and norm around a sub-layer (3.1, 5.4)."""
        return AddAndNorm(self.d_model, self.config.dropout, self.config.layer_norm_eps)

    def build_end_of_stack(self, norm_first: bool) -> nn.Module:
        """Build a norm after the last layer, if the norms of the layers come first."""
        if norm_first:
            return nn.LayerNorm(self.d_model, self.config.layer_norm_eps)
        return self.build_final_norm()

    def build_final_norm(self) -> nn.Module:
        """Build the end of each stack: none in the paper, whose layers end with a norm."""
        return nn.Identity()

    @classmethod
    def from_pretrained(cls: type[Model], folder: str | Path, **options: Any) -> Model:
        """Load the model of a folder that ``vaswani pack`` made, in evaluation mode.

        Args:
            folder: the folder
            options: ``attention``, ``device`` and ``dtype`` of the constructor

        Raises:
            ValueError: the folder is not a packed model, was made by another version, was changed,
                or holds a variant, which only its own class can load.
            OSError: a file is missing.
        """
        return cls.from_packed(read_packed(folder), **options)

    @classmethod
    def from_packed(cls: type[Model], packed: PackedModel, **options: Any) -> Model:
        """Load the model of a folder that :func:`.io.packed.read_packed` has read.

        Options and errors as in :meth:`from_pretrained`.
        """
        if packed.variant and cls is Transformer:
            raise ValueError(
                f"{packed.folder} is a {packed.variant.arch!r}, a variant of the paper's model: "
                "load it with from_pretrained of its own class, a subclass of Transformer"
            )
        parameters = packed.parameters()
        sizes = (packed.config, len(packed.source), len(packed.target))
        with errors_of(packed.folder / CONFIG), WithoutDraws(), torch.device("meta"):
            expected = cls(*sizes).state_dict()  # shapes alone: they may exceed the memory
        packed.check_shapes(parameters, expected)
        model = cls(*sizes, **options)
        model.load_state_dict(parameters)
        return model.eval()


def check_padding(
    source: Tensor, target: Tensor, padding_idx: int, is_padding: Tensor | None = None
) -> None:
    """Raise ValueError for padding that would give NaN or wrong results.

    Nothing is checked on a GPU, where the host would have to wait for the values, nor while a graph
    is traced, which has no values.
    """
    if source.device.type != "cpu" or is_traced():
        return
    if is_padding is None:
        is_padding = source.eq(padding_idx)
    elif is_padding.shape != source.shape or is_padding.dtype != torch.bool:
        raise ValueError(
            f"src_key_padding_mask is {is_padding.dtype} {list(is_padding.shape)}: give bool "
            f"{list(source.shape)}, True at padding"
        )
    if is_padding.all(dim=1).any():
        raise ValueError(
            f"a row of the source has only padding (id {padding_idx}), so its attention weights "
            "would be NaN: leave this row out of the batch"
        )
    if target[:, :1].eq(padding_idx).any():
        raise ValueError(
            f"a row of the target begins with padding (id {padding_idx}), which the causal mask "
            "does not hide from the words after it: pad targets on the right"
        )


def source_has_own_matrix(config: TransformerConfig) -> bool:
    """Return whether the source embedding is not the decoder's matrix; in the paper it is (3.4).

    As in fairseq, share_all_embeddings implies share_decoder_input_output_embed.
    """
    decoder_alone = config.share_decoder_input_output_embed and not config.share_all_embeddings
    return bool(config.untie_embeddings or decoder_alone)


def embedding_matrices(
    config: TransformerConfig,
    source_vocab_size: int,
    target_vocab_size: int,
    padding_idx: int = PAD,
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """Return the embeddings of source and target and the output matrix, one parameter (3.4).

    They are different parameters only if the options say so. ``padding_idx`` stops the gradient of
    lookups only. With one shared matrix the row of padding still changes, because the softmax
    lowers its logit. That does no harm: nothing reads the row.

    Raises:
        ValueError: the sizes of vocabularies that would share a matrix differ.
    """
    dim = config.encoder_embed_dim
    source = nn.Embedding(source_vocab_size, dim, padding_idx=padding_idx)
    output = nn.Linear(dim, target_vocab_size, bias=False)
    target = source
    if source_has_own_matrix(config):
        target = nn.Embedding(target_vocab_size, dim, padding_idx=padding_idx)
    elif source_vocab_size != target_vocab_size:
        raise ValueError(
            f"vocabularies with {source_vocab_size} source and {target_vocab_size} target entries "
            "cannot share one embedding matrix: join the vocabularies, or set untie_embeddings"
        )
    if not config.untie_embeddings:
        output.weight = target.weight
    return source, target, output
