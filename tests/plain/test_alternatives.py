"""Norms before the sub-layers and other activations, by formula."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.plain.small import PAD, batch, small_model
from vaswani_transformer.alternatives import ACTIVATIONS
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.config import ACTIVATION_NAMES, base, check_sizes


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sides", [("encoder",), ("decoder",), ("encoder", "decoder")])
def test_pre_norm_is_that_of_the_flags_side(sides: tuple[str, ...]) -> None:
    """x + Sublayer(LayerNorm(x)) in each layer, a norm after the last; the other side post-norm."""
    options = {f"{side}_normalize_before": True for side in sides}
    model = small_model(**options)
    source, previous, _ = batch()
    hidden = source.eq(PAD)[:, None, None, :]

    def around(side: str, module: Any, x: Tensor, sublayer: Any) -> Tensor:
        return x + sublayer(module.norm(x)) if side in sides else module.norm(x + sublayer(x))

    def last_norm(side: str, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6) if side in sides else x

    x = model.encoder.embedding(source)
    for layer in model.encoder.layers:
        attend = layer.self_attention
        x = around("encoder", layer.after_self_attention, x, lambda x, f=attend: f(x, ~hidden))
        x = around("encoder", layer.after_feed_forward, x, layer.feed_forward)
    memory = last_norm("encoder", x)
    y = model.decoder.embedding(previous)
    mask = causal_mask(previous.size(1))
    for layer in model.decoder.layers:
        own, cross = layer.self_attention, layer.cross_attention
        y = around("decoder", layer.after_self_attention, y, lambda y, f=own: f(y, mask))
        y = around(
            "decoder", layer.after_cross_attention, y, lambda y, f=cross: f(y, memory, ~hidden)
        )
        y = around("decoder", layer.after_feed_forward, y, layer.feed_forward)
    expected = model.decoder.output_projection(last_norm("decoder", y))
    assert_close(model(source, previous), expected)


FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "swish": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_the_activation_is_that_of_the_flag(name: str) -> None:
    model = small_model(activation_fn=name)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for side in (model.encoder, model.decoder):
        ffn: Any = side.layers[1].feed_forward
        inner = FORMULAS[name](x @ ffn.fc1.weight.t() + ffn.fc1.bias)
        assert_close(ffn(x), inner @ ffn.fc2.weight.t() + ffn.fc2.bias)


def test_each_activation_has_a_name_and_another_name_is_refused() -> None:
    assert list(ACTIVATIONS) == ACTIVATION_NAMES
    with pytest.raises(ValueError, match="activation_fn tanh is not one of relu, gelu, swish"):
        check_sizes(base(activation_fn="tanh"))
