"""``use_fast_kernels``: what it replaces, what it leaves, and that the model computes the same."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.plain.small import PAD, batch, small_model
from tests.rounding import rounding, rounding_of_small_model
from vaswani_transformer.attention import SelfAttention, attention, causal_mask
from vaswani_transformer.fast import FAST, use_fast_kernels
from vaswani_transformer.fast import linear as linear_file
from vaswani_transformer.fast.attention import fused_attention
from vaswani_transformer.fast.malloc import keep_freed_memory
from vaswani_transformer.fast.processor import AMD_AVX512
from vaswani_transformer.search import search


def types(model: nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


def test_each_module_gets_the_class_beside_its_own() -> None:
    model = small_model()
    before = types(model)
    assert set(FAST) <= set(before) and use_fast_kernels(model) is model
    assert types(model) == [FAST.get(kind, kind) for kind in before]
    assert all(fast.__name__ == f"Fast{kind.__name__}" for kind, fast in FAST.items())
    assert "FastLinear" in str(model)


class Adapted(nn.Linear):
    """A layer of somebody's own."""


def test_subclasses_keep_their_own_class() -> None:
    model = nn.Sequential(Adapted(2, 2), nn.Linear(2, 2), nn.AlphaDropout(0.1))
    assert types(use_fast_kernels(model))[1:] == [Adapted, FAST[nn.Linear], nn.AlphaDropout]


def test_what_is_compiled_keeps_plain_products_and_dropout() -> None:
    model = small_model()
    compiled = model.encoder.layers[0]
    use_fast_kernels(model, [compiled])
    assert type(compiled.self_attention) is FAST[SelfAttention]
    assert not {FAST[nn.Linear], FAST[nn.Dropout]} & set(types(compiled))
    assert FAST[nn.Linear] in types(model.encoder.layers[1])


def test_parameters_names_hooks_and_copies_stay() -> None:
    model = small_model()
    source, previous, _ = batch()
    called: list[Any] = []
    model.encoder.layers[0].feed_forward.fc1.register_forward_hook(lambda *_: called.append(1))
    before = dict(model.named_parameters())
    use_fast_kernels(model)
    assert {name: id(p) for name, p in model.named_parameters()} == {
        name: id(p) for name, p in before.items()
    }
    assert list(model.state_dict()) == list(small_model().state_dict())
    expected = model(source, previous)
    assert called == [1]
    model.encoder.layers[0].feed_forward.fc1._forward_hooks.clear()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert types(other) == types(model)
        assert torch.equal(other(source, previous), expected)


@pytest.fixture(params=["this processor's", "all by oneDNN"])
def _everywhere(request: Any, monkeypatch: Any) -> None:
    """Use oneDNN on every processor, for products of every size."""
    if request.param == "all by oneDNN" and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        monkeypatch.setattr(linear_file, "choices_for", lambda device: AMD_AVX512)
        monkeypatch.setattr(linear_file, "MIN_MULTIPLICATIONS", 1)


@pytest.mark.usefixtures("_everywhere")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_fast_model_computes_what_a_readable_one_does(dtype: torch.dtype) -> None:
    """Logits, and the gradient of every parameter, with padding and without."""
    close = {"rtol": 0, "atol": rounding_of_small_model(dtype)}
    for seed, rows in enumerate([slice(None), slice(0, 1)]):
        source, previous, target = (tensor[rows] for tensor in batch(seed))
        found = []
        for fast in (False, True):
            model: Any = small_model(seed, head_key_dim=3, head_value_dim=5).to(dtype)
            if fast:
                use_fast_kernels(model)
            logits = model(source, previous)[target.ne(PAD)]
            F.cross_entropy(logits, target[target.ne(PAD)]).backward()
            found.append([logits.detach(), {n: p.grad for n, p in model.named_parameters()}])
        torch.testing.assert_close(*found, **close)


@pytest.mark.usefixtures("_everywhere")
def test_weights_packed_for_decoding_give_the_same_search() -> None:
    """Scores of all hypotheses: a tie's order is the last digit's."""
    from tests.plain.small import lively_model
    from vaswani_transformer import SearchOptions

    scores = []
    for fast in (False, True):
        model = lively_model(7).float()
        source, _, _ = batch(7)
        if fast:
            linear_file.pack_weights(use_fast_kernels(model))
        with torch.no_grad():
            options = SearchOptions(beam=4, max_len_b=12)
            scores.append(search(model.decoder, model.encoder(source), source, options).scores)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-4)


def tolerances(inputs: list[Tensor], results: list[Tensor]) -> list[float]:
    """Return what rounding may change: of the values, and of the gradients of their squares' sum.

    Some 16 results are rounded to the type one after the other, and a score, whose absolute error
    the exponential makes a weight's relative one. Sums are in float32 or float64: four over the
    length (the softmax's, the values', and two of the gradient), and a score's. The gradient of a
    score is the difference of two numbers of up to 2 · |v|², times a key or query.
    """
    dtype = inputs[0].dtype
    length = inputs[1].size(2)
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
        for result, size in zip(results, (v, gradient, gradient, 2 * v))  # noqa: B905
    ]


def masks(queries: int, keys: int) -> list[Any]:
    """Return masks of several kinds.

    They are None; padding of one sentence; any, of every query; numbers; causal as a tensor.
    """
    padding = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    padding[1, ..., : keys // 2] = False
    some = torch.rand(2, 1, queries, keys) < 0.6
    some[..., -1] = True
    found = [None, padding, some, torch.randn(queries, keys)]
    return [*found, causal_mask(keys)] if queries == keys else found


@pytest.mark.parametrize("shape", [(1, 1, 8), (5, 5, 4), (1, 7, 8), (130, 130, 8), (3, 1024, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_kernel_computes_equation_1(shape: Any, dtype: torch.dtype) -> None:
    """Values and gradients, in every type and with every mask; d_v may differ from d_k."""
    queries, keys, value_dim = shape
    sizes = ((queries, 8), (keys, 8), (keys, value_dim))
    inputs = [torch.randn(2, 3, *size).to(dtype) for size in sizes]
    for mask in masks(queries, keys):
        results = []
        for function in (lambda *a: attention(*a)[0], fused_attention):
            leaves = [x.clone().requires_grad_() for x in inputs]
            own = mask.to(dtype) if mask is not None and mask.is_floating_point() else mask
            out = function(*leaves, own)
            out.square().sum().backward()
            results.append([out.detach(), *(x.grad for x in leaves)])
        pairs = zip(*results, tolerances(inputs, results[0]))  # noqa: B905
        for readable, fast, allowed in pairs:
            assert (fast - readable).abs().max() <= allowed


def test_settings_of_the_user_for_malloc_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freed memory stays with the process, unless the user decides."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()
