"""Section 3.2: scaled dot-product attention and multi-head attention."""

import math
from typing import List

import pytest
import torch

from tests.models import small_model
from tests.rounding import rounding
from vaswani_transformer.attention import (
    CrossAttention,
    MultiHeadAttention,
    SelfAttention,
    causal_mask,
    padding_mask,
    readable_attention,
)
from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.fast.attention import fast_attention
from vaswani_transformer.fast.dropout import Dropout


def random_heads(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.paper("3.2.1")
def test_equation_1_by_hand() -> None:
    """softmax(q·k / √d_k) v with d_k = 4, one query, two keys: scores 2/2 and 0."""
    query = torch.tensor([[[[1.0, 1.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]]])
    value = torch.tensor([[[[1.0], [0.0]]]])
    attended, weights = readable_attention(query, key, value)
    expected = math.e / (math.e + 1)
    assert attended.item() == pytest.approx(expected, abs=1e-6)
    assert weights.flatten().tolist() == pytest.approx([expected, 1 - expected], abs=1e-6)


def tolerances(inputs: List[torch.Tensor], results: List[torch.Tensor]) -> List[float]:
    """What rounding may change of the values, and of the gradients of the sum of their squares.

    Some 16 results are rounded to the type one after the other, and a score, whose absolute error
    the exponential makes a weight's relative one. Sums are in float32 or float64: four over the
    length (the softmax's, the values', and two of the gradient), and a score's. The gradient of a
    score is the difference of two numbers of up to 2 · |v|², times a key or query.
    """
    dtype, length = inputs[0].dtype, inputs[0].size(2)
    added = torch.float64 if dtype == torch.float64 else torch.float32
    query, key, value = (x.double() for x in inputs)
    root = query.size(-1) ** 0.5
    score = (query @ key.transpose(-2, -1)).max().item() / root
    terms = (query.abs() @ key.abs().transpose(-2, -1)).max().item() / root
    q, k, v = (x.norm(dim=-1).max().item() for x in (query, key, value))
    gradient = 2 * v * v * max(q, k) / root
    rounded = rounding(dtype, 16 + score**2)
    summed = rounding(added, 4 * length + query.size(-1) * terms**2)
    return [
        rounded * max(1.0, result.abs().max().item()) + summed * size
        for result, size in zip(results, (v, gradient, gradient, 2 * v), strict=True)
    ]


@pytest.mark.parametrize(("length", "value_dim"), [(1, 8), (5, 4), (130, 8), (1024, 4)])
@pytest.mark.parametrize("masked", ["none", "padding", "causal", "causal by name"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_fast_equals_readable(length: int, masked: str, value_dim: int, dtype: torch.dtype) -> None:
    """Values and gradients, in every type; d_v may differ from d_k."""
    inputs = [random_heads(2, 3, length, d, seed=d).to(dtype) for d in (8, 8, value_dim)]
    mask = None
    if masked == "padding":
        is_padding = torch.zeros(2, length, dtype=torch.bool)
        is_padding[1, : length // 2] = True
        mask = padding_mask(is_padding, like=inputs[0])
    elif masked.startswith("causal"):
        mask = causal_mask(length, like=inputs[0])
    results = []
    by_name = masked == "causal by name"
    for function, options in (
        (lambda *a, **o: readable_attention(*a, **o)[0], {"mask": mask}),
        (fast_attention, {"is_causal": True} if by_name else {"mask": mask}),
    ):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = function(*leaves, **options)
        out.square().sum().backward()
        results.append([out.detach(), *(x.grad for x in leaves)])
    for readable, fast, allowed in zip(*results, tolerances(inputs, results[0]), strict=True):
        assert (fast - readable).abs().max() <= allowed


def test_causal_has_one_meaning() -> None:
    """By its name and as a tensor, in the readable function."""
    heads = random_heads(2, 3, 6, 8)
    named = readable_attention(heads, heads, heads, is_causal=True)
    given = readable_attention(heads, heads, heads, causal_mask(6, like=heads))
    torch.testing.assert_close(named, given, rtol=0, atol=0)


@pytest.mark.paper("3.2.3")
def test_masked_keys_have_no_weight() -> None:
    """Section 3.2.3: illegal connections are set to -inf before the softmax."""
    heads = random_heads(1, 1, 4, 8)
    _, weights = readable_attention(heads, heads, heads, causal_mask(4, like=heads))
    assert torch.equal(weights[0, 0].triu(1), torch.zeros(4, 4, dtype=torch.float64))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))


def test_large_scores_have_finite_weights() -> None:
    """Scores of 1000 and 999 give e/(e + 1) and 1/(e + 1), although exp(1000) is infinite."""
    query, key = torch.tensor([[[[1.0]]]]), torch.tensor([[[[1000.0], [999.0]]]])
    attended, weights = readable_attention(query, key, key)
    expected = torch.tensor([math.e, 1.0]) / (math.e + 1)
    torch.testing.assert_close(weights[0, 0, 0], expected)
    torch.testing.assert_close(fast_attention(query, key, key), attended)


def test_half_precision_does_not_overflow() -> None:
    """35 · 35 · 64 is more than float16 holds, and an eighth of it is not."""
    heads = torch.full((1, 1, 2, 64), 35.0, dtype=torch.float16)
    for attended in (
        readable_attention(heads, heads, heads)[0],
        fast_attention(heads, heads, heads),
    ):
        assert torch.equal(attended, heads)


@pytest.mark.paper("3.2.2")
def test_multi_head_is_concatenated_heads_times_w_o() -> None:
    """Section 3.2.2, head by head with plain products, and d_k ≠ d_v ≠ D / H (Table 3 row B)."""
    torch.manual_seed(0)
    heads, key_dim, value_dim = 2, 3, 5
    attention = SelfAttention(8, heads, key_dim=key_dim, value_dim=value_dim).double()
    x = random_heads(2, 4, 8)
    weights = attention.qkv_proj.weight.split([heads * key_dim] * 2 + [heads * value_dim])
    biases = attention.qkv_proj.bias.split([heads * key_dim] * 2 + [heads * value_dim])
    joined = []
    for h in range(heads):
        q, k, v = (
            x @ w[h * d : (h + 1) * d].T + b[h * d : (h + 1) * d]
            for w, b, d in zip(weights, biases, (key_dim, key_dim, value_dim), strict=True)
        )
        joined.append(torch.softmax(q @ k.transpose(1, 2) / key_dim**0.5, dim=-1) @ v)
    expected = torch.cat(joined, dim=-1) @ attention.out_proj.weight.T + attention.out_proj.bias
    torch.testing.assert_close(attention(x)[0], expected, rtol=0, atol=1e-12)


def test_cross_attention_computes_keys_and_values_once() -> None:
    """With a filled cache the encoder's output is not looked at again."""
    torch.manual_seed(0)
    attention = CrossAttention(8, 2).double()
    memory, cache = random_heads(2, 5, 8), DecoderCache(layers=1).layer(0)
    first, _ = attention(random_heads(2, 1, 8, seed=1), memory, cache=cache)
    again, _ = attention(random_heads(2, 1, 8, seed=1), torch.full_like(memory, 9.0), cache=cache)
    assert torch.equal(first, again)


KEYS, P = 64, 0.3


def attended_weights(implementation: str, training: bool) -> torch.Tensor:
    """What 400 · 64 attention weights have become: the values and W^O are identities."""
    attention = SelfAttention(
        KEYS, 1, key_dim=8, value_dim=KEYS, dropout=P, implementation=implementation
    )
    with torch.no_grad():
        attention.out_proj.weight.copy_(torch.eye(KEYS))
        attention.out_proj.bias.zero_()
        attention.train(training)
        query, key = random_heads(1, 1, 400, 8), random_heads(1, 1, KEYS, 8, seed=1)
        value = torch.eye(KEYS)[None, None]
        return attention.attend(query.float(), key.float(), value, None, False)[0]


@pytest.mark.parametrize("implementation", ["readable", "auto"])
def test_attention_dropout(implementation: str) -> None:
    """In training a weight is 0 with probability p (within 5 standard deviations), else grown by
    1 / (1 - p); in evaluation it is the softmax's."""
    query, key = random_heads(1, 1, 400, 8), random_heads(1, 1, KEYS, 8, seed=1)
    weights = torch.softmax(query @ key.transpose(-2, -1) / 8**0.5, dim=-1)[0].float()
    torch.testing.assert_close(attended_weights(implementation, training=False), weights)
    found = attended_weights(implementation, training=True)
    dropped = found.eq(0)
    torch.testing.assert_close(found, (weights / (1 - P)).masked_fill(dropped, 0.0))
    deviation = (P * (1 - P) / weights.numel()) ** 0.5
    assert abs(dropped.double().mean().item() - P) < 5 * deviation


def test_attention_dropout_is_that_of_every_attention() -> None:
    """``--attention-dropout`` reaches self- and cross-attention of every layer, no other."""
    model = small_model(attention_dropout=P, dropout=0.1, activation_dropout=0.2)
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert [m.dropout.p for m in attentions] == [P] * (2 + 2 * 2)
    assert sum(isinstance(m, Dropout) and m.p == P for m in model.modules()) == len(attentions)


def test_weights_are_returned_on_request_alone() -> None:
    x = torch.randn(1, 6, 8)
    attention = SelfAttention(8, 2)
    assert attention(x)[1] is None
    assert attention(x, need_weights=True)[1].shape == (1, 2, 6, 6)


def test_width_not_divisible_by_heads() -> None:
    with pytest.raises(ValueError, match="not divisible"):
        SelfAttention(10, 4)
