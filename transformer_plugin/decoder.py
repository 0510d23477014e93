"""The decoder (section 3.1) behind fairseq's interface: causal mask, caches, output projection.

Shape letters: B batch, S source, T target, D model width, H heads, V vocabulary.
Everything is batch-first.
"""

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from .attention import CrossAttention, Mask, SelfAttention, causal_mask
from .cache import DecoderCache
from .config import VaswaniTransformerConfig
from .embedding import InputEmbedding, LearnedPositions
from .encoder import UNLIMITED, EncoderOut, source_mask
from .layers import AddAndNorm, DecoderLayer, FeedForward
from .loss import accumulation_dtype
from .precision import autocast

CACHE = "vaswani_cache"
"""The key of the :class:`DecoderCache` in fairseq's incremental state."""


class VaswaniDecoder(FairseqIncrementalDecoder):
    """A stack of N layers without a final norm, and the pre-softmax matrix without a bias.

    The target must be padded on the right: then the causal mask alone hides every pad from
    every real token.

    Args:
        cfg: the model's configuration
        dictionary: the target dictionary
        embedding: of target tokens and positions
        output_projection: D → V

    Attributes:
        computes_losses: tells our criterion to pass ``forward`` its chunked ``loss``, instead of
            applying the formula to the logits
    """

    def __init__(
        self,
        cfg: VaswaniTransformerConfig,
        dictionary: object,
        embedding: InputEmbedding,
        output_projection: nn.Linear,
    ) -> None:
        super().__init__(dictionary)
        self.precision = str(cfg.precision)
        self.computes_losses = str(cfg.attention_impl) != "readable"
        self.embedding = embedding
        self.layers = nn.ModuleList(self.build_layer(cfg) for _ in range(cfg.decoder_layers))
        self.output_projection = output_projection

    def build_layer(self, cfg: VaswaniTransformerConfig) -> DecoderLayer:
        """One layer of the sizes in ``cfg``; override to vary it."""
        dim = cfg.decoder_embed_dim
        sizes: Dict[str, Any] = {
            "key_dim": cfg.head_key_dim,
            "value_dim": cfg.head_value_dim,
            "dropout": cfg.attention_dropout,
            "implementation": str(cfg.attention_impl),
        }
        return DecoderLayer(
            SelfAttention(dim, cfg.decoder_attention_heads, **sizes),
            CrossAttention(dim, cfg.decoder_attention_heads, **sizes),
            FeedForward(dim, cfg.decoder_ffn_embed_dim, cfg.activation_dropout),
            lambda: AddAndNorm(dim, cfg.dropout, cfg.layer_norm_eps),
        )

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: Optional[Dict[str, Any]] = None,
        features_only: bool = False,
        need_head_weights: bool = False,
        loss: Optional[Callable[[Tensor, Tensor], Any]] = None,
        **unused: object,
    ) -> Tuple[Any, Dict[str, Any]]:
        """Args:
            prev_output_tokens: [B, T], the target shifted right, padded on the right
            encoder_out: what an encoder returned, see :data:`EncoderOut`
            incremental_state: in incremental decoding, holds the caches; then only the
                positions not seen before are computed
            features_only: leave out the output projection
            need_head_weights: also return every layer's attention weights per head
            loss: computes, from the features [B, T, D] and the output matrix [V, D], what is
                returned in place of the logits

        Returns:
            Logits [B, T', V] (or features [B, T', D]), where T' is T, or the number of new
            positions in incremental decoding; and a dictionary: ``attn``, a list with the last
            layer's cross-attention averaged over its heads [B, T', S] (None in training and
            with ``loss``), and on request ``decoder_attention`` and ``cross_attention``, per layer
            [B, H, T', T] and [B, H, T', S].
        """
        with autocast(self.precision, prev_output_tokens.device):
            features, extra = self.extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
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
        incremental_state: Optional[Dict[str, Any]] = None,
        need_head_weights: bool = False,
        need_alignment: bool = True,
        **unused: object,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Like :meth:`forward`, without the output projection.

        ``need_alignment``: whether ``attn`` is wanted, outside of training.
        """
        cache = self.cache_in(incremental_state)
        seen = cache.length if cache else 0
        x = self.embedding(prev_output_tokens, skip=seen)
        mask: Mask = None
        if seen and x.size(1) > 1:  # several new positions after earlier ones
            mask = causal_mask(prev_output_tokens.size(1), like=x)[seen:]
        return self.run_layers(
            x,
            encoder_out,
            cache,
            mask,
            is_causal=not seen and x.size(1) > 1,
            need_head_weights=need_head_weights,
            need_alignment=need_alignment and not self.training,
        )

    def step(self, tokens: Tensor, encoder_out: EncoderOut, cache: DecoderCache) -> Tensor:
        """One step of beam search; computes only what the search needs.

        Args:
            tokens: [B·k], the newest token of each of k hypotheses per sentence
            encoder_out: of the B sentences
            cache: of the earlier steps

        Returns:
            Logits of the next token [B·k, V].
        """
        position = torch.full((1, 1), cache.length, device=tokens.device)
        x = self.embedding.at(position, tokens[:, None], length=cache.length + 1)
        x, _ = self.run_layers(x, encoder_out, cache)
        return self.output_layer(x[:, 0])

    def run_layers(
        self,
        x: Tensor,
        encoder_out: EncoderOut,
        cache: Optional[DecoderCache],
        mask: Mask = None,
        is_causal: bool = False,
        need_head_weights: bool = False,
        need_alignment: bool = False,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Pass [B, T', D] through the stack; returns weights on request, as :meth:`forward` does.

        ``mask`` and ``is_causal``: see :class:`DecoderLayer`.
        """
        memory = encoder_out["encoder_out"][0]
        memory_mask = source_mask(encoder_out.get("encoder_padding_mask"), like=x)
        self_weights, cross_weights = [], []
        for index, layer in enumerate(self.layers):
            is_last = index == len(self.layers) - 1
            x, self_attn, cross_attn = layer(
                x,
                mask,
                memory,
                memory_mask,
                cache=cache.layer(index) if cache else None,
                need_weights=(need_head_weights, need_head_weights or (is_last and need_alignment)),
                is_causal=is_causal,
            )
            self_weights.append(self_attn)
            cross_weights.append(cross_attn)
        if cache:
            cache.advance(x.size(1))
        alignment = cross_weights[-1]
        extra: Dict[str, Any] = {"attn": [None if alignment is None else alignment.mean(dim=1)]}
        if need_head_weights:
            extra.update(decoder_attention=self_weights, cross_attention=cross_weights)
        return x, extra

    def output_layer(self, features: Tensor, **unused: object) -> Tensor:
        """[B, T, D] → logits [B, T, V]."""
        return self.output_projection(features)

    def get_normalized_probs(
        self, net_output: Tuple[Tensor, Any], log_probs: bool, sample: Any = None
    ) -> Tensor:
        """softmax(logits), or its logarithm, [B, T, V]: as fairseq's, but float64 stays float64."""
        logits = net_output[0]
        function = torch.log_softmax if log_probs else torch.softmax
        return function(logits, dim=-1, dtype=accumulation_dtype(logits.dtype))

    def cache_in(self, incremental_state: Optional[Dict[str, Any]]) -> Optional[DecoderCache]:
        """This decoder's cache in fairseq's ``incremental_state``, created at the first step."""
        if incremental_state is None:
            return None
        return incremental_state.setdefault(CACHE, DecoderCache(len(self.layers)))

    def reorder_incremental_state(
        self, incremental_state: Dict[str, Any], new_order: Tensor
    ) -> None:
        """Put the cache's rows in ``new_order`` [B'], as fairseq's beam search asks at each step.

        It treats every hypothesis as a separate sentence, and reorders the encoder output too.
        """
        cache = incremental_state.get(CACHE)
        if cache is not None:
            cache.reorder(new_order)
            cache.select_sentences(new_order)

    def max_positions(self) -> int:
        """The longest target in tokens; sinusoids have no limit of their own."""
        positions = self.embedding.positions
        return positions.num_embeddings if isinstance(positions, LearnedPositions) else UNLIMITED
