"""The activations of a model, from ``logits`` alone (3.2.1, 3.3).

The output of a network's first product, d_ff activations per token, is compared with the input of
its second product.

Shape letters: L length, F d_ff.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .findings import DIFFERENCE, VARIANT, Finding, differs, not_run, passed
from .registry import check_of
from .scores import scales_of
from .subject import Subject, difference
from .trace import trace_model
from .wiring import Wiring, check_of_wiring

NO_ACTIVATION = "no activation"
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "GELU (tanh approximation)": lambda x: F.gelu(x, approximate="tanh"),
    "SiLU": F.silu,
    "leaky ReLU": F.leaky_relu,
    "squared ReLU": lambda x: F.relu(x) ** 2,
    "ELU": F.elu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    NO_ACTIVATION: lambda x: x,
}


def name_of_activation(subject: Subject, before: Tensor, after: Tensor) -> str:
    """Return the name of the activation between two tensors of one shape; empty if none fits.

    Args:
        subject: a model that may add a bias [F] between them
        before: the first product
        after: the second product's input
    """
    biases = [torch.zeros(())]
    width = subject.config.d_ff
    if before.size(-1) == width:  # a convolution adds its bias itself
        biases += [p.detach() for p in subject.model.parameters() if p.shape == (width,)]
    for describe in (name_of_function, name_of_changed_function):
        for bias in biases:
            name = describe(before + bias, after)
            if name:
                return name
    return ""


def normalise(x: Tensor) -> Tensor:
    """Return x with mean 0 and variance 1 of each token."""
    return F.layer_norm(x, x.shape[-1:])


def name_of_function(x: Tensor, y: Tensor) -> str:
    """Return the name of the activation with y = activation(x); empty if none fits."""
    for name, activation in ACTIVATIONS.items():
        if difference(activation(x), y) < 1e-4:
            return name
    return ""


def name_of_changed_function(x: Tensor, y: Tensor) -> str:
    """Return the name of the activation that is clipped or has a factor; empty if none fits."""
    highest = float(y.max())
    negative = y[x < -1e-3] / x[x < -1e-3]
    slope = float(negative.median())
    if difference(F.leaky_relu(x, slope), y) < 1e-4:
        return f"leaky ReLU with slope {slope:.3g}"
    for name, activation in ACTIVATIONS.items():
        usual = activation(x)
        if difference(normalise(usual), y) < 1e-3:
            return f"{name} and a LayerNorm after it"
        if difference(activation(normalise(x)), y) < 1e-3:
            return f"{name} and a LayerNorm before it"
        if difference(usual.clamp(max=highest), y) < 1e-4:
            return f"{name} clipped at {highest:.3g}"
        factor = float((usual * y).sum() / usual.pow(2).sum())
        if difference(factor * usual, y) < 1e-4:
            return f"{name} times {factor:.3g}"
    return ""


@check_of_wiring(
    "activation",
    "3.3",
    passes="The activation of every feed-forward network is ReLU.",
    fails="The activation of a feed-forward network is not ReLU.",
)
def activations(wiring: Wiring) -> Finding:
    """Compare the output of each network's first product with the input of its second."""
    subject = wiring.subject
    with trace_model(wiring.wide) as trace:
        subject.logits(wiring.source, wiring.target)
    products = [event for event in trace.events if not event.is_softmax]
    if not products or len(products) != len(trace.reads):
        return not_run("no two products with config.d_ff numbers per token were seen")
    pairs = list(zip(products, trace.reads, strict=True))
    if any(product.result.shape != read.shape for product, read in pairs):
        return not_run("the products with config.d_ff numbers per token have different shapes")
    names = [name_of_activation(subject, p.result, read) for p, read in pairs]
    wrong = [p for (p, _), name in zip(pairs, names, strict=True) if name != "ReLU"]
    if not wrong:
        return passed()
    modules = subject.names_of(event.module for event in wrong)
    wrong_names = [name for name in dict.fromkeys(names) if name != "ReLU"]
    counted = f" in {len(wrong)} of {len(names)} networks"
    if "" in wrong_names:
        return differs(
            f"an unknown function of the first product{counted}", "ReLU", modules=modules
        )
    is_linear = NO_ACTIVATION in wrong_names
    has_norm = any("LayerNorm" in name for name in wrong_names)
    return Finding(
        DIFFERENCE if is_linear or has_norm else VARIANT,
        f"{', '.join(wrong_names)}{counted}",
        "ReLU",
        says="A feed-forward network has no activation between its matrices."
        if is_linear
        else f"The activation of the feed-forward networks is {' and '.join(wrong_names)}.",
        modules=modules,
        explains=("parameter-count",) if has_norm else (),
    )


# ---- elsewhere -----------------------------------------------------------------------------------

STRAYS = {
    "queries or keys": "{} is applied to queries or keys before their product.",
    "scores": "{} is applied to the scores of attention, before the softmax.",
    "values": "{} is applied to the values of attention.",
    "sum": "{} is applied to a sub-layer's output before the residual sum.",
    "logits": "{} is applied to the logits.",
    "matrix": "{} comes before a projection that reads the layer's input or output.",
}


AFTER_LOGITS = (
    *("softmax-dimension", "residual-connections", "sublayer-output-used", "encoder-output"),
    *("causal-mask", "gradients", "decoder-input", "heads", "source-dependence", "attention-scale"),
)
"""checks that may fail for an activation of the logits"""


AFTER_SCORES = (
    *("equation-1-mask", "source-padding", "causal-mask", "target-padding", "mask-value"),
    *("equation-1-scale", "attention-scale", "source-visible", "target-visible"),
)
"""checks that may fail for an activation of the scores of attention"""


@check_of(
    "stray-activation",
    "3.2.1",
    passes="Queries, keys, values and sub-layers' outputs are linear: no activation changes them.",
    fails="An activation is applied where the paper has none.",
    explains=(
        "equation-1-softmax",
        "attention-inputs",
        "final-norm",
        "output-scale",
        "residual-sums",
        "feed-forward-place",
        "post-norm",
        "activation",
        "self-attention-inputs",
    ),
)
def stray_activations(subject: Subject) -> Finding:
    """Look for activations of queries, keys, values, residual sums and projections."""
    trace = scales_of(subject)
    strays = list(dict.fromkeys(trace.strays))
    factors = {factor for factor in trace.factors_of_weights if abs(factor - 1) > 1e-6}
    if strays:
        name, use = strays[0]
        found = ", ".join(f"{name} ({use})" for name, use in strays)
        says = STRAYS[use].format(name[0].upper() + name[1:] if name[1] == " " else name)
        explains = {"logits": AFTER_LOGITS, "scores": AFTER_SCORES}.get(use, ())
        expected = "a ReLU in the feed-forward networks alone"
        return differs(found, expected, says=says, explains=explains)
    if factors:
        number = f"{factors.pop():.4g}"
        says = f"The attention weights are multiplied by {number} after the softmax."
        return differs(f"weights times {number}", "no factor", says=says)
    return passed()
