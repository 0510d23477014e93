"""Checks of modules and matrices that several parts of a model share, by its module tree.

Shape letters: B batch, S source, T target, V vocabulary, D d_model.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .findings import Finding, differs, not_run, passed, variant
from .registry import check_of
from .subject import Subject


def shared_modules(subject: Subject) -> list[list[str]]:
    """Return the names of each module that has several, but not of its parts.

    Modules that hold only matrices of the vocabulary are left out: the paper shares them, too.
    """
    names: dict[nn.Module, list[str]] = {}
    for name, module in subject.model.named_modules(remove_duplicate=False):
        own = [p for p in module.parameters() if subject.config.vocabulary not in p.shape]
        if name and own:
            names.setdefault(module, []).append(name)
    groups = [own for own in names.values() if len(own) > 1]
    within = {name for own in groups for name in own[1:]}
    return [own for own in groups if not any(is_in(own[1], other) for other in within)]


def is_in(name: str, parent: str) -> bool:
    """Return whether a module is a part of another module."""
    return name.startswith(f"{parent}.")


def shared_parameters(subject: Subject) -> list[list[str]]:
    """Return the names of each parameter that has several, except the vocabulary's matrices."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in subject.model.named_parameters(remove_duplicate=False):
        if subject.config.vocabulary not in parameter.shape:
            names.setdefault(parameter, []).append(name)
    return [own for own in names.values() if len(own) > 1]


def calls_of_modules(subject: Subject) -> Counter[str]:
    """Count the different inputs that each module with parameters gets in one run."""
    calls: dict[str, set[float]] = {}
    config = subject.config
    sizes = {subject.source[:1].numel() * config.d_model}
    sizes.add(subject.target[:1].numel() * config.d_model)
    handles = []
    for name, module in subject.model.named_modules():
        own = [p for p in module.parameters() if config.vocabulary not in p.shape]
        if not name or not own or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            continue

        def count(_: nn.Module, inputs: Any, name: str = name) -> None:
            x = inputs[0] if inputs else None
            if isinstance(x, Tensor) and x.is_floating_point() and x.numel() in sizes:
                calls.setdefault(name, set()).add(float(x.detach().pow(3).sum()))

        handles.append(module.register_forward_pre_hook(count))
    try:
        subject.logits(subject.source[:1], subject.target[:1])
    finally:
        for handle in handles:
            handle.remove()
    return Counter({name: len(inputs) for name, inputs in calls.items()})


def modules_called_again(subject: Subject) -> list[str]:
    """Return the outermost modules that one run calls several times."""
    calls = calls_of_modules(subject)
    names = [name for name, count in calls.items() if count > 1]
    return [name for name in names if not any(is_in(name, other) for other in names)]


def equal_matrices(subject: Subject) -> list[list[str]]:
    """Return the names of matrices that begin with the same random numbers."""
    names: dict[bytes, list[str]] = {}
    for name, parameter in subject.model.named_parameters():
        matrix = parameter.detach()
        is_of_layer = subject.config.vocabulary not in matrix.shape
        if is_of_layer and subject.is_matrix(matrix) and float(matrix.std()) > 1e-6:
            numbers = hashlib.sha256(matrix.contiguous().numpy()).digest()
            names.setdefault(numbers, []).append(name)
    groups = [own for own in names.values() if len(own) > 1]
    if not groups:
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        other = dict(subject.call("build", subject.config).named_parameters())
    model = dict(subject.model.named_parameters())
    return [own for own in groups if not torch.equal(model[own[0]], other[own[0]])]


BREAKS = (
    "parameter-count",
    "gradients",
    "final-norm",
    "residual-sums",
    "head-size",
    "feed-forward-size",
    "shared-matrix",
    "optimizer-parameters",
    "heads",
    "norm-epsilon",
    "post-norm",
    "norm-variance",
    "activation",
    "feed-forward-place",
    "self-attention-inputs",
)


