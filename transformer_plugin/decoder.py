"""The decoder behind fairseq's interface: its incremental state, weights and probabilities.

Shape letters: B batch, S source, T target, D model width, H heads, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from vaswani_transformer.attention import padding_mask
from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.decoder import Decoder, DecoderContext
from vaswani_transformer.embedding import LearnedPositions
from vaswani_transformer.fast.chunked_loss import projected_loss
from vaswani_transformer.fast.linear import FastLinear
from vaswani_transformer.fast.step import FastDecoder
from vaswani_transformer.loss import accumulation_dtype
from vaswani_transformer.precision import autocast

from .config import VaswaniTransformerConfig
from .encoder import UNLIMITED, EncoderOut, memory_of

CACHE = "vaswani_cache"
"""The key of the :class:`DecoderCache` in fairseq's incremental state."""


class VaswaniDecoder(FairseqIncrementalDecoder, FastDecoder):
    """The paper's decoder as fairseq calls it; the target must be padded on the right.

    Args:
        cfg: the model's configuration
        dictionary: the target dictionary
        decoder: the decoder whose parts it uses
    """

    projected_loss = staticmethod(projected_loss)
    """The loss from features and the output matrix; ``--compile`` sets another function."""

    def __init__(self, cfg: VaswaniTransformerConfig, dictionary: object, decoder: Decoder) -> None:
        Decoder.__init__(
            self,
            decoder.embedding,
            decoder.layers,
            decoder.output_projection,
            decoder.final_norm,
        )
        self.init_incremental_state()
        self.dictionary = dictionary
        # every decoder of fairseq's has these two
        self.onnx_trace = False
        self.adaptive_softmax = None
        self.precision = str(cfg.precision)

    @property
    def computes_losses(self) -> bool:
        """Whether ``forward`` accepts a ``loss`` of the features and the output matrix.

        It does if the logits are exactly their product, and fast kernels may be used. A subclass or
        a user may have replaced a method between the features and the probabilities.
        """
        methods = ("output_layer", "get_normalized_probs", "forward")
        own = (getattr(getattr(self, name), "__func__", None) for name in methods)
        original = [getattr(VaswaniDecoder, name) for name in methods]
        return type(self.output_projection) is FastLinear and list(own) == original

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        need_head_weights: bool = False,
        loss: Callable[[Tensor, Tensor], Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Return the logits of the next tokens, and attention weights.

        Args:
            prev_output_tokens: [B, T], the target shifted right, padded on the right
            encoder_out: the output of an encoder, see :data:`EncoderOut`
            incremental_state: holds the cache in incremental decoding; then only new positions are
                computed
            features_only: leave out the output projection
            full_context_alignment: every position also attends to later ones
            alignment_layer: layer whose cross-attention is ``attn``, from 0; the last by default
            alignment_heads: number of first heads over which ``attn`` is averaged; all by default
            need_head_weights: also return every layer's attention weights per head
            loss: function of the features [B, T, D] and the output matrix [V, D], whose result is
                returned in place of the logits

        Returns:
            Logits [B, T', V] (or features [B, T', D]), where T' is T, or the number of new
            positions in incremental decoding; and a dictionary: ``attn``, a list with a layer's
            cross-attention averaged over its heads [B, T', S] (None in training and with
            ``loss``, unless ``alignment_layer`` or ``alignment_heads`` requests it), and on request
            ``decoder_attention`` and ``cross_attention``, per layer [B, H, T', T] and
            [B, H, T', S].

        Raises:
            ValueError: see :meth:`extract_features`.
        """
        with autocast(self.precision, prev_output_tokens.device):
            features, extra = self.extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
                need_head_weights,
                need_alignment=loss is None,
            )
            if loss is not None:
                return loss(features, self.output_projection.weight), extra
            return (features if features_only else self.output_layer(features)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        need_head_weights: bool = False,
        need_alignment: bool = True,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the features [B, T', D] and attention weights; arguments as in :meth:`forward`.

        ``need_alignment``: whether ``attn`` is needed outside of training.

        Raises:
            ValueError: there is no such layer, or no such number of heads; or the full context is
                requested in incremental decoding, which does not have the later positions.
        """
        self.check_alignment(alignment_layer, alignment_heads)
        if full_context_alignment and incremental_state is not None:
            raise ValueError(
                "full_context_alignment needs the whole target: leave out incremental_state"
            )
        cache = None
        if incremental_state is not None:  # empty at the first step
            cache = incremental_state.setdefault(CACHE, DecoderCache(len(self.layers)))
        memory = memory_of(encoder_out)
        need_all = need_head_weights or alignment_layer is not None
        need_last = alignment_heads is not None or (need_alignment and not self.training)
        if full_context_alignment:
            x = self.embedding(prev_output_tokens)
            padding = prev_output_tokens.eq(self.embedding.tokens.padding_idx)
            context = DecoderContext(need_weights=need_all, need_alignment=need_last)
            x, weights = self.run_layers(x, memory, padding_mask(padding), context)
        else:
            x, weights = self.features(prev_output_tokens, memory, cache, need_all, need_last)
        alignment = None
        if weights.cross_attention:
            layer = -1 if alignment_layer is None else alignment_layer
            alignment = weights.cross_attention[layer][:, :alignment_heads].mean(dim=1)
        extra: dict[str, Any] = {"attn": [alignment]}  # [B, T', S]
        if need_head_weights:
            extra["decoder_attention"] = weights.self_attention
            extra["cross_attention"] = weights.cross_attention
        return x, extra

    def check_alignment(self, layer: int | None, heads: int | None) -> None:
        """Raise ValueError for a layer, or a number of heads, that this decoder does not have."""
        layers = len(self.layers)
        if layer is not None and not 0 <= layer < layers:
            raise ValueError(f"alignment_layer is {layer}, but must be from 0 to {layers - 1}")
        most = self.layers[layer or 0].cross_attention.num_heads
        if heads is not None and not 1 <= heads <= most:
            raise ValueError(f"alignment_heads is {heads}, but must be from 1 to {most}")

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the logits [B, T, V] of features [B, T, D]."""
        return Decoder.output_layer(self, features)

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: Any = None
    ) -> Tensor:
        """Return the probabilities [B, T, V], or their logarithms; float64 stays float64.

        fairseq's own function returns float32.
        """
        logits = net_output[0]
        function = torch.log_softmax if log_probs else torch.softmax
        return function(logits, dim=-1, dtype=accumulation_dtype(logits.dtype))

    def reorder_incremental_state(
        self, incremental_state: dict[str, Any], new_order: Tensor
    ) -> None:
        """Put the cache's rows into ``new_order`` [B'], at each step of fairseq's beam search.

        fairseq treats every hypothesis as a separate sentence, and reorders the encoder output,
        too.
        """
        cache = incremental_state.get(CACHE)
        if cache is not None:
            cache.reorder(new_order)
            cache.select_sentences(new_order)

    def max_positions(self) -> int:
        """Return the longest target in tokens; sinusoids have no limit of their own."""
        positions = self.embedding.positions
        return positions.num_embeddings if isinstance(positions, LearnedPositions) else UNLIMITED
