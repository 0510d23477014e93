"""The decoder (section 3.1): embeddings, a stack of N layers, the pre-softmax matrix (3.4).

Shape letters: B batch, S source, T target, D model width, H heads, V vocabulary.
Everything is batch-first.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import Mask, causal_mask
from .cache import DecoderCache, LayerCache
from .embedding import InputEmbedding
from .encoder import Memory
from .layers import DecoderLayer, LayerContext


class AttentionWeights(NamedTuple):
    """Attention weights of each layer, or of the layers that were requested."""

    self_attention: list[Tensor]
    """[B, H, T', T]"""
    cross_attention: list[Tensor]
    """[B, H, T', S]"""


class DecoderContext(NamedTuple):
    """Options of a pass through the stack, for kernels, decoding and plots."""

    is_causal: bool = False
    """No position attends to later ones (3.2.3), without a mask; only for a whole sequence."""
    cache: DecoderCache | None = None
    """Keys and values of the earlier positions; only the new positions are computed."""
    need_weights: bool = False
    """Return the attention weights of every layer."""
    need_alignment: bool = False
    """Return at least the weights of the last layer's cross-attention."""

    @property
    def need_any_weights(self) -> bool:
        """Whether any attention weights are needed."""
        return self.need_weights or self.need_alignment


NO_CONTEXT = DecoderContext()
"""A pass over a whole sequence, masked by its mask alone."""


class Decoder(nn.Module):
    """Embeddings, a stack of N layers, and the pre-softmax matrix without a bias.

    The target must be padded on the right: then the causal mask alone hides every pad from
    every real token.

    Args:
        embedding: of target tokens and positions
        layers: N of them
        output_projection: D → V
        final_norm: ends the stack; none in the paper, where each layer ends with a norm
    """

    def __init__(
        self,
        embedding: InputEmbedding,
        layers: Iterable[DecoderLayer],
        output_projection: nn.Linear,
        final_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = nn.Identity() if final_norm is None else final_norm
        self.output_projection = output_projection
        if output_projection.weight is embedding.tokens.weight:
            self.register_load_state_dict_post_hook(share_output_matrix)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Return the logits [B, T, V] of a target [B, T], shifted right and padded on the right."""
        return self.output_layer(self.features(tokens, memory)[0])

    def features(
        self,
        tokens: Tensor,
        memory: Memory,
        cache: DecoderCache | None = None,
        need_weights: bool = False,
        need_alignment: bool = False,
    ) -> tuple[Tensor, AttentionWeights]:
        """Return the input of :meth:`output_layer`, and attention weights.

        Args:
            tokens: [B, T]
            memory: the encoder's output for the same B sentences
            cache: keys and values of the earlier positions; only the new positions are computed
            need_weights: return the weights of every layer
            need_alignment: return at least the weights of the last layer's cross-attention, which
                align target and source; the other layers need not store theirs

        Returns:
            Features [B, T', D], where T' counts the positions that the cache does not have yet; and
            the weights.

        Raises:
            ValueError: ``memory`` has another number of sentences.
        """
        sources, targets = memory.states.size(0), tokens.size(0)
        if sources != targets:  # one sentence would be repeated for all targets
            raise ValueError(
                f"{sources} sources and {targets} targets: a batch needs a source for each target"
            )
        cached = 0 if cache is None else cache.length
        x = self.embedding(tokens, skip=cached)  # [B, T', D]
        # one query alone is the newest token: nothing is later, so no mask
        several = x.size(1) > 1
        is_causal = several and not cached
        mask = None
        if several and cached:
            mask = causal_mask(tokens.size(1), x.device)[cached:]  # [T', T]
        context = DecoderContext(is_causal, cache, need_weights, need_alignment)
        return self.run_layers(x, memory, mask, context)

    def step(self, tokens: Tensor, memory: Memory, cache: DecoderCache) -> Tensor:
        """Return the logits [R, V] of the next token, after each hypothesis' newest token [R]."""
        position = torch.full((1, 1), cache.length, device=tokens.device)
        length = cache.length + 1
        x = self.embedding.embed(tokens[:, None], positions=position, length=length)  # [R, 1, D]
        x, _ = self.run_layers(x, memory, context=DecoderContext(cache=cache))
        return self.output_layer(x[:, 0])

    def run_layers(
        self, x: Tensor, memory: Memory, mask: Mask = None, context: DecoderContext = NO_CONTEXT
    ) -> tuple[Tensor, AttentionWeights]:
        """Pass embeddings [B, T', D] through the stack; ``mask`` as in :class:`DecoderLayer`."""
        weights = AttentionWeights([], [])
        memory_mask = memory.mask
        for index, layer in enumerate(self.layers):
            layer_context = self.layer_context(context, index, weights)
            x = layer(x, mask, memory.states, memory_mask, layer_context)
        if context.cache is not None:
            context.cache.advance(x.size(1))
        return self.final_norm(x), weights

    def layer_context(
        self, context: DecoderContext, index: int, weights: AttentionWeights
    ) -> LayerContext:
        """Return the context of layer ``index``; its weights, if needed, go into ``weights``."""
        is_last = index == len(self.layers) - 1
        need_cross_weights = context.need_weights or (context.need_alignment and is_last)
        return LayerContext(
            is_causal=context.is_causal,
            cache=None if context.cache is None else LayerCache(context.cache, index),
            self_weights=weights.self_attention if context.need_weights else None,
            cross_weights=weights.cross_attention if need_cross_weights else None,
        )

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the logits [..., V] of features [..., D]; every search computes them here.

        In training, fairseq's criterion multiplies by the same matrix itself, within the loss.
        """
        return self.output_projection(features)


def share_output_matrix(decoder: Decoder, incompatible_keys: object) -> None:
    """Make the pre-softmax matrix the embedding's again (3.4).

    ``load_state_dict(assign=True)`` gives each name a parameter of its own.
    """
    decoder.output_projection.weight = decoder.embedding.tokens.weight
