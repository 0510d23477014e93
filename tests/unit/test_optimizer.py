"""``vaswani_adam``: its options, its norm of gradients, and the kernels it finds."""

import math
from typing import Any

import pytest
import torch
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf
from torch import nn

from transformer_plugin.config import VaswaniAdamConfig
from transformer_plugin.optimizer import (
    VaswaniAdam,
)


def optimizer(params: list[nn.Parameter], **options: Any) -> VaswaniAdam:
    """Build an optimizer by its registered name with the defaults, except for ``options``."""
    cfg = OmegaConf.structured(VaswaniAdamConfig(lr=[0.1]))
    return build_optimizer(OmegaConf.merge(cfg, {"_name": "vaswani_adam", **options}), params)


def parameter(*gradient: float) -> nn.Parameter:
    """Return a parameter of zeros that has this gradient."""
    result = nn.Parameter(torch.zeros(len(gradient)))
    result.grad = torch.tensor(gradient)
    return result


@pytest.mark.paper("5.3")
def test_the_defaults_are_the_papers() -> None:
    """β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (5.3), and no weight decay."""
    group = optimizer([parameter(1.0)]).param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)


def test_first_updates_by_hand() -> None:
    """Two updates of one number by the formula, with gradients 3 and 1, rate 0.1."""
    param = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    own = optimizer([param])
    expected, m, v = 0.0, 0.0, 0.0
    for t, gradient in enumerate([3.0, 1.0], start=1):
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        rate = 0.1 * math.sqrt(1 - 0.98**t) / (1 - 0.9**t)
        expected -= rate * m / (math.sqrt(v) + 1e-9)
        param.grad = torch.tensor([gradient], dtype=torch.float64)
        own.step()
        assert param.item() == pytest.approx(expected, rel=1e-12)
    assert own.param_groups[0]["eps"] == 1e-9  # the plain one is saved


def test_the_norm_of_no_gradients_is_zero() -> None:
    """As fairseq's: every parameter is frozen, or this process had no batch."""
    own = optimizer([nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))])
    assert own.clip_grad_norm(1.0).item() == 0.0
    assert own.clip_grad_norm(1.0, aggregate_norm_fn=lambda norm: norm + 5).item() == 5.0


def test_norm_of_gradients() -> None:
    """√(3² + 4² + 12²) = 13, and nothing is changed without a limit."""
    params = [parameter(3.0, 4.0), parameter(12.0), nn.Parameter(torch.zeros(2))]
    own = optimizer(params)
    assert own.clip_grad_norm(0).item() == 13.0
    assert params[1].grad.item() == 12.0
    assert own.clip_grad_norm(26.0).item() == 13.0  # below the limit
    assert params[1].grad.item() == 12.0
    assert own.clip_grad_norm(6.5).item() == 13.0
    assert params[1].grad.item() == pytest.approx(6.0)
    assert own.clip_grad_norm(0).item() == pytest.approx(6.5)


def test_norm_over_processes() -> None:
    """The norms of other processes come in before the limit."""
    params = [parameter(3.0, 4.0)]
    assert optimizer(params).clip_grad_norm(5.0, lambda norm: 2 * norm).item() == 10.0
    assert params[0].grad.tolist() == pytest.approx([1.5, 2.0])


def test_without_fused_kernels(monkeypatch: Any) -> None:
    """A torch that refuses them: the same update by foreach."""
    original = torch.optim.AdamW.__init__

    def refusing(self: Any, params: Any, **options: Any) -> None:
        if options.get("fused"):
            raise RuntimeError("`fused=True` requires supported devices")
        original(self, params, **options)

    monkeypatch.setattr(torch.optim.AdamW, "__init__", refusing)
    param = parameter(3.0)
    own = optimizer([param])
    assert own.param_groups[0]["foreach"] is True
    own.step()
    assert param.item() == pytest.approx(-0.1)  # the first update is the rate, whatever the size
