"""The encoder (section 3.1) behind fairseq's interface.

Shape letters: B batch, S source, D model width, H heads. Everything is batch-first.
"""

from typing import Dict, List, Optional, Sequence

from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from .attention import Mask, SelfAttention, padding_mask
from .config import VaswaniTransformerConfig
from .embedding import InputEmbedding, LearnedPositions
from .layers import AddAndNorm, EncoderLayer, FeedForward
from .precision import autocast

EncoderOut = Dict[str, List[Tensor]]
"""An encoder's output in fairseq's form: lists, empty if there is nothing to return. Here every
tensor has the batch as its first dimension:

``encoder_out`` [B, S, D]; ``encoder_padding_mask`` bool [B, S], True at padding, left out when
nothing is padded; ``encoder_attention`` per layer [B, H, S, S], on request. The decoder needs the
first, and the second of an encoder that pads: any other encoder may return them.
"""

UNLIMITED = 10**6
"""What a part without a limit of its own reports; the task's limit then decides."""


class VaswaniEncoder(FairseqEncoder):
    """A stack of N layers without a final norm: each layer already ends with one.

    Args:
        cfg: the model's configuration
        dictionary: the source dictionary
        embedding: of source tokens and positions
    """

    def __init__(
        self, cfg: VaswaniTransformerConfig, dictionary: object, embedding: InputEmbedding
    ) -> None:
        super().__init__(dictionary)
        self.precision = str(cfg.precision)
        self.embedding = embedding
        self.layers = nn.ModuleList(self.build_layer(cfg) for _ in range(cfg.encoder_layers))

    def build_layer(self, cfg: VaswaniTransformerConfig) -> EncoderLayer:
        """One layer of the sizes in ``cfg``; override to vary it."""
        dim = cfg.encoder_embed_dim
        return EncoderLayer(
            SelfAttention(
                dim,
                cfg.encoder_attention_heads,
                key_dim=cfg.head_key_dim,
                value_dim=cfg.head_value_dim,
                dropout=cfg.attention_dropout,
                implementation=str(cfg.attention_impl),
            ),
            FeedForward(dim, cfg.encoder_ffn_embed_dim, cfg.activation_dropout),
            lambda: AddAndNorm(dim, cfg.dropout, cfg.layer_norm_eps),
        )

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        need_head_weights: bool = False,
        **unused: object,
    ) -> EncoderOut:
        """Args:
            src_tokens: [B, S], padded on either side
            src_lengths: unused; padding is recognised from the tokens
            need_head_weights: also return each layer's attention weights per head

        Returns:
            See :data:`EncoderOut`.
        """
        with autocast(self.precision, src_tokens.device):
            x = self.embedding(src_tokens)
            padding = self.find_padding(src_tokens)
            mask = source_mask(padding, like=x)
            weights = []
            for layer in self.layers:
                x, layer_weights = layer(x, mask, need_weights=need_head_weights)
                weights.append(layer_weights)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": padding,
            "encoder_attention": weights if need_head_weights else [],
        }

    def find_padding(self, src_tokens: Tensor) -> List[Tensor]:
        """[B, S] → one mask of that shape, or none if a cheap check shows that none is needed.

        On a GPU the check is left out: the host would wait for the device in every forward pass.
        """
        is_padding = src_tokens.eq(self.dictionary.pad())
        if is_padding.device.type == "cpu" and not is_padding.any():
            return []
        return [is_padding]

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """``encoder_out`` with its batch in ``new_order`` [B'], as beam search asks."""
        return {
            name: [tensor.index_select(0, new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        """The longest source in tokens; sinusoids have no limit of their own."""
        positions = self.embedding.positions
        return positions.num_embeddings if isinstance(positions, LearnedPositions) else UNLIMITED


def source_mask(padding: Optional[Sequence[Tensor]], like: Tensor) -> Mask:
    """An encoder's ``encoder_padding_mask`` for attention: additive [B, 1, 1, S], or None.

    It is made when it is needed and never returned: fairseq's search for the module that first
    put out NaN or infinity would report its -inf.
    """
    return padding_mask(padding[0], like) if padding else None
