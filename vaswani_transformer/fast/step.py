"""A step of a search as one function: to the bit what the layers compute one by one.

On a fast device most of a step's time is Python's: each module that is called looks for hooks,
and each layer makes the same views again. Here the modules' own ``forward`` are called, in the
order of layers.py, for the paper's layers alone; all other layers run as they are.

Shape letters: L layers, R rows (hypotheses), B sentences, P positions so far, S source,
D model width, H heads, K width of each head's queries and keys, V of its values.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention import Mask
from ..cache import DecoderCache
from ..decoder import NO_CONTEXT, AttentionWeights, Decoder, DecoderContext
from ..embedding import is_traced
from ..encoder import Memory
from ..layers import AddAndNorm, DecoderLayer, FeedForward
from .attention import FastCrossAttention, FastSelfAttention, fused_attention
from .dropout import FastDropout
from .linear import FastLinear

Function = Callable[[Tensor], Tensor]

AROUND: dict[str, type[nn.Module]] = {"": AddAndNorm, ".dropout": nn.Dropout, ".norm": nn.LayerNorm}
"""The types of a residual connection and its parts."""
LAYER: dict[str, type[nn.Module]] = {
    "": DecoderLayer,
    "self_attention": FastSelfAttention,
    "self_attention.dropout": nn.Dropout,
    "self_attention.out_proj": nn.Linear,
    "self_attention.qkv_proj": nn.Linear,
    "cross_attention": FastCrossAttention,
    "cross_attention.dropout": nn.Dropout,
    "cross_attention.out_proj": nn.Linear,
    "cross_attention.q_proj": nn.Linear,
    "cross_attention.kv_proj": nn.Linear,
    "feed_forward": FeedForward,
    "feed_forward.fc1": nn.Linear,
    "feed_forward.dropout": nn.Dropout,
    "feed_forward.fc2": nn.Linear,
    **{f"after_self_attention{part}": kind for part, kind in AROUND.items()},
    **{f"after_cross_attention{part}": kind for part, kind in AROUND.items()},
    **{f"after_feed_forward{part}": kind for part, kind in AROUND.items()},
}
"""The exact types of the paper's layer and of all its parts, by their names in it."""
SAME: dict[type[nn.Module], type[nn.Module]] = {FastLinear: nn.Linear, FastDropout: nn.Dropout}
"""Fast classes that may take the place of a type in ``LAYER``."""
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""torch's names of the hooks of all modules, and of one module."""


class LayerFunctions(NamedTuple):
    """The functions that a layer calls, in this order: the ``forward`` of its parts."""

    qkv_proj: Function
    self_out_proj: Function
    after_self_attention: Function
    q_proj: Function
    cross_out_proj: Function
    after_cross_attention: Function
    fc1: Function
    fc2: Function
    after_feed_forward: Function


def functions_of(layer: DecoderLayer) -> LayerFunctions:
    """Return the functions of one of the paper's layers."""
    return LayerFunctions(
        layer.self_attention.qkv_proj.forward,
        layer.self_attention.out_proj.forward,
        layer.after_self_attention.norm.forward,
        layer.cross_attention.q_proj.forward,
        layer.cross_attention.out_proj.forward,
        layer.after_cross_attention.norm.forward,
        layer.feed_forward.fc1.forward,
        layer.feed_forward.fc2.forward,
        layer.after_feed_forward.norm.forward,
    )


def is_paper_layer(layer: nn.Module) -> bool:
    """Return whether a layer computes what :class:`DecoderStep` computes.

    Its types are those in ``LAYER``, dropout is off, and no module has a hook or a method of its
    own.
    """
    types = {}
    for name, module in layer.named_modules():
        types[name] = SAME.get(type(module), type(module))
        if module.training or is_changed(module):
            return False
    return types == LAYER


def is_changed(module: nn.Module) -> bool:
    """Return whether calling a module does more than its class's ``forward``."""
    own = vars(module)
    if not methods_of(module.__class__).isdisjoint(own):
        return True
    return any(own[name] for name in HOOKS)


@lru_cache(maxsize=None)
def methods_of(kind: type[nn.Module]) -> frozenset[str]:
    """Return the names of a class's methods, including those of its parents."""
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name)))


def has_global_hooks() -> bool:
    """Return whether a hook is registered for all modules of the process."""
    return any(getattr(torch.nn.modules.module, name) for name in GLOBAL_HOOKS)


