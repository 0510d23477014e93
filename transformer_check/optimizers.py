"""The algorithm of an optimizer, recognised by the updates that it makes (5.3)."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .findings import Finding, differs, passed

UPDATES = 8
RATE = 1e-3
EXPECTED: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0}
FIX = "Use torch.optim.Adam(parameters, lr, betas=(0.9, 0.98), eps=1e-9)."
Maker = Callable[[list[nn.Parameter], dict[str, Any]], torch.optim.Optimizer]


ALGORITHMS = {
    "Adam with amsgrad": "Adam has amsgrad=True.",
    "Adam with maximize": "Adam has maximize=True: it makes the loss larger.",
    "AdamW": "The optimizer is AdamW, which decays the weights; the paper's is Adam.",
    "NAdam without momentum decay": "The optimizer is NAdam, not Adam.",
    "Adam without bias correction": "Adam has no bias correction: its first updates are too small.",
    "Adam with a constant bias correction": (
        "Adam's bias correction is the same at every step: it does not depend on β^t."
    ),
    "Adam without bias correction of the first mean": (
        "Adam has no bias correction of the first mean (momentum)."
    ),
    "Adam without bias correction of the second mean": (
        "Adam has no bias correction of the second mean: its first updates are too large."
    ),
    "Adam with the bias correction of the next step": (
        "Adam's bias correction is that of the next step: steps are counted from 2."
    ),
    "Adam with gradients clipped by norm": "The optimizer clips the norm of the gradient.",
    "Adam with gradients clipped by value": "The optimizer clips each element of the gradient.",
}


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


def scale_to_norm_1(gradient: Tensor) -> Tensor:
    """Return a gradient with the norm 1, as clipping by a smaller norm than its own."""
    return gradient / gradient.norm()


CLIPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "Adam with gradients clipped by norm": scale_to_norm_1,
    "Adam with gradients clipped by value": torch.sign,
}
"""what Adam reads if all gradients are larger than a limit, up to a factor"""


def updates_of(
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    change: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> Tensor:
    """Return the changes [UPDATES, N] by updates with seeded random gradients, changed first."""
    rng = torch.Generator().manual_seed(16)
    changes = []
    for number in range(UPDATES):
        before = torch.cat([p.detach().flatten() for p in parameters])
        scale = 10.0 if number == 2 else 1.0  # a peak, which AMSGrad and Adamax remember
        for parameter in parameters:
            parameter.grad = change(scale * torch.randn(parameter.shape, generator=rng))
        optimizer.step()
        after = torch.cat([p.detach().flatten() for p in parameters])
        changes.append(after - before)
    return torch.stack(changes)


def smallest_parameter(group: dict[str, Any]) -> nn.Parameter:
    """Return the smallest parameter of a group with more than three elements."""
    parameter: nn.Parameter = min(
        group["params"], key=lambda p: p.numel() if p.numel() > 3 else math.inf
    )
    return parameter


@contextmanager
def restored(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Set the learning rate to ``RATE`` in the context; then restore model and optimizer."""
    every = [p for each in optimizer.param_groups for p in each["params"]]
    values = [p.detach().clone() for p in every]
    gradients = [p.grad for p in every]
    state = copy.deepcopy(optimizer.state_dict())
    try:
        for p in every:
            p.grad = None
        for each in optimizer.param_groups:
            each["lr"] = RATE
        yield
    finally:
        with torch.no_grad():
            for p, value, gradient in zip(every, values, gradients, strict=True):
                p.copy_(value)
                p.grad = gradient
        optimizer.load_state_dict(state)


def measure_updates(optimizer: torch.optim.Optimizer) -> tuple[Tensor, list[Tensor]]:
    """Return the updates of an optimizer's smallest parameter, starting from zero.

    Model and optimizer are restored.

    Returns:
        the changes [UPDATES, N], and the values before the first update
    """
    parameter = smallest_parameter(optimizer.param_groups[0])
    start = torch.zeros(parameter.shape)  # so that no update, however small, is rounded away
    with restored(optimizer):
        with torch.no_grad():
            parameter.copy_(start)
        changes = updates_of(optimizer, [parameter])
    return changes, [start]


class Probe(NamedTuple):
    """What one update of Adam shows of a parameter group, whatever its options say."""

    epsilon: float
    """the number that is added to the root of the second mean"""
    decay: float
    """the part of a parameter without gradient that an update of the learning rate 1 takes"""