@check_of(
    "shared-modules",
    "3.1",
    passes="Every layer and sub-layer has parameters of its own.",
    fails="Layers or sub-layers share parameters.",
    explains=BREAKS,
)
def own_parameters(subject: Subject) -> Finding:
    """Look for modules and parameters with several names, and for modules called again."""
    groups = shared_modules(subject)
    kind = "module"
    if not groups:
        groups = shared_parameters(subject)
        kind = "parameter"
    expected = "one use of each layer and sub-layer"
    if groups:
        first = groups[0]
        more = f", and {len(groups) - 1} more" if len(groups) > 1 else ""
        return differs(
            f"one {kind} is {' and '.join(first[:4])}{more}",
            expected,
            says=f"{first[0]} and {first[1]} are one {kind}.",
            fix="Make a new module for each layer: [layer] * n repeats one.",
            explains=("attention-inputs",),
            modules=tuple(name for own in groups for name in own),
        )
    again = modules_called_again(subject)
    if again:
        return differs(
            f"{again[0]} is called {calls_of_modules(subject)[again[0]]} times for one sentence",
            expected,
            says=f"{again[0]} is used several times.",
            modules=tuple(again),
        )
    used = matrices_used_again(subject)
    if used:
        return differs(
            f"{len(used)} matrices are used several times for one sentence",
            expected,
            says=f"{used[0]} is used several times in one run, for example for keys and values.",
            modules=tuple(name.rpartition(".")[0] for name in used),
            explains=("attention-inputs",),
        )
    equal = equal_matrices(subject)
    if equal:
        return differs(
            f"{' and '.join(equal[0][:4])} of a new model have equal numbers",
            "other random numbers in each",
            says=f"{equal[0][0]} and {equal[0][1]} begin with the same random numbers: layers are "
            "copies of one layer.",
            fix="Initialise each layer by itself, after copying.",
            modules=tuple(name for own in equal for name in own),
        )
    return passed()


# ---- Parameters that are not registered ----------------------------------------------------------