class DecoderStep:
    """A decoder's stack for one position of each hypothesis, without gradients.

    It holds modules' methods and no tensor, and is made anew for each search. A hook that is
    registered in the middle of a search is called from the next search on.

    Args:
        layers: the decoder's, all of them the paper's and of one shape
    """

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        self.layers = [functions_of(layer) for layer in layers]
        attention = layers[0].self_attention
        self.heads = attention.num_heads
        self.key_dim = attention.key_dim
        self.value_dim = attention.value_dim
        self.widths = [attention.key_width, attention.value_width]
        self.query_width = attention.key_width

    def __call__(self, x: Tensor, memory_mask: Mask, cache: DecoderCache) -> Tensor:
        """Return the output [R, 1, D] of the stack for the newest token of each hypothesis.

        Args:
            x: embeddings [R, 1, D]
            memory_mask: hides padding: [B, 1, 1, S]
            cache: has room for one more position, and the source's keys and values
        """
        rows = x.size(0)
        x = x[:, 0]
        assert cache.steps is not None
        filled = cache.steps[: cache.length + 1]  # [P, L, R, H·(K + V)]
        keys, values = filled.split_with_sizes(self.widths, dim=-1)
        keys_of = self.by_layer(keys, self.key_dim)
        values_of = self.by_layer(values, self.value_dim)
        newest = filled[-1].unbind(0)
        widths = [self.query_width, filled.size(-1)]
        joined_width = self.widths[1]  # H·V
        for index, layer in enumerate(self.layers):
            query, key_value = layer.qkv_proj(x).split_with_sizes(widths, dim=-1)
            newest[index].copy_(key_value)
            query = query.view(rows, self.heads, 1, self.key_dim)
            attended = fused_attention(query, keys_of[index], values_of[index])  # [R, H, 1, V]
            attended = layer.self_out_proj(attended.reshape(rows, joined_width))
            x = layer.after_self_attention(x + attended)
            key, value = cache.cross[index]  # type: ignore[misc]  # [B, H, S, K], [B, H, S, V]
            # k hypotheses of a sentence as one of k tokens: [B, H, k, K]
            query = layer.q_proj(x).view(key.size(0), -1, self.heads, self.key_dim).transpose(1, 2)
            attended = fused_attention(query, key, value, memory_mask)  # [B, H, k, V]
            attended = attended.transpose(1, 2).reshape(rows, joined_width)
            x = layer.after_cross_attention(x + layer.cross_out_proj(attended))
            x = layer.after_feed_forward(x + layer.fc2(layer.fc1(x).relu_()))
        cache.advance(1)
        return x[:, None]

    def by_layer(self, steps: Tensor, width: int) -> tuple[Tensor, ...]:
        """Return views [R, H, P, width] of each layer's part of steps [P, L, R, H·width]."""
        positions, layers, rows, _ = steps.shape
        heads = steps.view(positions, layers, rows, self.heads, width)
        return heads.permute(1, 2, 3, 0, 4).unbind(0)


def make_step(decoder: Decoder) -> DecoderStep | None:
    """Return the function for a decoder's steps; None unless all its layers are the paper's."""
    layers: list[Any] = list(decoder.layers)
    if not layers or has_global_hooks() or not all(is_paper_layer(layer) for layer in layers):
        return None
    shapes = set()
    for layer in layers:
        for attention in (layer.self_attention, layer.cross_attention):
            shapes.add((attention.num_heads, attention.key_dim, attention.value_dim))
    return DecoderStep(layers) if len(shapes) == 1 else None


class FastDecoder(Decoder):
    """:class:`Decoder` whose steps are one function, if all its layers are the paper's.

    A search's first step, which also projects the source's keys and values, runs layer by layer;
    so does one for which the cache has to grow.
    """

    def run_layers(
        self, x: Tensor, memory: Memory, mask: Mask = None, context: DecoderContext = NO_CONTEXT
    ) -> tuple[Tensor, AttentionWeights]:
        """Pass embeddings through the stack, in one function where possible."""
        cache = context.cache
        is_step = x.size(1) == 1 and mask is None and not context.need_any_weights
        step = self.step_of(cache) if is_step and cache is not None and len(x) else None
        if step is None:
            return super().run_layers(x, memory, mask, context)
        assert cache is not None
        x = step(x, memory.mask, cache)
        return self.final_norm(x), AttentionWeights([], [])

    def step_of(self, cache: DecoderCache) -> DecoderStep | None:
        """Return the function for the next step; None if it has to run layer by layer."""
        if cache.steps is None or cache.length == cache.steps.size(0):
            return None
        if torch.is_grad_enabled() or is_traced():
            return None
        if cache.step is None:  # made once per search
            cache.step = make_step(self) or False
        return cache.step or None
