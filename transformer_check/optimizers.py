"""The algorithm of an optimizer, recognised by the updates that it makes (5.3)."""

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .subject import AdapterError

UPDATES = 8
RATE = 1e-3
BETAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.997, 0.998, 0.999, 0.9999)
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


CHANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "Adam with gradients clipped by norm": lambda g: (
        g / g.flatten(1).norm(dim=1).view(-1, *[1] * (g.dim() - 1))
    ),
    "Adam with gradients clipped by value": torch.sign,
    "Adam with centred gradients": lambda g: (
        g - g.flatten(1).mean(1).view(-1, *[1] * (g.dim() - 1))
    ),
    "Adam with gradients centred by row": lambda g: (
        g - g.mean(tuple(range(2, g.dim())), keepdim=True) if g.dim() > 2 else g
    ),
    "Adam with sums of gradients": lambda g: g.cumsum(0),
}
"""what Adam reads of large gradients [U, …], up to a factor"""


def seeded_gradients(shape: torch.Size) -> Tensor:
    """Return gradients [U, *shape], all large enough to be clipped where any are."""
    rng = torch.Generator().manual_seed(16)
    gradients = torch.randn(UPDATES, *shape, generator=rng)
    gradients += 0.5 * gradients.sign()
    gradients[2] *= 10  # a peak, which AMSGrad and Adamax remember
    return 1e3 * gradients


def step(optimizer: torch.optim.Optimizer) -> None:
    """Update the parameters; those without a gradient get zeros if the optimizer needs one.

    Raises:
        AdapterError: the optimizer raises an error, such as that it needs a closure.
    """
    try:
        try:
            optimizer.step()
        except (AttributeError, TypeError):
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            optimizer.step()
    except Exception as error:
        found = f"optimizer(model).step() raised {type(error).__name__}: {error}"
        raise AdapterError(found, "optimizer") from error


def updates_of(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, gradients: Tensor
) -> Tensor:
    """Return the changes [U, N] of a parameter by updates with gradients [U, …]."""
    changes = []
    for gradient in gradients:
        before = parameter.detach().flatten().clone()
        parameter.grad = gradient.clone()
        step(optimizer)
        changes.append(parameter.detach().flatten() - before)
    return torch.stack(changes)


def smallest_parameter(group: dict[str, Any], dims: int = 1) -> nn.Parameter:
    """Return the smallest parameter of a group with more than three elements.

    Args:
        group: of an optimizer
        dims: the least number of dimensions, if a parameter has as many
    """
    own = [p for p in group["params"] if p.dim() >= dims] or group["params"]
    parameter: nn.Parameter = min(own, key=lambda p: p.numel() if p.numel() > 3 else math.inf)
    return parameter


@contextmanager
def restored(optimizer: torch.optim.Optimizer, rate: float = RATE) -> Iterator[None]:
    """Set the learning rate in the context; then restore model and optimizer."""
    every = [p for each in optimizer.param_groups for p in each["params"]]
    values = [p.detach().clone() for p in every]
    gradients = [p.grad for p in every]
    state = copy.deepcopy(optimizer.state_dict())
    try:
        for p in every:
            p.grad = None
        for each in optimizer.param_groups:
            each["lr"] = rate
        yield
    finally:
        with torch.no_grad():
            for p, value, gradient in zip(every, values, gradients, strict=True):
                p.copy_(value)
                p.grad = gradient
        optimizer.load_state_dict(state)


def measure_updates(
    optimizer: torch.optim.Optimizer,
    parameter: nn.Parameter,
    gradients: Tensor,
    rate: float = RATE,
) -> Tensor:
    """Return the changes [U, N] of a parameter that begins with 0, so that none is rounded away.

    Model and optimizer are restored.
    """
    with restored(optimizer, rate):
        with torch.no_grad():
            parameter.zero_()
        return updates_of(optimizer, parameter, gradients)


def factors_to(changes: Tensor, expected: Tensor, close: float = 1e-3) -> list[float] | None:
    """Return the factor of each update, its learning rate; None if updates differ otherwise."""
    factors = []
    for change, reference in zip(changes.double(), expected.double(), strict=True):
        factor = float((change @ reference) / (reference @ reference).clamp(min=1e-30))
        misfit = float((change - factor * reference).norm())
        if factor <= 0 or not misfit <= close * float(change.norm()) + 1e-12:
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
    is_small = abs(factors[0] - first(1) / second(1)) < 1e-2
    constant = "out bias correction" if is_small else " a constant bias correction"
    wrong: dict[str, Callable[[int], float]] = {
        f"Adam with{constant}": lambda t: first(t) / second(t),
        "Adam without bias correction of the second mean": lambda t: 1 / second(t),
        "Adam without bias correction of the first mean": first,
        "Adam with the bias correction of the first mean for both": (
            lambda t: first(t) ** 0.5 / second(t)
        ),
        "Adam with the bias correction of the second mean for both": (
            lambda t: first(t) / second(t) ** 2
        ),
        "Adam with the bias correction of the next step": (
            lambda t: first(t) / first(t + 1) * second(t + 1) / second(t)
        ),
    }
    for name, factor in wrong.items():
        ratios = [seen / factor(step) for seen, step in zip(factors, steps, strict=True)]
        if max(ratios) / min(ratios) - 1 < 1e-3:
            return name
    return ""


