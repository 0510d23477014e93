"""The initial weights: each matrix's limits by the table of initialisation.py."""

import math
from typing import Any

import pytest
from torch import Tensor, nn

from tests.plain.small import SIZES
from vaswani_transformer import Transformer, TransformerConfig
from vaswani_transformer.initialisation import SCHEMES

WIDE = {"encoder_embed_dim": 64, "decoder_embed_dim": 64, "head_key_dim": 8, "head_value_dim": 32}


def model(**options: Any) -> Transformer:
    """Build a model so wide that the largest number of a matrix is near its limit."""
    config = TransformerConfig(**{**SIZES, **WIDE, **options})
    return Transformer(config, 2000, 2000)


def parts(layer: nn.Module) -> dict[str, tuple[Tensor, float, float]]:
    """Return each matrix with its limit in tensor2tensor and in fairseq.

    d = 64, f = 32, h·dk = 32, h·dv = 128.
    """
    fused = layer.self_attention.qkv_proj.weight
    glorot = math.sqrt(6 / (64 + 32 + 32 + 128))
    query, key, value = fused.split([32, 32, 128])
    found = {
        "query": (query, glorot, math.sqrt(3 / 96)),
        "key": (key, glorot, math.sqrt(3 / 96)),
        "value": (value, glorot, math.sqrt(3 / 192)),
        "output": (layer.self_attention.out_proj.weight, *[math.sqrt(6 / 192)] * 2),
        "fc1": (layer.feed_forward.fc1.weight, math.sqrt(6 / 96), 64**-0.5),
        "fc2": (layer.feed_forward.fc2.weight, math.sqrt(6 / 96), 32**-0.5),
    }
    if hasattr(layer, "cross_attention"):
        cross = layer.cross_attention
        key, value = cross.kv_proj.weight.split([32, 128])
        found["cross query"] = (cross.q_proj.weight, math.sqrt(6 / 96), math.sqrt(3 / 96))
        found["cross key"] = (key, math.sqrt(6 / (64 + 160)), math.sqrt(3 / 96))
        found["cross value"] = (value, math.sqrt(6 / (64 + 160)), math.sqrt(3 / 192))
    return found


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_matrix_has_its_limit(scheme: str) -> None:
    own = model(init=scheme)
    for layer in (*own.encoder.layers, *own.decoder.layers):
        for name, (matrix, t2t, fairseq) in parts(layer).items():
            limit = t2t if scheme == "t2t" else fairseq
            assert 0.97 * limit < matrix.abs().max().item() <= limit * 1.0001, name
            assert matrix.std().item() == pytest.approx(limit / 3**0.5, rel=0.05), name


def test_biases_and_norms() -> None:
    """tensor2tensor's are zero; fairseq's within 1/√in, but for W^O's."""
    for scheme in SCHEMES:
        for name, parameter in model(init=scheme).named_parameters():
            if "norm" in name:
                assert parameter.eq(1.0 if name.endswith("weight") else 0.0).all(), name
            elif name.endswith("bias"):
                none = scheme == "t2t" or "out_proj" in name
                limit = 0.0 if none else (32 if "fc2" in name else 64) ** -0.5
                assert 0.8 * limit <= parameter.abs().max().item() <= limit * 1.0001, name


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_embeddings_positions_and_output_are_normal(scheme: str) -> None:
    """N(0, 1/√d), the padding row zero, whether they are shared or not."""
    learned = {"encoder_learned_pos": True, "max_source_positions": 1000}
    for options in ({}, {"untie_embeddings": True, **learned}):
        own = model(init=scheme, **options)
        assert own.decoder.output_projection.bias is None
        for name, parameter in own.named_parameters():
            if "embedding" in name or "output_projection" in name:
                assert parameter.std().item() == pytest.approx(64**-0.5, rel=0.02), name
        assert not own.encoder.embedding.tokens.weight[1].any()