def probe_group(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Probe:
    """Measure ε and the weight decay of a group, with gradients of 1, of ε and of 0.

    Model and optimizer are restored.
    """
    parameter = smallest_parameter(group)
    size = parameter.numel()
    gradient = torch.zeros(size)
    gradient[0] = 1.0
    gradient[1] = EXPECTED["eps"]
    start = torch.zeros(size)
    start[2:] = 1.0
    with restored(optimizer):
        with torch.no_grad():
            parameter.copy_(start.view(parameter.shape))
        parameter.grad = gradient.view(parameter.shape)
        optimizer.step()
        after = parameter.detach().flatten().double()
    decay = float(1 - after[2]) / RATE
    if not float(after[0]) < 0 or float(after[1]) == 0:
        return Probe(EXPECTED["eps"], decay)  # a learning rate of 0 shows nothing
    ratio = float(after[1] / after[0])
    return Probe(EXPECTED["eps"] * (1 / ratio - 1), decay)


def look_at_probe(optimizer: torch.optim.Optimizer) -> Finding:
    """Return the finding on the ε and the weight decay that one update of each group shows."""
    epsilon = EXPECTED["eps"]
    for group in optimizer.param_groups:
        if max(p.numel() for p in group["params"]) < 4:
            continue
        probe = probe_group(optimizer, group)
        if not abs(probe.decay) < 1e-3:  # NaN is a division of 0 by 0
            return differs(
                f"an update of {-probe.decay:.3g} × lr for a parameter of 1 with the gradient 0",
                "0",
                says="Adam divides 0 by 0 where a gradient is 0: it has no eps."
                if math.isnan(probe.decay)
                else f"The optimizer decays weights, by {probe.decay:.3g} × lr.",
                fix=FIX,
            )
        if not 0.5 * epsilon < probe.epsilon < 10 * epsilon:  # 7 with ε before the correction
            is_root = abs(probe.epsilon / epsilon**0.5 - 1) < 0.05
            return differs(
                f"an update with eps = {probe.epsilon:.3g} for a gradient of {epsilon:g}",
                f"eps={epsilon:g}, added to the root of the second mean",
                says=f"Adam's eps is inside the root: it acts as √eps = {probe.epsilon:.2g}."
                if is_root
                else f"Adam's eps acts as {max(probe.epsilon, 0):.2g}.",
                fix=FIX,
            )
    return passed()


def factors_to(changes: Tensor, expected: Tensor) -> list[float] | None:
    """Return the factor of each update, its learning rate; None if updates differ otherwise."""
    factors = []
    for change, reference in zip(changes.double(), expected.double(), strict=True):
        factor = float((change @ reference) / (reference @ reference).clamp(min=1e-30))
        misfit = float((change - factor * reference).norm())
        if factor <= 0 or misfit > 1e-3 * float(change.norm()) + 1e-12:
            return None
        factors.append(factor)
    return factors


def wrong_correction(factors: list[float], group: dict[str, Any]) -> str:
    """Return the name of Adam with a wrong bias correction, from factors to Adam's updates.

    A schedule in the optimizer has other factors: then the name is empty.
    """
    beta_1, beta_2 = group.get("betas", EXPECTED["betas"])

    def first(step: int) -> float:
        return float(1 - beta_1**step)

    def second(step: int) -> float:
        return float((1 - beta_2**step) ** 0.5)

    steps = range(1, len(factors) + 1)
    if factors[-1] / factors[0] - 1 < 1e-3 and factors[0] / factors[-1] - 1 < 1e-3:
        return ""
    wrong: dict[str, Callable[[int], float]] = {
        "Adam with a constant bias correction": lambda t: first(t) / second(t),
        "Adam without bias correction of the second mean": lambda t: 1 / second(t),
        "Adam without bias correction of the first mean": first,
        "Adam with the bias correction of the next step": (
            lambda t: first(t) / first(t + 1) * second(t + 1) / second(t)
        ),
    }
    for name, factor in wrong.items():
        ratios = [seen / factor(step) for seen, step in zip(factors, steps, strict=True)]
        if max(ratios) / min(ratios) - 1 < 1e-3:
            return name
    return ""


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

    def updates(make: Maker, *change: Callable[[Tensor], Tensor]) -> Tensor:
        parameters = [nn.Parameter(value.clone()) for value in values]
        return updates_of(make(parameters, group), parameters, *change)

    alike = []
    for name, make in {**RELATIVES, "Adam without bias correction": WithoutCorrection}.items():
        expected = updates(make)
        if torch.allclose(changes, expected, rtol=1e-3, atol=1e-9):
            return name
        factors = factors_to(changes, expected)
        if factors is not None:
            alike.append(wrong_correction(factors, group) if name == "Adam" else "")
            alike[-1] = alike[-1] or name
    for name, change in CLIPPED.items():
        if factors_to(changes, updates(RELATIVES["Adam"], change)) is not None:
            alike.append(name)
    own = type(optimizer).__name__
    return alike[0] if alike else f"another algorithm ({own})" if own in RELATIVES else own


def name_options(seen: dict[str, Any], wrong: list[str]) -> str:
    """Return the sentence for a usual mistake in Adam's options; empty if it is another."""
    if wrong == ["betas", "eps"] and seen["betas"] == (0.9, 0.999) and seen["eps"] == 1e-8:
        return "Adam has PyTorch's default betas and eps."
    if wrong == ["weight_decay"]:
        return f"Adam has a weight decay of {seen['weight_decay']}."
    if wrong == ["betas"] and seen["betas"] == (0.98, 0.9):
        return "Adam's betas are swapped."
    return ""
