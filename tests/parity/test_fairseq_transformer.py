"""Logits, loss and gradients equal fairseq's own ``transformer`` with the same weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerModelBase,
)
from torch import Tensor, nn

from tests.models import batch, dictionary, small_model, task
from tests.rounding import rounding_of_small_model
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer.embedding import sinusoids, token_positions


class PositionTable(nn.Module):
    """Our positions in the place of fairseq's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(64, 16))

    def forward(self, tokens: Tensor, **unused: Any) -> Tensor:
        return self.table[token_positions(tokens, padding_idx=1)]


def reference(ours: VaswaniTransformerModel, keep_positions: bool) -> TransformerModelBase:
    """fairseq's model with ε set to ours and our weights."""
    cfg = TransformerConfig()
    cfg.dropout = 0.0
    cfg.share_decoder_input_output_embed = ours.cfg.share_decoder_input_output_embed
    cfg.share_all_embeddings = not cfg.share_decoder_input_output_embed
    cfg.max_source_positions = cfg.max_target_positions = 64
    for side in (cfg.encoder, cfg.decoder):
        side.layers, side.embed_dim, side.ffn_embed_dim, side.attention_heads = 2, 16, 32, 4
    cfg.decoder.input_dim = cfg.decoder.output_dim = 16
    words = dictionary()
    theirs = TransformerModelBase.build_model(cfg, task(words, words))
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    if not keep_positions:
        theirs.encoder.embed_positions = PositionTable()
        theirs.decoder.embed_positions = PositionTable()
    with torch.no_grad():
        theirs.encoder.embed_tokens.weight.copy_(ours.encoder.embedding.tokens.weight)
        theirs.decoder.embed_tokens.weight.copy_(ours.decoder.embedding.tokens.weight)
        for layer, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
            copy_layer(layer, other)
            other.final_layer_norm.load_state_dict(layer.after_feed_forward.norm.state_dict())
        for layer, other in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
            copy_layer(layer, other)
            cross, to = layer.cross_attention, other.encoder_attn
            copy_linear(cross.q_proj.weight, cross.q_proj.bias, to.q_proj)
            for part, linear in enumerate((to.k_proj, to.v_proj)):
                rows = slice(16 * part, 16 * (part + 1))
                copy_linear(cross.kv_proj.weight[rows], cross.kv_proj.bias[rows], linear)
            to.out_proj.load_state_dict(cross.out_proj.state_dict())
            other.encoder_attn_layer_norm.load_state_dict(
                layer.after_cross_attention.norm.state_dict()
            )
            other.final_layer_norm.load_state_dict(layer.after_feed_forward.norm.state_dict())
    return theirs


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    attention, to = ours.self_attention, theirs.self_attn
    for part, linear in enumerate((to.q_proj, to.k_proj, to.v_proj)):
        rows = slice(16 * part, 16 * (part + 1))
        copy_linear(attention.qkv_proj.weight[rows], attention.qkv_proj.bias[rows], linear)
    to.out_proj.load_state_dict(attention.out_proj.state_dict())
    theirs.self_attn_layer_norm.load_state_dict(ours.after_self_attention.norm.state_dict())
    theirs.fc1.load_state_dict(ours.feed_forward.fc1.state_dict())
    theirs.fc2.load_state_dict(ours.feed_forward.fc2.state_dict())


def copy_linear(weight: Tensor, bias: Tensor, linear: nn.Linear) -> None:
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)


@pytest.mark.paper("3.1", "3.2.2", "3.3")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_fairseq(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our positions as a table in fairseq's model, and its softmax in the model's precision.

    fairseq's cross-attention takes its softmax in fp32 whatever the model's precision is.
    """
    monkeypatch.setattr(
        "fairseq.modules.multihead_attention.utils.softmax",
        lambda x, dim, onnx_trace=False: torch.softmax(x, dim),
    )
    compare(small_model().to(dtype), keep_positions=False, dtype=dtype)


def test_fairseq_layout_equals_fairseqs_own_positions() -> None:
    """``--sinusoid-layout fairseq`` needs no table: fairseq's checkpoints can be read."""
    ours = small_model(sinusoid_layout="fairseq")
    compare(ours, keep_positions=True, dtype=torch.float32)


def test_the_decoders_matrix_is_fairseqs() -> None:
    """``--share-decoder-input-output-embed``."""
    ours = small_model(sinusoid_layout="fairseq", share_decoder_input_output_embed=True)
    compare(ours, keep_positions=True, dtype=torch.float32)


def compare(ours: VaswaniTransformerModel, keep_positions: bool, dtype: torch.dtype) -> None:
    atol = rounding_of_small_model(dtype)
    theirs = reference(ours, keep_positions).to(dtype)
    source, previous, target = batch()
    losses = []
    for model in (ours, theirs):
        logits, _ = model(source, source.ne(1).sum(1), previous)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=1)
        loss.backward()
        losses.append((logits[target.ne(1)], loss))
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=atol)

    def same(ours_grad: Tensor, theirs_grad: Tensor) -> None:
        assert theirs_grad.abs().max() > 0
        torch.testing.assert_close(ours_grad, theirs_grad, rtol=0, atol=atol)

    same(ours.encoder.embedding.tokens.weight.grad, theirs.encoder.embed_tokens.weight.grad)
    same(ours.decoder.embedding.tokens.weight.grad, theirs.decoder.embed_tokens.weight.grad)
    for layer, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        parts = (other.self_attn.q_proj, other.self_attn.k_proj, other.self_attn.v_proj)
        same(layer.self_attention.qkv_proj.weight.grad, torch.cat([p.weight.grad for p in parts]))
        same(layer.feed_forward.fc1.weight.grad, other.fc1.weight.grad)
    for layer, other in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
        parts = (other.encoder_attn.k_proj, other.encoder_attn.v_proj)
        same(layer.cross_attention.kv_proj.weight.grad, torch.cat([p.weight.grad for p in parts]))
        same(layer.cross_attention.q_proj.weight.grad, other.encoder_attn.q_proj.weight.grad)
        same(layer.after_feed_forward.norm.bias.grad, other.final_layer_norm.bias.grad)
