"""The quicker library's product is the same product, with the same gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F

from vaswani_transformer.fast import linear as module
from vaswani_transformer.fast.linear import (
    MIN_MULTIPLICATIONS,
    FastLinear,
    by_onednn,
    linear,
    onednn,
    weight_gradient,
)
from vaswani_transformer.fast.processor import AMD_AVX512, AMD_FAMILY_25, OTHER_CPU

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN"
)


@pytest.fixture
def always(monkeypatch):
    """Use oneDNN on every processor, for products of every size."""
    monkeypatch.setattr(module, "choices_for", lambda device: AMD_AVX512)
    monkeypatch.setattr(module, "MIN_MULTIPLICATIONS", 1)


@needs_onednn
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5), (1, 1, 5), (2, 0, 5)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_equal_to_torch(always, shape, biased, turned):
    """Result and all gradients, for inputs of any shape and a weight that is a transpose."""
    results = []
    torch.manual_seed(1)
    x, weight, bias = torch.randn(shape), torch.randn(6, 5), torch.randn(6)
    if turned:
        weight = weight.t().contiguous().t()
    for function in (linear, F.linear):
        inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
        out = function(inputs[0], inputs[1], inputs[2] if biased else None)
        out.square().sum().backward()
        results.append([out, *(t.grad for t in inputs[: 3 if biased else 2])])
    for ours, theirs in zip(*results):  # noqa: B905
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_when_it_is_chosen(monkeypatch):
    """float32 on a CPU that needs it, outside autocast, and enough of it; nothing else."""
    monkeypatch.setattr(module, "choices_for", lambda device: AMD_AVX512)
    side = round(MIN_MULTIPLICATIONS ** (1 / 3)) + 1
    large, small = torch.ones(side, side), torch.ones(8, 8)
    assert by_onednn(large, large)
    assert not by_onednn(small, small)
    assert not by_onednn(large.double(), large.double())
    assert not by_onednn(large.bfloat16(), large.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not by_onednn(large, large)
        assert linear(large, large).dtype == torch.bfloat16
    monkeypatch.setattr(module, "choices_for", lambda device: OTHER_CPU)
    assert not by_onednn(large, large)


@needs_onednn
@pytest.mark.parametrize("choices, times", [(AMD_AVX512, 1), (AMD_FAMILY_25, 0), (OTHER_CPU, 0)])
def test_library_of_a_weights_gradient(choices, times, monkeypatch):
    """oneDNN where the processor's line says so; the result is the same."""
    calls = []
    monkeypatch.setattr(module, "onednn", lambda *args: calls.append(args) or onednn(*args))
    monkeypatch.setattr(module, "choices_for", lambda device: choices)
    monkeypatch.setattr(module, "MIN_MULTIPLICATIONS", 1)
    grad, x = torch.randn(7, 6), torch.randn(7, 5)
    torch.testing.assert_close(weight_gradient(grad, x), grad.t() @ x, rtol=1e-5, atol=1e-5)
    assert len(calls) == times


needs_packing = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"), reason="torch without oneDNN"
)


@pytest.fixture
def packed(monkeypatch):
    """Build a layer with packed weights, whatever the processor."""
    monkeypatch.setattr(module, "choices_for", lambda device: AMD_AVX512)
    torch.manual_seed(1)
    layer = FastLinear(48, 64)
    layer.pack()
    assert layer.packed is not None
    return layer


@needs_packing
@pytest.mark.parametrize("shape", [(4, 48), (2, 3, 48), (1, 1, 48), (300, 48), (0, 48)])
def test_packed(packed, shape):
    """The same product, without a gradient; with one, the weights themselves are used."""
    x = torch.randn(shape)
    expected = F.linear(x, packed.weight, packed.bias)
    with torch.no_grad():
        torch.testing.assert_close(packed(x), expected, rtol=1e-5, atol=1e-5)
    packed(x).sum().backward()
    torch.testing.assert_close(packed.bias.grad, torch.full((64,), float(len(x.view(-1, 48)))))


@needs_packing
@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.load_state_dict(torch.nn.Linear(48, 64).state_dict()),
        lambda layer: layer.weight.mul_(2),
        lambda layer: layer.to(torch.bfloat16).to(torch.float32),
        lambda layer: layer.double(),
    ],
)
def test_packed_weights_are_forgotten(packed, change):
    """What changes the weights changes the result."""
    x = torch.randn(4, 48)
    with torch.no_grad():
        change(packed)
        x = x.to(packed.weight.dtype)
        expected = F.linear(x, packed.weight, packed.bias)
        torch.testing.assert_close(packed(x), expected, rtol=1e-5, atol=1e-5)


@needs_packing
def test_a_packed_layer_can_be_copied(packed):
    """Its copy has the weights; a state dict knows nothing of the packing."""
    copied = copy.deepcopy(packed)
    assert copied.packed is None and torch.equal(copied.weight, packed.weight)
    assert set(packed.state_dict()) == {"weight", "bias"}