def edges_of_graph(result: Tensor) -> Iterator[tuple[Any, Any]]:
    """Yield the edges of a result's graph: an operation, and an operation or leaf that it reads."""
    seen = set()
    nodes: list[Any] = [result.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for parent, _ in node.next_functions:
            yield node, parent
            nodes.append(parent)


def parameters_in_graph(result: Tensor) -> list[Tensor]:
    """Return the leaf tensors with a gradient from which a result is computed."""
    parents = dict.fromkeys(parent for _, parent in edges_of_graph(result))
    return [parent.variable for parent in parents if hasattr(parent, "variable")]


PARTS = ("Select", "Slice", "Split", "Chunk", "Unbind", "Index")
"""operations whose result is a part of a matrix: that of one head, or of queries"""


def matrices_used_again(subject: Subject) -> list[str]:
    """Return the names of matrices, but the vocabulary's, that one run uses two or three times."""
    logits = subject.logits(subject.source[:1], subject.target[:1])
    names = {id(p): name for name, p in subject.model.named_parameters() if subject.is_matrix(p)}
    uses: Counter[str] = Counter()
    for node, parent in edges_of_graph(logits):
        name = names.get(id(getattr(parent, "variable", None)), "")
        if name and not type(node).__name__.startswith(PARTS):
            uses[name] += 1
    shapes = {name: p.shape for name, p in subject.model.named_parameters()}
    own = [name for name in uses if subject.config.vocabulary not in shapes[name]]
    return [name for name in own if 1 < uses[name] < 4]


@check_of(
    "registered-parameters",
    "3.1",
    passes="Every parameter that logits() uses is one of the model's.",
    fails="logits() uses parameters that model.parameters() does not have.",
    explains=(
        *BREAKS,
        "attention-inputs",
        "training-mode",
        "training-dropout",
        "evaluation-dropout",
    ),
)
def registered_parameters(subject: Subject) -> Finding:
    """Follow the graph of the logits back to its parameters."""
    logits = subject.logits(subject.source[:1], subject.target[:1])
    registered = {id(parameter) for parameter in subject.model.parameters()}
    foreign = [leaf for leaf in parameters_in_graph(logits) if id(leaf) not in registered]
    if not foreign:
        return passed()
    count = sum(leaf.numel() for leaf in foreign)
    return differs(
        f"{len(foreign)} tensors with {count:,} numbers are used and not registered",
        "all are in model.parameters()",
        says="Layers are not registered: model.parameters() does not contain their parameters.",
        fix="Keep layers in nn.ModuleList, not in a list, and tensors as nn.Parameter.",
    )


# ---- Matrices of the vocabulary ------------------------------------------------------------------


def uses_of_matrices(subject: Subject) -> dict[str, set[str]]:
    """Return the uses of each matrix of the vocabulary: source, target, output."""
    c = subject.config
    shapes = {(c.vocabulary, c.d_model), (c.d_model, c.vocabulary)}
    uses: dict[str, set[str]] = {}
    logits = subject.logits(subject.source[:1], subject.target[:1])
    if not logits.requires_grad:
        return uses
    used = {*subject.source[0].tolist(), *subject.target[0].tolist(), c.pad, c.start, c.end}
    unused = sorted(set(range(c.vocabulary)) - used)[:2]
    only_source = sorted(set(subject.source[0].tolist()) - set(subject.target[0].tolist()))
    only_target = sorted(set(subject.target[0].tolist()) - set(subject.source[0].tolist()))
    total = (logits[..., unused[0]] - logits[..., unused[1]]).sum()
    for name, parameter in subject.model.named_parameters():
        if tuple(parameter.shape) not in shapes:
            continue
        gradient = torch.autograd.grad(total, parameter, retain_graph=True, allow_unused=True)[0]
        if gradient is None:
            uses[name] = set()
            continue
        rows = gradient if gradient.size(0) == c.vocabulary else gradient.T
        places = {"source": only_source, "target": only_target, "output": unused}
        uses[name] = {use for use, ids in places.items() if ids and bool(rows[ids].any())}
    return uses


def names_of_one_storage(subject: Subject, names: list[str]) -> list[str]:
    """Return the names of parameters that share memory; empty if there are none."""
    parameters = dict(subject.model.named_parameters())
    places: dict[int, list[str]] = {}
    for name in names:
        places.setdefault(parameters[name].data_ptr(), []).append(name)
    return next((own for own in places.values() if len(own) > 1), [])


def is_tied_to_source(subject: Subject) -> str:
    """Return the name of a matrix of the source and the output, but not of the target."""
    for name, uses in uses_of_matrices(subject).items():
        if uses == {"source", "output"}:
            return name
    return ""


@check_of(
    "shared-matrix",
    "3.4",
    passes="Source embedding, target embedding and output projection share one matrix.",
    fails="Source embedding, target embedding and output projection do not share one matrix.",
    explains=("parameter-count",),
)
def one_matrix(subject: Subject) -> Finding:
    """Count the parameters with one row per token of the vocabulary."""
    types, width = subject.config.vocabulary, subject.config.d_model
    shapes = {(types, width), (width, types)}
    names = [n for n, p in subject.model.named_parameters() if tuple(p.shape) in shapes]
    if len(names) == 1:
        return passed()
    if not names:
        return not_run(f"no parameter has the shape [{types}, {width}] of CONFIG")
    one_storage = names_of_one_storage(subject, names)
    if one_storage:
        return differs(
            f"{' and '.join(one_storage)} are different parameters with the same numbers in memory",
            "one parameter",
            says=f"{' and '.join(one_storage[:2])} share their .data, but are two parameters: the "
            "optimizer updates the numbers twice.",
            fix="Assign the parameter itself: output.weight = embedding.weight.",
        )
    more = (len(names) - 1) * types * width
    tied = is_tied_to_source(subject)
    if tied:
        return differs(
            f"{tied} is the source embedding and the output projection",
            "the matrix of the target embedding, which the output shares",
            says="The output projection shares the source's matrix instead of the target's.",
            modules=(tied.rpartition(".")[0],),
        )
    return variant(
        f"{len(names)} matrices ({', '.join(names)}), {more:+,} parameters at this size",
        "1 matrix",
    )
