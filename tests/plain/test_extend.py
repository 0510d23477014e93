"""docs/extend.md in plain torch: its variants compute their formulas, at once and step by step."""

import cmath
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import extend
from tests.plain.small import PAD, SIZES, TYPES, batch, small_model, updates_to_learn
from transformer_check import check
from vaswani_transformer import Transformer, TransformerConfig
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.layers import DecoderLayer, EncoderLayer


def model_of(name: str, seed: int = 0, **options: Any) -> Transformer:
    """Build a variant as small as ``small_model``, in float64."""
    torch.manual_seed(seed)
    config = TransformerConfig(**{**SIZES, **options})
    return extend.variant(name)(config, TYPES, TYPES).double().eval()


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def parts_from_the_page(model: nn.Module, name: str) -> dict[str, type]:
    """Return the classes of the parts that a file of the page defines."""
    parts = {path: type(part) for path, part in model.named_modules()}
    return {path: kind for path, kind in parts.items() if kind.__module__ == name}


def test_gelu_by_formula() -> None:
    """x · Φ(x), with the normal distribution's Φ, on both sides."""
    model = model_of("gelu")
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for side in (model.encoder, model.decoder):
        ffn: Any = side.layers[1].feed_forward
        inner = x @ ffn.fc1.weight.t() + ffn.fc1.bias
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        assert_close(ffn(x), inner @ ffn.fc2.weight.t() + ffn.fc2.bias)