class Algorithm(NamedTuple):
    """The algorithm of an optimizer."""

    name: str
    """"Adam", the name of a relative, or the name of the class if its updates are none of these"""
    detail: str = ""
    """what its updates show, after a colon"""
    rate: float = RATE
    """the learning rate of Adam's updates that are the same; ``RATE`` if there are none"""


def algorithm_of(optimizer: torch.optim.Optimizer, rate: float = RATE, dims: int = 1) -> Algorithm:
    """Return the algorithm that makes an optimizer's updates of its smallest parameter.

    A class that makes Adam's updates is Adam, whatever its name.

    Args:
        optimizer: the optimizer
        rate: the learning rate of the updates
        dims: the least number of dimensions of the parameter
    """
    own = type(optimizer).__name__
    group = optimizer.param_groups[0]
    if isinstance(group.get("eps"), tuple):  # Adafactor's
        return Algorithm(own)
    parameter = smallest_parameter(group, dims)
    try:
        changes = measure_updates(optimizer, parameter, seeded_gradients(parameter.shape), rate)
        if not changes.any():  # perhaps no vector is updated
            parameter = max(group["params"], key=torch.numel)
            changes = measure_updates(optimizer, parameter, seeded_gradients(parameter.shape))
    except AdapterError:  # it needs a closure or sparse gradients
        return Algorithm(own)
    gradients = seeded_gradients(parameter.shape)

    def updates(make: Maker, change: Callable[[Tensor], Tensor] = torch.clone) -> Tensor:
        copied = nn.Parameter(torch.zeros(parameter.shape))
        return updates_of(make([copied], group), copied, change(gradients))

    alike = []
    for name, make in RELATIVES.items():
        expected = updates(make)
        if torch.allclose(changes, expected * (rate / RATE), rtol=1e-3, atol=1e-9):
            return Algorithm(name, rate=rate)
        factors = factors_to(changes, expected)
        if factors is not None:
            alike.append(wrong_correction(factors, group) if name == "Adam" else "")
            alike[-1] = alike[-1] or name
            is_constant = max(factors) < 1.001 * min(factors)
            if alike == ["Adam"] and is_constant:
                return Algorithm("Adam", rate=factors[0] * RATE)
    for name, change in CHANGED.items():
        if factors_to(changes, updates(RELATIVES["Adam"], change)) is not None:
            alike.append(name)
    if alike:
        return Algorithm(alike[0])
    twice = measure_updates(optimizer, parameter, 2 * gradients)
    again = measure_updates(optimizer, parameter, gradients)
    detail = describe_updates(changes, twice, again, updates)
    if not detail and factors_to(changes[:1], gradients[:1].flatten(1).neg()) is not None:
        detail = ": the elements of a parameter share one second mean"
    return Algorithm(f"another algorithm ({own})" if own in RELATIVES else own, detail)


def precision_of(values: Tensor) -> str:
    """Return the name of the shorter type to which values are rounded; empty if to none."""
    for name, dtype in {"bfloat16": torch.bfloat16, "float16": torch.float16}.items():
        rest = (values - values.to(dtype).float()).abs().max()
        if float(rest) < 1e-5 * float(values.abs().max()):
            return name
    return ""


def describe_updates(
    changes: Tensor, twice: Tensor, again: Tensor, updates: Callable[[Maker], Tensor]
) -> str:
    """Return what the updates of an unknown algorithm show, after a colon; empty if nothing.

    Args:
        changes: [U, N]
        twice: [U, N], with twice the gradients
        again: [U, N], with the same gradients
        updates: maker of an optimizer → its changes [U, N]
    """
    sizes = changes.abs().amax(1)
    moving = sizes.gt(0).nonzero().flatten().tolist()
    if not moving:
        return ": step() changes nothing"
    if len(moving) < UPDATES:
        calls = ", ".join(str(number + 1) for number in moving)
        return f": of {UPDATES} calls of step(), only {calls} change parameters"
    rounded = precision_of(changes.cumsum(0))
    if rounded:
        return f": it rounds parameters to {rounded}"
    if float((changes.abs().amin(1) / sizes).min()) > 0.999:
        return ": all elements change by the same amount, as with the sign of a gradient"
    expected = updates(RELATIVES["Adam"])
    own = [factors_to(changes[:n], expected[:n]) is not None for n in range(1, UPDATES + 1)]
    number = own.index(False)
    if number > 1:
        return f": its first {number} updates are Adam's, and the next is not"
    if factors_to(changes, again) is None:
        return ": its updates differ from run to run, for the same gradients"
    ratio = float(twice[0].norm() / changes[0].norm())
    if abs(ratio - 2) < 0.02:
        return ": its updates are proportional to the gradient"
    if not abs(ratio - 1) < 0.02:
        return f": a gradient twice as large gives an update {ratio:.3g} times as large"
    for betas in itertools.product(BETAS, BETAS):
        if factors_to(changes, updates(adam(torch.optim.Adam, betas=betas)), 1e-5) is not None:
            return f": its updates are those of Adam with betas=({betas[0]:g}, {betas[1]:g})"
    return ""
