"""Wrong inputs of the paper's files are refused in a sentence, instead of giving wrong numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.plain.small import PAD, batch, small_model
from vaswani_transformer import Transformer, base, beam_search
from vaswani_transformer.attention import (
    CrossAttention,
    SelfAttention,
    attention,
    causal_mask,
)
from vaswani_transformer.embedding import SinusoidalPositions
from vaswani_transformer.encoder import Memory
from vaswani_transformer.fast import use_fast_kernels

HEADS = torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(1))


def by_formula(mask: Tensor, is_causal: bool = False) -> Tensor:
    return attention(HEADS, HEADS, HEADS, mask, is_causal=is_causal)[0]


def by_module(mask: Tensor, is_causal: bool = False) -> Tensor:
    return SelfAttention(16, 2)(torch.randn(1, 4, 16), mask, is_causal=is_causal)


def by_kernel(mask: Tensor, is_causal: bool = False) -> Tensor:
    module: Any = use_fast_kernels(SelfAttention(16, 2))
    return module(torch.randn(1, 4, 16), mask, is_causal=is_causal)


@pytest.mark.parametrize("attend", [by_formula, by_module, by_kernel])
def test_a_mask_of_zeros_and_ones_is_refused(attend: Any) -> None:
    """Added to the scores, it would hide nothing."""
    with pytest.raises(TypeError, match="int64.*mask == 1"):
        attend(causal_mask(4).long())


@pytest.mark.parametrize("attend", [by_formula, by_module, by_kernel])
def test_a_mask_besides_is_causal_is_refused(attend: Any) -> None:
    """As by torch's function; one of them would be lost."""
    with pytest.raises(ValueError, match="is_causal"):
        attend(torch.ones(4, 4, dtype=torch.bool), is_causal=True)


def test_both_masks_together_hide_what_each_hides() -> None:
    """What the message says to do."""
    hidden = torch.tensor([True, True, False, True])
    _, weights = attention(HEADS, HEADS, HEADS, hidden & causal_mask(4))
    expected = torch.tensor(
        [[True, False, False, False]]
        + [[True, True, False, False]] * 2
        + [[True, True, False, True]]
    )
    assert torch.equal(weights.gt(0), expected.expand_as(weights))


def test_a_target_padded_on_the_left_is_refused() -> None:
    source, previous, _ = batch()
    left = torch.cat([torch.full((3, 1), PAD), previous], dim=1)
    with pytest.raises(ValueError, match="pad targets on the right"):
        small_model()(source, left)


def test_a_source_of_padding_alone_is_refused() -> None:
    """Attention over nothing is NaN."""
    source, previous, _ = batch()
    source[1] = PAD
    assert small_model().encoder(source).states[1].isnan().all()
    with pytest.raises(ValueError, match="only padding"):
        small_model()(source, previous)


def test_sources_and_targets_are_as_many() -> None:
    """One source would be repeated for three targets."""
    model = small_model()
    source, previous, _ = batch()
    with pytest.raises(ValueError, match="1 sources and 3 targets"):
        model(source[:1], previous)
    with pytest.raises(ValueError, match="2 sources and 3 targets"):
        model.decoder.features(previous, Memory(model.encoder(source).states[:2]))


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"d_model": 63, "heads": 7}, "63 is odd.*encoder_learned_pos"),
        ({"d_model": 64, "heads": 0}, "encoder_attention_heads must be at least 1, not 0"),
        ({"d_model": 64, "heads": 3}, "64 is not divisible by encoder_attention_heads 3"),
        ({"layers": -1}, "encoder_layers must be at least 1, not -1"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1, not 0"),
        ({"d_ff": 0}, "encoder_ffn_embed_dim must be at least 1, not 0"),
        ({"head_key_dim": 0}, "head_key_dim must be at least 1, not 0"),
        ({"decoder_embed_dim": 256}, "encoder_embed_dim 512 and decoder_embed_dim 256"),
        ({"init": "xavier"}, "'xavier' is not one of t2t, fairseq"),
        ({"sinusoid_layout": "rotary"}, "'rotary' is not one of paper"),
    ],
)
def test_a_model_that_cannot_be_is_refused_when_it_is_made(sizes: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Transformer(base(**sizes), 24, 24)


def test_an_odd_width_is_refused_where_positions_are_sinusoids() -> None:
    with pytest.raises(ValueError, match="7 is odd"):
        SinusoidalPositions(7)
    learned = base(d_model=63, heads=7, d_ff=8, layers=1)
    learned.encoder_learned_pos = learned.decoder_learned_pos = True
    source, previous, _ = batch()
    assert Transformer(learned, 24, 24)(source, previous).shape == (3, 7, 24)


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_attention_without_heads_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="num_heads is 0"):
        kind(16, 0)


def test_a_beam_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="--beam must be above 0, not 0"):
        beam_search(small_model(), batch()[0], beam=0)


@pytest.mark.slow
def test_a_graph_without_values_is_traced() -> None:
    """torch.compile sees no ids to look at: one graph, without a break, from torch 2.6 on."""
    model = small_model()
    source, previous, _ = batch()
    whole = hasattr(torch.compiler, "is_compiling")
    compiled = torch.compile(model, backend="eager", fullgraph=whole)
    assert torch.equal(compiled(source, previous), model(source, previous))
