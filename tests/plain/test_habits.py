"""What users of PyTorch expect of a module: where and in which type it is made, masks, its text."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.plain.small import PAD, SIZES, TYPES, batch, small_model
from vaswani_transformer import Transformer, TransformerConfig
from vaswani_transformer.fast.attention import FastSelfAttention


def new(**options: Any) -> Transformer:
    return Transformer(TransformerConfig(**SIZES), TYPES, TYPES, **options)


def test_a_model_is_made_on_a_device_and_in_a_type() -> None:
    model = new(device="meta", dtype=torch.float64)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    torch.manual_seed(1)
    expected = new().double().state_dict()
    torch.manual_seed(1)
    torch.testing.assert_close(new(dtype=torch.float64).state_dict(), expected, rtol=0, atol=0)


def test_a_model_from_meta_is_materialised_by_the_usual_two_calls() -> None:
    """``to_empty`` and ``reset_parameters``: as a new model of the same seed."""
    torch.manual_seed(1)
    expected = new().state_dict()
    torch.manual_seed(1)
    model = new(device="meta").to_empty(device="cpu")
    torch.manual_seed(1)
    again = new()
    source, previous, _ = batch()
    torch.manual_seed(2)
    model.reset_parameters()
    torch.manual_seed(2)
    again.reset_parameters()
    torch.testing.assert_close(model.state_dict(), again.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(
        model.eval()(source, previous), again.eval()(source, previous), rtol=0, atol=0
    )
    assert not torch.equal(
        again.state_dict()["decoder.output_projection.weight"],
        expected["decoder.output_projection.weight"],
    )


def test_new_initial_values_reset_the_norms() -> None:
    model = new()
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    with torch.no_grad():
        for norm in norms:
            norm.weight.fill_(3)
    model.reset_parameters()
    assert all(torch.equal(norm.weight, torch.ones_like(norm.weight)) for norm in norms)


def test_a_mask_says_what_the_ids_do_not() -> None:
    """With the mask of the ids nothing changes; with another id under it nothing does, either."""
    model = small_model()
    source, previous, _ = batch()
    mask = source.eq(PAD)
    expected = model(source, previous)
    torch.testing.assert_close(model(source, previous, mask), expected, rtol=0, atol=1e-12)
    other_ids = source.masked_fill(mask, 7)
    torch.testing.assert_close(model(other_ids, previous, mask), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(model(other_ids, previous), expected)


@pytest.mark.parametrize("mask", [torch.ones(3, 2), torch.ones(1, 1, dtype=torch.bool)])
def test_a_mask_of_another_shape_or_type_is_refused(mask: torch.Tensor) -> None:
    source, previous, _ = batch()
    with pytest.raises(ValueError, match="src_key_padding_mask"):
        small_model()(source, previous, mask)


def test_torchs_attention_gives_the_same_logits() -> None:
    source, previous, _ = batch()
    torch.manual_seed(0)
    readable = new(dtype=torch.float64).eval()
    torch.manual_seed(0)
    fused = new(dtype=torch.float64, attention="sdpa").eval()
    assert type(fused.encoder.layers[0].self_attention) is FastSelfAttention
    torch.testing.assert_close(
        fused(source, previous), readable(source, previous), rtol=0, atol=1e-12
    )
    with pytest.raises(ValueError, match="'readable' or 'sdpa'"):
        new(attention="flash")


def test_the_text_of_a_model_has_heads_and_widths() -> None:
    assert "num_heads=4, key_dim=4, value_dim=4" in repr(new())


@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_compiling"), reason="torch 2.2 cannot trace the whole model"
)
@pytest.mark.parametrize("attention", ["readable", "sdpa"])
def test_the_model_is_compiled_as_one_graph(attention: Any) -> None:
    """``torch.compile(fullgraph=True)``, traced alone, as a compiler takes a minute."""
    torch.manual_seed(0)
    model = new(dtype=torch.float64, attention=attention).eval()
    source, previous, _ = batch()
    expected = model(source, previous)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(source, previous), expected, rtol=0, atol=1e-12)
