"""Logits, loss and gradients equal torch's ``nn.Transformer`` with the same weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models import batch, small_model
from tests.rounding import rounding_of_small_model
from transformer_plugin.model import VaswaniTransformerModel


def reference(ours: VaswaniTransformerModel) -> nn.Transformer:
    """``nn.Transformer`` without its two final norms, with our ε and our weights."""
    theirs = nn.Transformer(
        d_model=16,
        nhead=4,
        num_encoder_layers=2,
        num_decoder_layers=2,
        dim_feedforward=32,
        dropout=0.0,
        layer_norm_eps=1e-6,
        batch_first=True,
    )
    theirs.encoder.norm = theirs.decoder.norm = None
    with torch.no_grad():
        for layer, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
            copy_self_attention(layer.self_attention, other.self_attn)
            copy_common(layer, other)
            other.norm1.load_state_dict(layer.after_self_attention.norm.state_dict())
            other.norm2.load_state_dict(layer.after_feed_forward.norm.state_dict())
        for layer, other in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
            copy_self_attention(layer.self_attention, other.self_attn)
            cross, to = layer.cross_attention, other.multihead_attn
            to.in_proj_weight.copy_(torch.cat([cross.q_proj.weight, cross.kv_proj.weight]))
            to.in_proj_bias.copy_(torch.cat([cross.q_proj.bias, cross.kv_proj.bias]))
            to.out_proj.load_state_dict(cross.out_proj.state_dict())
            copy_common(layer, other)
            other.norm1.load_state_dict(layer.after_self_attention.norm.state_dict())
            other.norm2.load_state_dict(layer.after_cross_attention.norm.state_dict())
            other.norm3.load_state_dict(layer.after_feed_forward.norm.state_dict())
    return theirs


def copy_self_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
    theirs.in_proj_bias.copy_(ours.qkv_proj.bias)
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def copy_common(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.fc1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.fc2.state_dict())


def embed_by_formula(tokens: Tensor, table: Tensor) -> Tensor:
    """√d · embedding + PE(count of real tokens before), with scalar arithmetic (3.4, 3.5)."""
    dim = table.size(1)
    positions = torch.zeros(*tokens.shape, dim, dtype=table.dtype)
    for row, sentence in enumerate(tokens.tolist()):
        count = 0
        for column, token in enumerate(sentence):
            for i in range(dim):
                angle = count / 10000 ** (2 * (i // 2) / dim)
                positions[row, column, i] = math.sin(angle) if i % 2 == 0 else math.cos(angle)
            count += token != 1
    return table[tokens] * dim**0.5 + positions


def test_reference_parameters_are_all_ours() -> None:
    """The comparison below leaves nothing out: both have as many parameters but the embeddings."""
    ours = small_model()
    count = (
        sum(p.numel() for p in ours.parameters()) - ours.decoder.output_projection.weight.numel()
    )
    assert count == sum(p.numel() for p in reference(ours).parameters())


@pytest.mark.paper("3.1", "3.2.2", "3.3", "figure 1")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_nn_transformer(dtype: torch.dtype) -> None:
    atol = rounding_of_small_model(dtype)
    ours = small_model().to(dtype)
    theirs = reference(ours).to(dtype)
    source, previous, target = batch()
    logits, _ = ours(source, None, previous)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=1)
    loss.backward()

    table = ours.decoder.output_projection.weight.detach().clone().requires_grad_()
    causal = torch.triu(torch.ones(7, 7, dtype=torch.bool), diagonal=1)
    features = theirs(
        embed_by_formula(source, table),
        embed_by_formula(previous, table),
        tgt_mask=causal,
        src_key_padding_mask=source.eq(1),
        memory_key_padding_mask=source.eq(1),
    )
    expected = features @ table.T
    expected_loss = F.cross_entropy(expected.flatten(0, 1), target.flatten(), ignore_index=1)
    expected_loss.backward()

    real = target.ne(1)
    torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=atol)
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=atol)
    for layer, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        compare_gradients(
            layer.self_attention.qkv_proj.weight, other.self_attn.in_proj_weight, atol
        )
        compare_gradients(layer.feed_forward.fc1.weight, other.linear1.weight, atol)
        compare_gradients(layer.after_feed_forward.norm.weight, other.norm2.weight, atol)
    for layer, other in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
        cross = layer.cross_attention
        fused = other.multihead_attn.in_proj_weight
        compare_gradients(cross.q_proj.weight, fused, atol, rows=slice(0, 16))
        compare_gradients(cross.kv_proj.weight, fused, atol, rows=slice(16, 48))
        compare_gradients(layer.self_attention.qkv_proj.bias, other.self_attn.in_proj_bias, atol)
        compare_gradients(layer.feed_forward.fc2.bias, other.linear2.bias, atol)
    shared = ours.decoder.output_projection.weight.grad.clone()
    expected_shared = table.grad.clone()
    # nn.Embedding gives its padding row no gradient from the input; the plain table above does.
    torch.testing.assert_close(shared[2:], expected_shared[2:], rtol=0, atol=atol)


def compare_gradients(ours: Tensor, theirs: Tensor, atol: float, rows: slice = slice(None)) -> None:
    assert theirs.grad[rows].abs().max() > 0
    torch.testing.assert_close(ours.grad, theirs.grad[rows], rtol=0, atol=atol)
