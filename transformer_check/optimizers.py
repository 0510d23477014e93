"""The algorithm of an optimizer, recognised by the updates that it makes (5.3)."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

UPDATES = 8
RATE = 1e-3
EXPECTED: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0}
Maker = Callable[[list[nn.Parameter], dict[str, Any]], torch.optim.Optimizer]


def options_of(group: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the named hyperparameters that a parameter group has."""
    return {name: group[name] for name in names if name in group}


def adam(kind: Any, **options: Any) -> Maker:
    """Return a function that makes Adam, or a relative, with a group's hyperparameters."""

    def make(parameters: list[nn.Parameter], group: dict[str, Any]) -> torch.optim.Optimizer:
        own = options_of(group, "betas", "eps", "weight_decay")
        own.setdefault("betas", EXPECTED["betas"])
        own.setdefault("eps", EXPECTED["eps"])
        own["weight_decay"] = float(own.get("weight_decay", 0) or 0)
        return kind(parameters, lr=RATE, **{**own, **options})  # type: ignore[no-any-return]

    return make


RELATIVES: dict[str, Maker] = {
    "Adam": adam(torch.optim.Adam),
    "AdamW": adam(torch.optim.AdamW),
    "Adam with amsgrad": adam(torch.optim.Adam, amsgrad=True),
    "Adam with maximize": adam(torch.optim.Adam, maximize=True),
    "RAdam": adam(torch.optim.RAdam),
    "NAdam": adam(torch.optim.NAdam),
    "NAdam without momentum decay": adam(torch.optim.NAdam, momentum_decay=0),
    "Adamax": adam(torch.optim.Adamax),
}


class WithoutCorrection(torch.optim.Optimizer):
    """Adam without bias correction: the means are not divided by 1 - β^t."""

    def __init__(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        super().__init__(parameters, {"lr": RATE, **options_of(group, "betas", "eps")})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter once; ``closure`` is ignored."""
        group = self.param_groups[0]
        beta_1, beta_2 = group.get("betas", EXPECTED["betas"])
        for parameter in group["params"]:
            state = self.state[parameter]
            gradient = parameter.grad
            mean = state.get("mean", torch.zeros_like(parameter))
            square = state.get("square", torch.zeros_like(parameter))
            state["mean"] = beta_1 * mean + (1 - beta_1) * gradient
            state["square"] = beta_2 * square + (1 - beta_2) * gradient**2
            size = state["square"].sqrt() + group.get("eps", EXPECTED["eps"])
            parameter -= group["lr"] * state["mean"] / size


def updates_of(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> Tensor:
    """Return the changes [UPDATES, N] by updates with seeded random gradients."""
    rng = torch.Generator().manual_seed(16)
    changes = []
    for number in range(UPDATES):
        before = torch.cat([p.detach().flatten() for p in parameters])
        scale = 10.0 if number == 2 else 1.0  # a peak, which AMSGrad and Adamax remember
        for parameter in parameters:
            parameter.grad = scale * torch.randn(parameter.shape, generator=rng)
        optimizer.step()
        after = torch.cat([p.detach().flatten() for p in parameters])
        changes.append(after - before)
    return torch.stack(changes)


def measure_updates(optimizer: torch.optim.Optimizer) -> tuple[Tensor, list[Tensor]]:
    """Return the updates of an optimizer's smallest parameter, starting from zero.

    Model and optimizer are restored.

    Returns:
        the changes [UPDATES, N], and the values before the first update
    """
    group = optimizer.param_groups[0]
    parameter = min(group["params"], key=lambda p: p.numel() if p.numel() > 3 else math.inf)
    every = [p for each in optimizer.param_groups for p in each["params"]]
    values = [p.detach().clone() for p in every]
    gradients = [p.grad for p in every]
    state = copy.deepcopy(optimizer.state_dict())
    start = torch.zeros(parameter.shape)  # so that no update, however small, is rounded away
    try:
        with torch.no_grad():
            parameter.copy_(start)
        for p in every:
            p.grad = None
        for each in optimizer.param_groups:
            each["lr"] = RATE
        changes = updates_of(optimizer, [parameter])
    finally:
        with torch.no_grad():
            for p, value, gradient in zip(every, values, gradients, strict=True):
                p.copy_(value)
                p.grad = gradient
        optimizer.load_state_dict(state)
    return changes, [start]


def is_like(changes: Tensor, expected: Tensor) -> bool:
    """Return whether updates are equal up to one factor per update, the learning rate."""
    for change, reference in zip(changes.double(), expected.double(), strict=True):
        factor = float((change @ reference) / (reference @ reference).clamp(min=1e-30))
        misfit = float((change - factor * reference).norm())
        if factor <= 0 or misfit > 1e-3 * float(change.norm()) + 1e-12:
            return False
    return True


def algorithm_of(optimizer: torch.optim.Optimizer) -> str:
    """Return the name of the algorithm that makes an optimizer's updates.

    A class that makes Adam's updates is Adam, whatever its name.

    Returns:
        "Adam", the name of a relative, or the name of the class if its updates are none of these
    """
    try:
        changes, values = measure_updates(optimizer)
    except (RuntimeError, TypeError, ValueError):  # it needs a closure or sparse gradients
        return type(optimizer).__name__
    group = optimizer.param_groups[0]
    alike = []
    for name, make in {**RELATIVES, "Adam without bias correction": WithoutCorrection}.items():
        parameters = [nn.Parameter(value.clone()) for value in values]
        expected = updates_of(make(parameters, group), parameters)
        if torch.allclose(changes, expected, rtol=1e-3, atol=1e-9):
            return name
        if is_like(changes, expected):
            alike.append(name)
    own = type(optimizer).__name__
    return alike[0] if alike else f"another algorithm ({own})" if own in RELATIVES else own
