"""Computes what a training costs: operations, memory, disk and time. Numbers in, numbers out.

Letters: d width (d_model), f feed-forward width (d_ff), h heads of widths k and v (d_k, d_v),
S and T mean source and target lengths, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any

#: weight, gradient and Adam's two moments, in float32; a checkpoint has no gradients
BYTES_PER_PARAMETER, SAVED_PER_PARAMETER = 16, 12
#: estimates, chosen too large rather than too small: what CUDA and the allocator keep for
#: themselves, and the sentence length that attention weights are counted for
RESERVED_BYTES = 1.5e9
LONG_SENTENCE = 256
#: the share of a GPU's memory that a plan uses: sentences and allocator gaps vary between batches
HEADROOM = 0.9
#: fairseq leaves out sentences longer than max_tokens; tensor2tensor trained on up to 256 tokens
LEAST_TOKENS = 256
#: section 5.2: GPUs in the paper's machine
PAPER_GPUS = 8


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, in the paper's letters; encoder and decoder may differ."""

    encoder_layers: int
    decoder_layers: int
    d: int
    encoder_f: int
    decoder_f: int
    encoder_heads: int
    decoder_heads: int
    vocabulary: int
    key_width: int | None = None
    value_width: int | None = None

    def projection_width(self, heads: int) -> float:
        """Return h (k + v) / 2, which is d unless the head widths are given."""
        even = self.d / heads
        return heads * ((self.key_width or even) + (self.value_width or even)) / 2


def sizes_of(model: Any, vocabulary: int) -> Sizes:
    """Return the sizes from a model's configuration, the plugin's or fairseq's."""
    return Sizes(
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        d=model.encoder_embed_dim,
        encoder_f=model.encoder_ffn_embed_dim,
        decoder_f=model.decoder_ffn_embed_dim,
        encoder_heads=model.encoder_attention_heads,
        decoder_heads=model.decoder_attention_heads,
        vocabulary=vocabulary,
        key_width=model.get("head_key_dim"),
        value_width=model.get("head_value_dim"),
    )


def source_flops(sizes: Sizes, source: float) -> float:
    """Return the forward operations for one source token in sentences of ``source`` tokens.

    A matrix product takes 2 operations per weight (multiply, add). An encoder layer has the four
    projections (3.2.2), 4 d · hk weights if k = v, and two feed-forward matrices (3.3), 2 df. Each
    query meets S keys and weighs S values: 2 S · hk each. The decoder's keys and values over the
    encoder's output, 2 d · hk weights per decoder layer, are computed once per source token.
    """
    e, p = sizes.projection_width(sizes.encoder_heads), sizes.projection_width(sizes.decoder_heads)
    layer = 2 * (4 * sizes.d * e + 2 * sizes.d * sizes.encoder_f) + 4 * source * e
    return sizes.encoder_layers * layer + sizes.decoder_layers * 4 * sizes.d * p


def target_flops(sizes: Sizes, source: float, target: float) -> float:
    """Return the forward operations for one target token in sentences of these lengths.

    A decoder layer has four projections for its self-attention and two (queries, output) over the
    encoder, 6 d · hk weights, and 2 df. A position attends to T / 2 others on average (the causal
    mask), 2 T · hk in all, and to S source tokens, 4 S · hk. The output matrix (3.4) has d V
    weights.
    """
    p = sizes.projection_width(sizes.decoder_heads)
    layer = 2 * (6 * sizes.d * p + 2 * sizes.d * sizes.decoder_f) + 2 * target * p + 4 * source * p
    return sizes.decoder_layers * layer + 2 * sizes.d * sizes.vocabulary


def training_flops(
    sizes: Sizes,
    updates: int,
    source_tokens: float,
    target_tokens: float,
    lengths: tuple[float, float],
) -> float:
    """Return all operations of a training; ``*_tokens``: real tokens per update, ``lengths``: (S,
    T).

    The backward pass has two products (for the gradients of input and weight) for each one in the
    forward pass, hence 3. Padding, norms, softmax and the optimizer are not counted.
    """
    source, target = lengths
    forward = source_tokens * source_flops(sizes, source)
    forward += target_tokens * target_flops(sizes, source, target)
    return 3 * updates * forward


