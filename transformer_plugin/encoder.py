"""The encoder behind fairseq's interface.

Shape letters: B batch, S source, D model width, H heads.
"""

from fairseq.models import FairseqEncoder
from torch import Tensor

from vaswani_transformer.embedding import LearnedPositions
from vaswani_transformer.encoder import Encoder, Memory
from vaswani_transformer.fast.attention import FastEncoder
from vaswani_transformer.precision import autocast

from .config import VaswaniTransformerConfig

EncoderOut = dict[str, list[Tensor]]
"""An encoder's output in fairseq's form: lists, empty if there is nothing to return. Here every
tensor has the batch as its first dimension:

``memory`` [B, S, D]; ``encoder_padding_mask`` bool [B, S], True at padding, left out if nothing is
padded; ``encoder_attention`` per layer [B, H, S, S], on request. The decoder needs the first, and
the second if there is padding; any encoder that returns them can be used. fairseq's
``encoder_out`` [S, B, D] is missing: code that reads it fails.
"""

UNLIMITED = 10**6
"""Reported by a part without its own length limit; the task's limit then applies."""


def memory_of(encoder_out: EncoderOut) -> Memory:
    """Return the memory, to which the decoder attends."""
    padding = encoder_out.get("encoder_padding_mask") or [None]
    return Memory(encoder_out["memory"][0], padding[0])


class VaswaniEncoder(FairseqEncoder, FastEncoder):
    """The paper's encoder as fairseq calls it.

    Args:
        cfg: the model's configuration
        dictionary: the source dictionary
        encoder: the encoder whose parts it uses
    """

    def __init__(self, cfg: VaswaniTransformerConfig, dictionary: object, encoder: Encoder) -> None:
        Encoder.__init__(self, encoder.embedding, encoder.layers, encoder.final_norm)
        self.dictionary = dictionary
        self.precision = str(cfg.precision)

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        need_head_weights: bool = False,
    ) -> EncoderOut:
        """Return the encoder's output in fairseq's form.

        Args:
            src_tokens: [B, S], padded on either side
            src_lengths: unused; padding is recognised from the tokens
            need_head_weights: also return each layer's attention weights per head

        Returns:
            See :data:`EncoderOut`.
        """
        with autocast(self.precision, src_tokens.device):
            memory, weights = self.encode(src_tokens, need_head_weights)
        return {
            "memory": [memory.states],
            "encoder_padding_mask": [] if memory.is_padding is None else [memory.is_padding],
            "encoder_attention": weights,
        }

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Return ``encoder_out`` with its batch in ``new_order`` [B'], for beam search."""
        return {
            name: [tensor.index_select(0, new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        """Return the longest source in tokens; sinusoids have no limit of their own."""
        positions = self.embedding.positions
        return positions.num_embeddings if isinstance(positions, LearnedPositions) else UNLIMITED
