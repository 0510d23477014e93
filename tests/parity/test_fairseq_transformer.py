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
from vaswani.model_folder.convert import from_fairseq, to_fairseq
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
    theirs.load_state_dict(to_fairseq(ours.state_dict()), strict=False)  # it has constants, too
    return theirs


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """By the name of each parameter, also where several are one matrix."""
    found = model.named_parameters(remove_duplicate=False)
    return {name: parameter.grad for name, parameter in found}


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
    """Logits and loss, and the gradient of every parameter."""
    close = {"rtol": 0, "atol": rounding_of_small_model(dtype)}
    theirs = reference(ours, keep_positions).to(dtype)
    source, previous, target = batch()
    outcomes = []
    for model in (ours, theirs):
        logits, _ = model(source, source.ne(1).sum(1), previous)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=1)
        loss.backward()
        outcomes.append((logits[target.ne(1)], loss))
    torch.testing.assert_close(*outcomes, **close)
    found, expected = gradients(ours), from_fairseq(gradients(theirs))
    assert all(gradient.any() for gradient in expected.values())
    torch.testing.assert_close(found, expected, **close)
