"""Sections 3.1 and 3.3 by formula: the feed-forward network, sum and norm around a sub-layer."""

import pytest
import torch
from torch import nn

from tests.plain.small import small_model
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.layers import AddAndNorm, FeedForward, LayerContext


@pytest.mark.paper("3.3")
def test_equation_2_by_hand() -> None:
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, the same at every position."""
    ffn = FeedForward(embed_dim=3, ffn_embed_dim=4).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    w1, b1, w2, b2 = ffn.fc1.weight, ffn.fc1.bias, ffn.fc2.weight, ffn.fc2.bias
    inner = torch.einsum("bld,fd->blf", x, w1) + b1
    assert (inner < 0).any() and (inner > 0).any()
    expected = torch.einsum("blf,df->bld", inner.clamp(min=0), w2) + b2
    torch.testing.assert_close(ffn(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ffn(x)[:, 2:3], ffn(x[:, 2:3]), rtol=1e-12, atol=1e-12)


@pytest.mark.paper("3.1")
def test_the_norm_is_of_the_sum() -> None:
    """LayerNorm(x + Sublayer(x)): mean 0 and variance 1 of the sum, then gain and bias."""
    module = AddAndNorm(embed_dim=6, dropout=0.5, eps=1e-6).double().eval()
    with torch.no_grad():
        module.norm.weight.uniform_(0.5, 2)
        module.norm.bias.uniform_(-1, 1)
    x, output = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    total = x + output
    centred = total - total.mean(-1, keepdim=True)
    normal = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    expected = normal * module.norm.weight + module.norm.bias
    torch.testing.assert_close(module(x, lambda _: output), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.paper("5.4")
def test_dropout_comes_before_the_sum() -> None:
    """Section 5.4: it spares what the residual connection carries."""
    module = AddAndNorm(16, 0.5)
    module.norm = nn.Identity()  # type: ignore[assignment]
    x, output = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    found = module(x, lambda _: output) - x
    dropped = found.abs().lt(1e-6)
    assert 50 < dropped.sum() < 110
    torch.testing.assert_close(found, (2 * output).masked_fill(dropped, 0.0))


@pytest.mark.paper("3.1", "figure 1")
def test_an_encoder_layer_is_its_sub_layers_in_order() -> None:
    """x + attention, then + feed-forward, each with its own norm after the sum."""
    layer = small_model().encoder.layers[0]
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    mask = torch.rand(5, 5) < 0.8
    mask.fill_diagonal_(True)
    first = layer.after_self_attention.norm(x + layer.self_attention(x, mask))
    expected = layer.after_feed_forward.norm(first + layer.feed_forward(first))
    torch.testing.assert_close(layer(x, mask), expected, rtol=0, atol=1e-12)


@pytest.mark.paper("3.1", "figure 1")
def test_a_decoder_layer_is_its_sub_layers_in_order() -> None:
    layer = small_model().decoder.layers[0]
    x, memory = torch.randn(2, 5, 16).double(), torch.randn(2, 4, 16).double()
    mask = causal_mask(5)
    memory_mask = torch.tensor([True, True, True, False])
    first = layer.after_self_attention.norm(x + layer.self_attention(x, mask))
    attended = layer.cross_attention(first, memory, memory_mask)
    second = layer.after_cross_attention.norm(first + attended)
    expected = layer.after_feed_forward.norm(second + layer.feed_forward(second))
    found = layer(x, None, memory, memory_mask, LayerContext(is_causal=True))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