@dataclass(frozen=True)
class MemoryUse:
    """What an update keeps in memory besides the parameters, as the experiment computes it."""

    #: bytes per number that a product reads or writes: 2 in bf16 and fp16
    product_bytes: int = 4
    #: attention weights, [H, T, S] per sentence; the fused kernels keep none
    attention_weights: bool = True
    #: the logits of a whole batch; our criterion with our model computes some rows at a time
    logits: bool = True
    #: how many rows that is
    loss_rows: int = 0
    #: the loss is compiled: the logits of all tokens and their gradient, in the products' type
    compiled_loss: bool = False
    #: DDP's buckets: a second gradient of each parameter, in float32
    gradient_buckets: bool = False
    #: of each layer only its input is kept, and one layer at a time is computed again
    checkpointed: bool = False


def activation_bytes(sizes: Sizes, use: MemoryUse) -> float:
    """Estimate the bytes that one source and one target position hold until the backward pass.

    An attention block keeps queries, keys, values and their weighted mean, 4 hk, and the inputs of
    its products, 2 d; a feed-forward block keeps 2 f and 2 d. Both keep a sum and a norm, 2 d in
    float32. If attention is computed as the formula reads, its block keeps the weights of a long
    sentence, hS, in float32 and again in bf16. A decoder layer has two attention blocks. If logits
    are kept, their log-probabilities and their gradient are, too: 3 V. With checkpointed
    activations each layer keeps its input, d in float32, and the rest exists for one layer at a
    time.
    """
    wide = 4 * 2 * sizes.d
    copies = 4 + (use.product_bytes if use.product_bytes < 4 else 0)

    def layer(heads: int, inner: int, blocks: int) -> float:
        products = 4 * sizes.projection_width(heads) + 2 * sizes.d
        weights = copies * heads * LONG_SENTENCE if use.attention_weights else 0
        attention = use.product_bytes * products + wide + weights
        return blocks * attention + use.product_bytes * (2 * inner + 2 * sizes.d) + wide

    encoder = layer(sizes.encoder_heads, sizes.encoder_f, 1)
    decoder = layer(sizes.decoder_heads, sizes.decoder_f, 2)
    logits = 4 * 3 * sizes.vocabulary if use.logits else 0
    if use.checkpointed:
        inputs = 4 * sizes.d * (sizes.encoder_layers + sizes.decoder_layers)
        return inputs + max(encoder, decoder) + logits
    return sizes.encoder_layers * encoder + sizes.decoder_layers * decoder + logits


def output_bytes(sizes: Sizes, max_tokens: int, use: MemoryUse) -> float:
    """Return the memory of the loss in bytes, in float32, if logits are not kept.

    It is the logits and probabilities of some rows, and the gradient of the output matrix, which is
    computed with them and copied once in the backward pass. If the loss is compiled, it is the
    logits of all rows and their gradient.
    """
    if use.compiled_loss:
        return 2.0 * use.product_bytes * sizes.vocabulary * max_tokens
    if use.logits:
        return 0.0
    rows = min(max_tokens, use.loss_rows)
    return 4.0 * sizes.vocabulary * (2 * rows + 2 * sizes.d)


def memory_bytes(sizes: Sizes, parameters: int, max_tokens: int, use: MemoryUse) -> float:
    """Estimate one GPU's memory in training with ``max_tokens`` padded tokens per batch, in bytes.

    In bf16 it includes a second copy of the matrices, in that type.
    """
    bytes_per_parameter = BYTES_PER_PARAMETER + (use.product_bytes if use.product_bytes < 4 else 0)
    bytes_per_parameter += 4 if use.gradient_buckets else 0
    fixed = RESERVED_BYTES + bytes_per_parameter * parameters
    batch = max_tokens * activation_bytes(sizes, use)
    return fixed + output_bytes(sizes, max_tokens, use) + batch


def tokens_that_fit(sizes: Sizes, parameters: int, memory: float, use: MemoryUse) -> int:
    """Return the largest ``max_tokens`` that fits ``memory`` bytes; -1 if the model does not
    fit.
    """
    least = -1
    most = int(memory // activation_bytes(sizes, use)) + 1
    while most - least > 1:
        middle = (least + most) // 2
        if memory_bytes(sizes, parameters, middle, use) <= memory:
            least = middle
        else:
            most = middle
    return least


def share_out(padded: float, gpus: int, most: int) -> tuple[int, int]:
    """Return (max_tokens, update_freq) for ``padded`` tokens per update in the fewest batches."""
    freq = max(1, math.ceil(padded / gpus / most))
    return max(8, round(padded / gpus / freq / 8) * 8), freq
