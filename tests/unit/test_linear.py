"""The quicker library's product is the same product, with the same gradients."""

import pytest
import torch
import torch.nn.functional as F

from transformer_plugin import linear as module
from transformer_plugin.linear import WORTHWHILE, Linear, by_onednn, linear, mkl_is_slow

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN"
)


@pytest.fixture
def always(monkeypatch):
    """oneDNN is taken on every processor, for products of every size."""
    monkeypatch.setattr(module, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(module, "WORTHWHILE", 1)


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
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_only_what_is_asked_for(always):
    """No gradient is computed for an input that needs none, and none at all without autograd."""
    x, weight = torch.randn(4, 5), torch.randn(6, 5, requires_grad=True)
    linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(6, 5), rtol=0, atol=1e-5)
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_when_it_is_chosen(monkeypatch):
    """float32 on a CPU that needs it, outside autocast, and enough of it; nothing else."""
    monkeypatch.setattr(module, "mkl_is_slow", lambda: True)
    side = round(WORTHWHILE ** (1 / 3)) + 1
    large, small = torch.ones(side, side), torch.ones(8, 8)
    assert by_onednn(large, large)
    assert not by_onednn(small, small)
    assert not by_onednn(large.double(), large.double())
    assert not by_onednn(large.bfloat16(), large.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not by_onednn(large, large)
        assert linear(large, large).dtype == torch.bfloat16
    monkeypatch.setattr(module, "mkl_is_slow", lambda: False)
    assert not by_onednn(large, large)


def test_other_systems(monkeypatch):
    """A system without /proc keeps torch's own product."""

    def missing(*args, **kwargs):
        raise FileNotFoundError

    mkl_is_slow.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.read_text", missing)
        assert not mkl_is_slow()
    mkl_is_slow.cache_clear()


def test_module_is_torchs():
    """A state dict of torch's Linear loads, and gives the same."""
    theirs = torch.nn.Linear(5, 3)
    ours = Linear(5, 3)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6)
