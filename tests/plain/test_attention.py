"""Section 3.2: scaled dot-product attention and multi-head attention, in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vaswani_transformer.attention import (
    CrossAttention,
    SelfAttention,
    attention,
    causal_mask,
)
from vaswani_transformer.cache import DecoderCache, LayerCache
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.fast.attention import fused_attention


def random_heads(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.paper("3.2.1")
def test_equation_1_by_hand() -> None:
    """softmax(q·k / √d_k) v with d_k = 4, one query, two keys: scores 2/2 and 0."""
    query = torch.tensor([[[[1.0, 1.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]]])
    value = torch.tensor([[[[1.0], [0.0]]]])
    attended, weights = attention(query, key, value)
    expected = math.e / (math.e + 1)
    assert attended.item() == pytest.approx(expected, abs=1e-6)
    assert weights.flatten().tolist() == pytest.approx([expected, 1 - expected], abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_equation_1_in_plain_numbers(seed: int) -> None:
    """Each weight is exp(q·k / √d_k) over the sum of those of the keys that are not hidden."""
    queries, keys, key_dim, value_dim = (int(n) for n in torch.randint(1, 7, (4,)) + seed)
    query, key, value = (
        random_heads(1, 1, rows, dim, seed=seed)
        for rows, dim in ((queries, key_dim), (keys, key_dim), (keys, value_dim))
    )
    mask = torch.rand(queries, keys) < 0.7
    mask[:, 0] = True
    attended, weights = attention(query, key, value, mask)
    for i in range(queries):
        scores = [float(query[0, 0, i] @ key[0, 0, j]) / key_dim**0.5 for j in range(keys)]
        powers = [math.exp(s) if mask[i, j] else 0.0 for j, s in enumerate(scores)]
        expected = torch.tensor([p / sum(powers) for p in powers], dtype=torch.float64)
        torch.testing.assert_close(weights[0, 0, i], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(attended[0, 0, i], expected @ value[0, 0], rtol=0, atol=1e-12)


def test_an_added_mask_moves_the_scores() -> None:
    """A number below infinity, as of a distance, makes a key less probable and does not hide it."""
    heads = random_heads(1, 1, 3, 8)
    bias = random_heads(3, 3, seed=1)
    _, weights = attention(heads, heads, heads, bias)
    expected = torch.softmax(heads @ heads.transpose(-2, -1) / 8**0.5 + bias, dim=-1)
    torch.testing.assert_close(weights, expected)


@pytest.mark.paper("3.2.3")
def test_masked_keys_have_no_weight() -> None:
    """Section 3.2.3: illegal connections are set to -inf before the softmax."""
    heads = random_heads(1, 1, 4, 8)
    _, weights = attention(heads, heads, heads, causal_mask(4))
    assert torch.equal(weights[0, 0].triu(1), torch.zeros(4, 4, dtype=torch.float64))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))


class SoftmaxTypes(TorchFunctionMode):
    """Notes the type in which torch computes each softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[torch.dtype] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.softmax:
            self.types.append(result.dtype)
        return result


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_the_softmax_of_a_half_model_is_in_float32(half: torch.dtype) -> None:
    """docs/fidelity.md: softmax in fp32, whatever the type of the model."""
    model = SelfAttention(16, 4).to(half)
    with SoftmaxTypes() as found:
        result = model(torch.randn(2, 5, 16).to(half))
    assert found.types == [torch.float32]
    assert result.dtype == half


def test_large_scores_have_finite_weights() -> None:
    """Scores of 1000 and 999 give e/(e + 1) and 1/(e + 1), although exp(1000) is infinite."""
    query, key = torch.tensor([[[[1.0]]]]), torch.tensor([[[[1000.0], [999.0]]]])
    attended, weights = attention(query, key, key)
    expected = torch.tensor([math.e, 1.0]) / (math.e + 1)
    torch.testing.assert_close(weights[0, 0, 0], expected)
    torch.testing.assert_close(fused_attention(query, key, key), attended)


@pytest.mark.parametrize("function", [lambda *a: attention(*a)[0], fused_attention])
def test_half_precision_does_not_overflow(function: Any) -> None:
    """35 · 35 · 64 is more than float16 holds, and an eighth of it is not."""
    heads = torch.full((1, 1, 2, 64), 35.0, dtype=torch.float16)
    assert torch.equal(function(heads, heads, heads), heads)


