"""Checks of ``optimizer`` (5.3)."""

import math
from collections import Counter
from typing import Any, NamedTuple

import torch

from .findings import Finding, differs, passed, waits_for
from .loss_gradient import spread
from .optimizers import (
    EXPECTED,
    RATE,
    algorithm_of,
    restored,
    smallest_parameter,
    step,
)
from .registry import check_of
from .subject import AdapterError, Subject, describe


def optimizer_of(subject: Subject) -> torch.optim.Optimizer:
    """Return the optimizer of the subject's model.

    Raises:
        AdapterError: the function returned another type.
    """
    optimizer = subject.call("optimizer", subject.model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise AdapterError(
            f"optimizer() returned {describe(optimizer)}: expected a torch.optim.Optimizer",
            "optimizer",
        )
    return optimizer


FIX = "Use torch.optim.Adam(parameters, lr, betas=(0.9, 0.98), eps=1e-9)."
ALGORITHMS = {
    "Adam with amsgrad": "Adam has amsgrad=True.",
    "Adam with maximize": "The optimizer makes the loss larger, as Adam does with maximize=True.",
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
    "Adam with the bias correction of the first mean for both": (
        "Adam's bias correction of both means is that of the first one, 1 - β1^t."
    ),
    "Adam with the bias correction of the second mean for both": (
        "Adam's bias correction of both means is that of the second one, 1 - β2^t."
    ),
    "Adam with the bias correction of the next step": (
        "Adam's bias correction is that of the next step: steps are counted from 2."
    ),
    "Adam with gradients clipped by norm": "The optimizer clips the norm of the gradient.",
    "Adam with gradients clipped by value": "The optimizer clips each element of the gradient.",
    "Adam with centred gradients": "The optimizer subtracts the mean of each gradient from it.",
    "Adam with gradients centred by row": (
        "The optimizer subtracts from each row of a gradient the mean of the row."
    ),
    "Adam with sums of gradients": "The optimizer adds up the gradients of all updates.",
}


@check_of(
    "adam",
    "5.3",
    passes="The optimizer is Adam with betas=(0.9, 0.98) and eps=1e-09.",
    fails="The optimizer is not Adam with betas=(0.9, 0.98) and eps=1e-09.",
    needs=("optimizer",),
)
def adam(subject: Subject) -> Finding:
    """Compare the optimizer's updates with Adam's, and the options of each of its groups."""
    optimizer = optimizer_of(subject)
    if held_twice(optimizer):
        return waits_for("optimizer-parameters")
    algorithm = algorithm_of(optimizer)
    if algorithm.name == "Adam":
        of_matrices = algorithm_of(optimizer, dims=2)
        algorithm = of_matrices if of_matrices.name != "Adam" else algorithm
    names = {id(parameter): name for name, parameter in subject.model.named_parameters()}
    if algorithm.name != "Adam":
        sentence = f"The optimizer is {algorithm.name}, not Adam{algorithm.detail}."
        is_own = not type(optimizer).__module__.startswith("torch.")
        if is_own and algorithm.name not in ALGORITHMS and not algorithm.detail:
            finding = finding_of_decay(probe_group(optimizer, optimizer.param_groups[0]))
            if finding.failed:
                return finding
            sentence = (
                f"The optimizer is {algorithm.name}, not Adam: its means of gradients or of their "
                "squares are not Adam's."
            )
        return differs(
            f"the updates of {algorithm.name}",
            "the updates of Adam",
            says=ALGORITHMS.get(algorithm.name, sentence),
            fix=FIX,
        )
    for number, group in enumerate(optimizer.param_groups, start=1):
        seen = {key: group.get(key, value) for key, value in EXPECTED.items()}
        seen["betas"] = tuple(seen["betas"])
        wrong = [key for key, value in EXPECTED.items() if seen[key] != value]
        if wrong:
            where = f" in group {number}" if len(optimizer.param_groups) > 1 else ""
            return differs(
                ", ".join(f"{key}={seen[key]}" for key in wrong) + where,
                ", ".join(f"{key}={EXPECTED[key]}" for key in wrong),
                says=name_options(seen, wrong),
                fix=FIX,
            )
    groups = optimizer.param_groups
    rates = sorted({float(group.get("lr", 0)) for group in groups})
    if len(rates) > 1:
        return differs(
            f"lr = {', '.join(f'{rate:g}' for rate in rates)} in {len(groups)} groups",
            "one learning rate for all parameters",
            says="The parameter groups of Adam have different learning rates.",
        )
    sizes = look_at_sizes(optimizer, names, algorithm.rate)
    if abs(algorithm.rate / RATE - 1) > 1e-3:
        return sizes if sizes.failed else finding_of_rate(optimizer, algorithm.rate)
    finding = look_at_probe(optimizer)
    return finding if finding.failed else sizes


def finding_of_rate(optimizer: torch.optim.Optimizer, rate: float) -> Finding:
    """Return the finding on updates that are larger or smaller than lr by a constant factor."""
    twice = algorithm_of(optimizer, 2 * RATE).rate
    power = math.log2(twice / rate)
    says = f"The optimizer's updates are {rate / RATE:.3g} times as large as lr says."
    if abs(power) < 0.01:
        says = f"The optimizer has a learning rate of its own, {rate:.3g}: lr has no effect."
    elif abs(power - 1) > 0.01:
        says = f"The optimizer's updates are proportional to lr^{power:.3g}."
    found = f"updates of {rate:.3g} for lr={RATE:g}, and of {twice:.3g} for lr={2 * RATE:g}"
    return differs(found, f"updates of {RATE:g} and of {2 * RATE:g}", says=says)


class Probe(NamedTuple):
    """What one update of Adam shows of a parameter group, whatever its options say."""

    epsilon: float
    """the number that is added to the root of the second mean"""
    decay: float
    """the part of a parameter without gradient that an update of the learning rate 1 takes"""
    is_penalty: bool
    """whether this update does not depend on the size of the parameter"""


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
    start[3:] = 2.0
    with restored(optimizer):
        with torch.no_grad():
            parameter.copy_(start.view(parameter.shape))
        parameter.grad = gradient.view(parameter.shape)
        step(optimizer)
        after = parameter.detach().flatten().double()
    decay = float(1 - after[2]) / RATE
    is_penalty = abs(decay) > 0.5 and abs(float(2 - after[3]) / RATE / decay - 1) < 1e-3
    if not float(after[0]) < 0:
        return Probe(EXPECTED["eps"], decay, is_penalty)  # a learning rate of 0 shows nothing
    if float(after[1]) == 0:
        return Probe(math.inf, decay, is_penalty)
    ratio = float(after[1] / after[0])
    return Probe(EXPECTED["eps"] * (1 / ratio - 1), decay, is_penalty)


def finding_of_decay(probe: Probe) -> Finding:
    """Return the finding on the update of a parameter without gradient."""
    if abs(probe.decay) < 1e-3:  # NaN is a division of 0 by 0
        return passed()
    says = f"The optimizer decays weights, by {probe.decay:.3g} × lr."
    if abs(probe.decay) * RATE > 0.2:
        says = (
            f"The optimizer changes a parameter of 1 whose gradient is 0 to "
            f"{1 - probe.decay * RATE:.3g}: it bounds or normalises parameters."
        )
    if probe.is_penalty:
        says = "The optimizer adds the weights to the gradient, as an L2 penalty does."
    if math.isnan(probe.decay):
        says = "Adam divides 0 by 0 where a gradient is 0: it has no eps."
    return differs(
        f"an update of {-probe.decay:.3g} × lr for a parameter of 1 with the gradient 0",
        "0",
        says=says,
        fix=FIX,
    )


def look_at_probe(optimizer: torch.optim.Optimizer) -> Finding:
    """Return the finding on the ε and the weight decay that one update of each group shows."""
    epsilon = EXPECTED["eps"]
    for group in optimizer.param_groups:
        if max(p.numel() for p in group["params"]) < 4:
            continue
        probe = probe_group(optimizer, group)
        finding = finding_of_decay(probe)
        if finding.failed:
            return finding
        if 0.5 * epsilon < probe.epsilon < 10 * epsilon:  # 7 with ε before the correction
            continue
        says = f"Adam's eps acts as {max(probe.epsilon, 0):.2g}."
        if abs(probe.epsilon / epsilon**0.5 - 1) < 0.05:
            says = f"Adam's eps is inside the root: it acts as √eps = {probe.epsilon:.2g}."
        if math.isinf(probe.epsilon):
            says = f"A gradient of {epsilon:g} gives no update, as if it was rounded to 0."
        return differs(
            f"an update with eps = {probe.epsilon:.3g} for a gradient of {epsilon:g}",
            f"eps={epsilon:g}, added to the root of the second mean",
            says=says,
            fix=FIX,
        )
    return passed()


def look_at_sizes(optimizer: torch.optim.Optimizer, names: dict[int, str], rate: float) -> Finding:
    """Return the finding on parameters with larger or smaller updates than others.

    Args:
        optimizer: an Adam
        names: of parameters, by their ``id``
        rate: the size of an update
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    rng = torch.Generator().manual_seed(17)
    starts = []
    with restored(optimizer):
        for number, p in enumerate(parameters):
            size = 10 * rate * (1 + number % 7)  # so small that no update is rounded away
            starts.append(size * torch.randn(p.shape, generator=rng))
            p.data.copy_(starts[-1])
            p.grad = torch.randn(p.shape, generator=rng)
        step(optimizer)
        changes = [(p.detach() - start).abs() for p, start in zip(parameters, starts, strict=True)]
    sizes = torch.stack([change.mean() for change in changes])
    usual = sizes[sizes > 0].median()
    wrong = ((sizes / usual - 1).abs() > 1e-2).nonzero().flatten().tolist()
    if not wrong:
        return passed()
    first = wrong[0]
    share = float(sizes[first] / usual)
    name = names.get(id(parameters[first]), "a tensor of another model")
    which = f"{len(wrong)} of {len(sizes)} parameters, such as {name}"
    still = int(changes[first].eq(0).sum())
    roots = torch.stack([start.square().mean().sqrt() for start in starts])
    if spread(sizes / roots) < 1e-2:
        says = "The optimizer multiplies updates by the parameter's norm, as LAMB does."
    elif still:
        elements = f"{still:,} of {starts[first].numel():,} elements"
        says = f"The optimizer does not update {elements} of {which}."
        says = says.replace(f"{elements} of ", "") if still == starts[first].numel() else says
    else:
        says = f"The optimizer's updates of {which}, are {share:.3g} times as large as of others."
    return differs(
        f"updates of {which}: {share:.3g} times the usual size", "equal sizes", says=says
    )


def name_options(seen: dict[str, Any], wrong: list[str]) -> str:
    """Return the sentence for a usual mistake in Adam's options; empty if it is another."""
    if wrong == ["betas", "eps"] and seen["betas"] == (0.9, 0.999) and seen["eps"] == 1e-8:
        return "Adam has PyTorch's default betas and eps."
    if wrong == ["weight_decay"]:
        return f"Adam has a weight decay of {seen['weight_decay']}."
    if wrong == ["betas"] and seen["betas"] == (0.98, 0.9):
        return "Adam's betas are swapped."
    return ""


def held_twice(optimizer: torch.optim.Optimizer) -> int:
    """Return how many parameters an optimizer holds more than once."""
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    return sum(number > 1 for number in Counter(held).values())


@check_of(
    "optimizer-parameters",
    "5.3",
    passes="The optimizer holds every parameter of the model, and no others.",
    fails="The optimizer does not hold exactly the parameters of the model.",
    needs=("optimizer",),
)
def optimized_parameters(subject: Subject) -> Finding:
    """Compare the optimizer's parameters with the trained parameters of the model."""
    optimizer = optimizer_of(subject)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): n for n, p in subject.model.named_parameters() if p.requires_grad}
    missing = [name for key, name in named.items() if key not in held]
    own = {id(p) for p in subject.model.parameters()}
    foreign = len(held - own)
    twice = held_twice(optimizer)
    if twice:
        return differs(
            f"{twice} of {len(held)} parameters more than once",
            f"the {len(named)} parameters of the model, each once",
            says=f"The optimizer holds {twice} parameters twice: each step updates them twice.",
        )
    if not missing and not foreign:
        return passed()
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    parts = [f"{foreign} tensors that are not parameters of the model"] if foreign else []
    parts += [f"not {', '.join(missing[:3])}{more}"] if missing else []
    return differs(
        "; ".join(parts),
        f"the {len(named)} parameters of the model",
        says="The optimizer does not hold every parameter of the model." if missing else "",
    )
