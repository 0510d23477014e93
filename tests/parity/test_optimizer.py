"""Section 5.3: ``vaswani_adam`` is fairseq's ``adam``, update by update."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fairseq.optim import FairseqOptimizer, build_optimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import OmegaConf
from torch import nn

import transformer_plugin  # noqa: F401  (registers the optimizer)
from tests.rounding import rounding
from vaswani_transformer.schedule import learning_rate

OURS, FAIRSEQS = "vaswani_adam", "adam"
UPDATES = 20
FOREACH = {"fused": None, "foreach": True}


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    """Return a matrix, a vector, a single number, and one that never gets a gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(31, 17), (17,), (), (5,)]
    return [nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]


def gradients(dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    """Yield the gradients of each update; some are as small as ε, where its place matters."""
    generator = torch.Generator().manual_seed(1)
    while True:
        normal = [torch.randn(s, generator=generator, dtype=dtype) for s in [(31, 17), (17,), ()]]
        yield [g * scale for g, scale in zip(normal, (1.0, 1e-9, 1e-3), strict=True)]


def optimizer(
    name: str, params: list[nn.Parameter], weight_decay: float = 0.0, eps: float = 1e-9
) -> FairseqOptimizer:
    """Build an optimizer by its registered name, as fairseq does."""
    cfg: dict[str, Any] = {"_name": name, "lr": [0.1], "weight_decay": weight_decay}
    cfg.update(adam_betas="(0.9, 0.98)", adam_eps=eps)
    if name == FAIRSEQS:
        cfg.update(fp16_adam_stats=False, tpu=False, use_old_adam=False)
    return build_optimizer(OmegaConf.create(cfg), params)


def update(own: FairseqOptimizer, params: list[nn.Parameter], step: int, grads: Any) -> None:
    """Do update ``step`` as fairseq's trainer does, with the paper's rate."""
    own.set_lr(learning_rate(step, 64, 8))
    for param, gradient in zip(params, grads, strict=False):
        param.grad = gradient.clone()
    own.step()
    own.zero_grad()


def close(dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerance of some 12 operations per update; parameters stay below 8."""
    return {"rtol": 0, "atol": rounding(dtype, 12 * UPDATES, 8)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_the_same_parameters(dtype: torch.dtype, weight_decay: float) -> None:
    """20 updates with the rate changing in each."""
    results = {}
    for name in (OURS, FAIRSEQS):
        params = parameters(dtype)
        own = optimizer(name, params, weight_decay)
        source = gradients(dtype)
        for step in range(1, UPDATES + 1):
            update(own, params, step, next(source))
        results[name] = [p.detach() for p in params]
    torch.testing.assert_close(results[OURS], results[FAIRSEQS], **close(dtype))
    assert (results[OURS][0] - parameters(dtype)[0]).abs().min() > 0
    assert torch.equal(results[OURS][3], parameters(dtype)[3])  # no gradient, no change


def test_the_place_of_epsilon() -> None:
    """Where gradients are of the size of ε, torch's own AdamW differs: the tests can see it."""
    ours, torchs = parameters(torch.float64), parameters(torch.float64)
    own = optimizer(OURS, ours)
    plain = torch.optim.AdamW(torchs, lr=1.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    grads = next(gradients(torch.float64))
    update(own, ours, 1, grads)
    for param, gradient in zip(torchs, grads, strict=False):
        param.grad = gradient.clone()
    plain.param_groups[0]["lr"] = learning_rate(1, 64, 8)
    plain.step()
    torch.testing.assert_close(ours[0], torchs[0], rtol=1e-6, atol=1e-6)
    assert (ours[1] - torchs[1]).abs().max() > 1e-3


def test_goes_on_from_a_saved_state() -> None:
    """10 updates, the state saved and loaded, 10 more: as 20 updates."""
    unbroken, resumed = parameters(torch.float64), parameters(torch.float64)
    whole, begun = optimizer(OURS, unbroken), optimizer(OURS, resumed)
    sources = [gradients(torch.float64) for _ in range(2)]
    for step in range(1, 11):
        update(whole, unbroken, step, next(sources[0]))
        update(begun, resumed, step, next(sources[1]))
    # other values than the saved ones, which must win
    goes_on = optimizer(OURS, resumed, weight_decay=0.5, eps=0.5)
    goes_on.load_state_dict(copy.deepcopy(begun.state_dict()))
    assert goes_on.param_groups[0]["eps"] == 1e-9
    for step in range(11, UPDATES + 1):
        update(whole, unbroken, step, next(sources[0]))
        update(goes_on, resumed, step, next(sources[1]))
    assert all(torch.equal(a, b) for a, b in zip(unbroken, resumed, strict=True))


def test_goes_on_with_other_kernels_than_the_saved_ones() -> None:
    """A checkpoint of one torch goes on with another that has no fused kernel, and back."""
    results = {}
    for name in (OURS, FAIRSEQS):
        params = parameters(torch.float64)
        source = gradients(torch.float64)
        own = optimizer(name, params)
        kernels = [FOREACH, own.optimizer.implementation] * 2 if name == OURS else [{}] * 4
        for step, kernel in enumerate(kernels, start=1):
            saved = copy.deepcopy(own.state_dict())
            own = optimizer(name, params)
            own.optimizer.implementation = kernel
            own.load_state_dict(saved)
            assert own.param_groups[0].items() >= kernel.items()
            update(own, params, step, next(source))
        results[name] = [p.detach() for p in params]
    torch.testing.assert_close(results[OURS], results[FAIRSEQS], **close(torch.float64))


def fp16_optimizer(name: str, params: list[nn.Parameter]) -> FP16Optimizer:
    """Return fairseq's ``--fp16`` around an optimizer, with parameters flattened.

    fairseq's own way to build it asks torch for the current GPU.
    """
    flat = nn.Parameter(torch.cat([p.detach().float().flatten() for p in params]))
    flat.grad = torch.zeros_like(flat)
    cfg = {
        "optimizer": {},
        "common": {
            **{"fp16_init_scale": 128, "fp16_scale_window": 4, "fp16_scale_tolerance": 0.0},
            **{"threshold_loss_scale": None, "min_loss_scale": 1e-4},
        },
    }
    wrapped = optimizer(name, [flat])
    assert wrapped.supports_flat_params
    return FP16Optimizer(OmegaConf.create(cfg), params, wrapped, {None: flat})


def test_under_fp16() -> None:
    """Half parameters over one flat fp32 copy, the scale of the loss divided out, clipped."""
    results = {}
    for name in (OURS, FAIRSEQS):
        params = [nn.Parameter(p.detach().half()) for p in parameters(torch.float32)[:3]]
        own = fp16_optimizer(name, params)
        source = gradients(torch.float32)
        norms = []
        for step in range(1, UPDATES + 1):
            own.set_lr(learning_rate(step, 64, 8))
            own.zero_grad()
            scale = own.scaler.loss_scale
            loss = sum((p * g.half()).sum() for p, g in zip(params, next(source), strict=True))
            own.backward(loss)
            norms.append(float(own.clip_grad_norm(5.0)))
            own.step()
        assert scale > 128
        results[name] = ([p.detach() for p in params], own.fp32_params[None].detach(), norms)
    torch.testing.assert_close(results[OURS], results[FAIRSEQS], **close(torch.float32))