def by_heads(module: Any, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute section 3.2.2 head by head; x and memory may be the same."""
    key_dim, value_dim = module.key_dim, module.value_dim
    if isinstance(module, SelfAttention):
        parts = [module.num_heads * key_dim] * 2 + [module.num_heads * value_dim]
        weights, biases = module.qkv_proj.weight.split(parts), module.qkv_proj.bias.split(parts)
    else:
        parts = [module.num_heads * key_dim, module.num_heads * value_dim]
        weights = [module.q_proj.weight, *module.kv_proj.weight.split(parts)]
        biases = [module.q_proj.bias, *module.kv_proj.bias.split(parts)]
    joined = []
    for h in range(module.num_heads):
        q, k, v = (
            given @ w[h * d : (h + 1) * d].T + b[h * d : (h + 1) * d]
            for given, w, b, d in zip(  # noqa: B905
                (x, memory, memory), weights, biases, (key_dim, key_dim, value_dim)
            )
        )
        scores = q @ k.transpose(1, 2) / key_dim**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        joined.append(torch.softmax(scores, dim=-1) @ v)
    return torch.cat(joined, dim=-1) @ module.out_proj.weight.T + module.out_proj.bias


@pytest.mark.paper("3.2.2")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_multi_head_is_concatenated_heads_times_w_o(kind: Any, fast: bool) -> None:
    """With plain products, and d_k ≠ d_v ≠ D / H (Table 3 row B)."""
    module = kind(8, 2, key_dim=3, value_dim=5).double()
    if fast:
        use_fast_kernels(module)
    x, memory = random_heads(2, 4, 8), random_heads(2, 6, 8, seed=1)
    given = (x,) if kind is SelfAttention else (x, memory)
    mask = torch.rand(4, given[-1].size(1)) < 0.5
    mask[:, 0] = True
    expected = by_heads(module, x, given[-1], mask)
    torch.testing.assert_close(module(*given, mask), expected, rtol=0, atol=1e-12)
    weights: list[Tensor] = []
    with_weights = module(*given, mask, weights=weights)
    torch.testing.assert_close(with_weights, expected, rtol=0, atol=1e-12)
    assert [tuple(one.shape) for one in weights] == [(2, 2, *mask.shape)]


def test_hypotheses_that_share_keys_attend_as_if_each_had_its_own() -> None:
    module: Any = use_fast_kernels(CrossAttention(8, 2).double())
    x, memory = random_heads(6, 1, 8), random_heads(2, 5, 8, seed=1)
    mask = (torch.rand(2, 1, 1, 5) < 0.5).index_fill(3, torch.tensor([0]), True)
    shared = module(x, memory, mask)
    own = module(x, memory.repeat_interleave(3, 0), mask.repeat_interleave(3, 0))
    torch.testing.assert_close(shared, own, rtol=0, atol=1e-12)


def test_cross_attention_computes_keys_and_values_once() -> None:
    """With a filled cache the encoder's output is not looked at again."""
    module = CrossAttention(8, 2).double()
    memory = random_heads(2, 5, 8)
    cache = LayerCache(DecoderCache(layers=1), 0)
    first = module(random_heads(2, 1, 8, seed=1), memory, cache=cache)
    again = module(random_heads(2, 1, 8, seed=1), torch.full_like(memory, 9.0), cache=cache)
    assert torch.equal(first, again)


KEYS, P = 64, 0.3


@pytest.mark.parametrize("fast", [False, True])
def test_attention_dropout_drops_weights_in_training_alone(fast: bool) -> None:
    """A weight is 0 with probability p (within 5 standard deviations), else grown by 1 / (1 - p).

    The values and W^O are identities, so that the output is the 400 · 64 weights.
    """
    module: Any = SelfAttention(KEYS, 1, key_dim=8, value_dim=KEYS, dropout=P)
    if fast:
        use_fast_kernels(module)
    module.out_proj.weight.data.copy_(torch.eye(KEYS))
    module.out_proj.bias.data.zero_()
    query, key = random_heads(1, 1, 400, 8).float(), random_heads(1, 1, KEYS, 8, seed=1).float()
    value = torch.eye(KEYS)[None, None]
    weights = torch.softmax(query @ key.transpose(-2, -1) / 8**0.5, dim=-1)[0]
    found = module.attend_heads(query, key, value)
    dropped = found.eq(0)
    torch.testing.assert_close(found, (weights / (1 - P)).masked_fill(dropped, 0.0))
    deviation = (P * (1 - P) / weights.numel()) ** 0.5
    assert abs(dropped.double().mean().item() - P) < 5 * deviation
    module.eval()
    torch.testing.assert_close(module.attend_heads(query, key, value), weights)


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="10"):
        SelfAttention(10, 4)
    module = SelfAttention(10, 4, key_dim=3, value_dim=2)
    assert module(torch.randn(1, 5, 10)).shape == (1, 5, 10)