def test_rotary_by_formula() -> None:
    """In complex numbers: q at m times k at n is the real part of q · k̄ · e^(i(m-n)θ)."""
    attention: Any = model_of("rotary").encoder.layers[0].self_attention
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    heads = 4
    width = 4
    weights: list[Tensor] = []
    attention(x, weights=weights)
    query, key, _ = attention.qkv_proj(x)[0].detach().split(16, dim=-1)
    for head in range(heads):
        for m in range(6):
            scores = []
            for n in range(6):
                product = 0.0
                for pair in range(width // 2):
                    at = head * width + 2 * pair
                    q = complex(query[m, at], query[m, at + 1])
                    k = complex(key[n, at], key[n, at + 1])
                    turn = cmath.exp(1j * (m - n) * 10000 ** (-2 * pair / width))
                    product += (q * k.conjugate() * turn).real
                scores.append(product / math.sqrt(width))
            expected = torch.tensor(scores, dtype=torch.float64).softmax(0)
            assert_close(weights[0][0, head, m], expected, 1e-6)  # angles are in float32


def test_alibi_by_formula() -> None:
    """Each score is q·k / √d_k minus the head's slope times the distance, in both directions."""
    attention: Any = model_of("alibi").encoder.layers[0].self_attention
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    heads = 4
    width = 4
    hidden = torch.tensor([False] * 5 + [True])
    weights: list[Tensor] = []
    attention(x, ~hidden[None, None, None, :], weights=weights)
    query, key, _ = attention.qkv_proj(x)[0].detach().split(16, dim=-1)
    for head in range(heads):
        at = slice(head * width, (head + 1) * width)
        slope = 2 ** (-8 * (head + 1) / heads)
        for m in range(6):
            scores = []
            for n in range(5):
                product = float(query[m, at] @ key[n, at])
                scores.append(product / math.sqrt(width) - slope * abs(m - n))
            expected = torch.tensor([*scores, -math.inf], dtype=torch.float64).softmax(0)
            assert_close(weights[0][0, head, m], expected)


@pytest.mark.parametrize("name", ["rotary", "alibi"])
def test_a_variant_without_positions_knows_the_order(name: str) -> None:
    """As its attention has it: the paper's model without positions does not."""
    model = model_of(name)
    source, _, _ = batch()
    assert_close(
        model.encoder.embedding(source), model.encoder.embedding.tokens(source) * math.sqrt(16)
    )
    words = source[:1, :4]
    moved = model.encoder(words[:, [1, 0, 2, 3]]).states[:, [1, 0, 2, 3]]
    assert not torch.allclose(moved, model.encoder(words).states, atol=1e-3)


def test_the_card_of_a_variant_names_what_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ALiBi positions and scores, and none of the parts that are the paper's."""
    monkeypatch.setitem(sys.modules, "alibi", extend.module("alibi"))
    card = check(extend.module("check_variant"))
    sentences = [problem.sentence for problem in card.problems if problem.status != "variant"]
    assert sentences and all("position" in s or "order" in s for s in sentences), sentences


def test_pre_norm_by_formula() -> None:
    """x + Sublayer(LayerNorm(x)) in each layer, and a norm at the end of each stack."""
    model = model_of("pre_norm")
    source, previous, _ = batch()
    x = model.encoder.embedding(source)
    hidden = source.eq(PAD)[:, None, None, :]
    for layer in model.encoder.layers:
        x = x + layer.self_attention(layer.after_self_attention.norm(x), ~hidden)
        x = x + layer.feed_forward(layer.after_feed_forward.norm(x))
    memory = nn.functional.layer_norm(x, (16,), eps=1e-6)
    assert_close(model.encoder(source).states, memory)
    y = model.decoder.embedding(previous)
    mask = causal_mask(previous.size(1))
    for layer in model.decoder.layers:
        y = y + layer.self_attention(layer.after_self_attention.norm(y), mask)
        y = y + layer.cross_attention(layer.after_cross_attention.norm(y), memory, ~hidden)
        y = y + layer.feed_forward(layer.after_feed_forward.norm(y))
    expected = model.decoder.output_projection(nn.functional.layer_norm(y, (16,), eps=1e-6))
    assert_close(model(source, previous), expected)
    names = set(model.state_dict()) - set(small_model().state_dict())
    ends = {
        f"{side}.final_norm.{kind}"
        for side in ("encoder", "decoder")
        for kind in ("weight", "bias")
    }
    assert names == ends


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", extend.VARIANTS)
def test_step_by_step_a_variant_computes_what_it_computes_at_once(name: str, fast: bool) -> None:
    """With padding on both sides; and with the fast forms of the parts that are the paper's."""
    model = model_of(name)
    source, previous, target = batch()
    if fast:
        use_fast_kernels(model)
    memory = model.encoder(source)
    whole = model(source, previous)
    by_features, by_step = DecoderCache(layers=2), DecoderCache(layers=2)
    for place in range(previous.size(1)):
        real = target[:, place].ne(PAD)
        features, _ = model.decoder.features(previous[:, : place + 1], memory, by_features)
        assert_close(model.decoder.output_layer(features)[real, 0], whole[real, place])
        logits = model.decoder.step(previous[:, place], memory, by_step)
        assert_close(logits[real], whole[real, place])


@pytest.mark.parametrize("name", extend.VARIANTS)
def test_a_variant_is_not_replaced_by_the_papers_fast_form(name: str) -> None:
    """It differs from the paper's model, before and after."""
    model = model_of(name)
    paper = small_model()
    source, previous, _ = batch()
    logits = model(source, previous)
    assert not torch.allclose(logits, paper(source, previous), atol=1e-3)
    before = parts_from_the_page(model, name)
    use_fast_kernels(model)
    assert before and parts_from_the_page(model, name) == before
    assert_close(model(source, previous), logits)


@pytest.mark.parametrize("name", extend.VARIANTS)
def test_a_variant_trains(name: str) -> None:
    """Every parameter gets a gradient, and the loss of one batch falls to a tenth.

    After 26 to 41 updates with five seeds, on each of three instruction sets.
    """
    assert updates_to_learn(model_of(name).float(), most=200) > 1


def test_the_check_on_the_page_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """And fails for a variant that forgets where in the sentence a step is."""
    monkeypatch.setitem(sys.modules, "pre_norm", extend.module("pre_norm"))
    extend.module("check_steps")
    assert "step by step as all at once" in capsys.readouterr().out
    forgetful = extend.module("rotary")
    rotate = forgetful.rotate
    forgetful.rotate = lambda x, first: rotate(x, 0)  # type: ignore[attr-defined]
    forgetful.PreNormTransformer = forgetful.RotaryTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pre_norm", forgetful)
    with pytest.raises(AssertionError):
        extend.module("check_steps")


@pytest.mark.slow
@pytest.mark.parametrize("name", extend.VARIANTS)
def test_a_variants_layers_are_compiled_as_one_graph(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``--compile`` does; traced alone, as a compiler takes a minute."""
    monkeypatch.setitem(sys.modules, name, extend.module(name))  # torch.compile imports it
    model = model_of(name).train()
    source, previous, _ = batch()
    expected = model(source, previous)
    for layer in model.modules():
        if isinstance(layer, EncoderLayer | DecoderLayer):
            layer.compile(backend="eager", fullgraph=True, dynamic=True)
    assert_close(model(source, previous), expected)
