"""Positions: the sinusoids, and learned tables, by the rows that get a gradient (3.5).

Shape letters: B batch, S source, T target, V vocabulary, D d_model.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .embeddings import (
    NO_MULTIPLE,
    SIDES,
    check_of_embeddings,
    embed,
    factor_and_rows,
    formula_of_positions,
    positions,
)
from .findings import Finding, differs, error, not_run, passed, variant
from .registry import check_of
from .sinusoids import PAPER, constant_beside, name_columns
from .subject import AdapterError, Subject

SUMS = ("add", "add_")


class PositionSums(TorchDispatchMode):
    """Counts the additions of the first rows of a table of positions.

    Args:
        table: the positions [L, D]
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table
        self.sums: set[tuple[int, float]] = set()
        """how many rows were added, and the sum of all numbers of the result"""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in SUMS:
            for term in args[:2]:
                length = rows_of_table(term, self.table)
                if length:
                    self.sums.add((length, round(float(result.detach().double().sum()), 3)))
        return result

    def count(self, length: int) -> int:
        """Return the number of different sums with ``length`` rows."""
        return sum(rows == length for rows, _ in self.sums)


def rows_of_table(tensor: Any, table: Tensor) -> int:
    """Return L if a tensor is the first L rows of a table [more than L, D], else 0."""
    if not isinstance(tensor, Tensor) or tensor.is_nested or tensor.dim() == 0:
        return 0
    if tensor.size(-1) != table.size(1):
        return 0
    length = tensor.numel() // table.size(1)
    if not 0 < length <= len(table):
        return 0
    rows = tensor.detach().reshape(length, -1)
    return length if float((rows - table[:length]).abs().max()) < 1e-4 else 0


@lru_cache(maxsize=1)
def position_tables(subject: Subject) -> list[tuple[str, int]]:
    """Return the names of the tables of positions, with the number of rows that a sentence uses.

    A table [more than L, D] has a gradient in as many rows as the source or the target has tokens.
    The rows are consecutive, and the first of them is near the start of the table.
    """
    source, target = subject.source[:1], subject.target[:1]
    logits = subject.logits(source, target)
    if not logits.requires_grad:
        return []
    named = [(n, p) for n, p in subject.model.named_parameters() if p.requires_grad]
    rng = torch.Generator().manual_seed(18)
    total = (logits * torch.randn(logits.shape, generator=rng)).sum()
    gradients = torch.autograd.grad(total, [p for _, p in named], allow_unused=True)
    tables = []
    for (name, parameter), gradient in zip(named, gradients, strict=True):
        if gradient is None or parameter.shape[-1] != subject.config.d_model:
            continue
        used = rows_with_gradient(gradient)
        if used in (source.size(1), target.size(1)):
            tables.append((name, used))
    return tables


def rows_with_gradient(gradient: Tensor) -> int:
    """Return the number of rows with a gradient; 0 unless consecutive and near the start."""
    rows = gradient.reshape(-1, gradient.size(-1)).abs().amax(-1).nonzero().flatten().tolist()
    few = len(rows) < gradient.numel() // gradient.size(-1)
    is_range = bool(rows) and rows == list(range(rows[0], rows[0] + len(rows)))
    return len(rows) if few and is_range and rows[0] <= 4 else 0


# ---- The checks ----------------------------------------------------------------------------------


@check_of_embeddings(
    "sinusoids",
    "3.5",
    passes="The positional encodings have the paper's values.",
    fails="The positional encodings do not have the paper's values.",
)
def sinusoid_values(subject: Subject, function: str) -> Finding:
    """Compare the positions, the embeddings minus the tokens' rows, with sinusoids."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_run(NO_MULTIPLE)
    if subject.config.learned_positions:
        return not_run("CONFIG.learned_positions is True")
    seen = positions(subject, function)
    expected = "PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same), from position 0"
    if seen.abs().max() < 1e-3:
        says = "The embeddings have no positional encodings."
        return error("zeros", expected, says=says, explains=("source-order", "target-order"))
    constant = constant_beside(seen)
    if constant is not None:
        return differs(
            f"the same vector of length {float(constant.norm()):.2g} at every position",
            "none: embedding · √d_model + PE(pos)",
            says="A constant vector is added to embeddings and positional encodings.",
            fix="Remove the embedding of segments, types or languages, or the bias.",
            modules=tuple(names_of_constants(subject, function)),
            explains=("parameter-count",),
        )
    formula = formula_of_positions(subject, function)
    if formula == PAPER:
        return look_for_other_sums(subject, function, seen)
    if formula is None:
        if learned_tables(subject):
            return not_run("the positions are learned")
        return differs(
            f"values from {float(seen.min()):.3g} to {float(seen.max()):.3g}",
            expected,
            says=f"The positional encodings are not the paper's sinusoids: {name_columns(seen)}.",
        )
    found = "; ".join(formula.differences)
    if function == "target_embedding" and subject.has("embedding"):
        of_source = formula_of_positions(subject, "embedding")
        if of_source is not None and of_source != formula:
            says = f"Source and target have different positional encodings: of the target, {found}."
            padding = ("target-padding",) if "counted from the end" in found else ()
            return differs(found, expected, says=says, fix=formula.fix, explains=padding)
    find = variant if formula.is_variant else differs
    explains = ["source-order", "target-order"]
    if "counted from the end" in found:  # then padding moves every token
        explains += ["target-padding", "source-padding", "batch-independence"]
    return find(
        found,
        expected,
        says=f"In the sinusoids, {found}.",
        fix=formula.fix,
        explains=tuple(explains),
    )


def names_of_constants(subject: Subject, function: str) -> list[str]:
    """Return the names of parameters with a row that every embedding of a sentence adds."""
    c = subject.config
    ids = subject.source[:1]
    total = embed(subject, function, ids).sum()
    if not total.requires_grad:
        return []
    named = [
        (name, p)
        for name, p in subject.model.named_parameters()
        if p.requires_grad and p.shape[-1] == c.d_model and p.shape != (c.vocabulary, c.d_model)
    ]
    gradients = torch.autograd.grad(total, [p for _, p in named], allow_unused=True)
    names = []
    for (name, _), gradient in zip(named, gradients, strict=True):
        if gradient is not None:
            rows = gradient.reshape(-1, c.d_model)
            used = rows[rows.abs().amax(1) > 0]
            if len(used) == 1 and float(used.min()) > ids.size(1) - 0.5:
                names.append(name)
    return names


def look_for_other_sums(subject: Subject, function: str, table: Tensor) -> Finding:
    """Return a difference if the model adds the positions [L, D] more than once."""
    source, target = subject.source[:1], subject.target[:1]
    ids = source if function == "embedding" else target
    with PositionSums(table) as trace:  # with gradients, since torch's encoder is fused without
        subject.call("logits", subject.model, source, target)
    count = trace.count(ids.size(1))
    if count <= 1:
        return passed()
    return differs(
        f"{count} sums with the positions in one run",
        "1, before the first layer",
        says="Positions are added again after the first layer's input.",
        fix="Add the positions to the embeddings alone.",
        explains=("final-norm",),
    )


def has_trained_positions(subject: Subject, function: str) -> bool:
    """Return whether the difference of one token at two positions depends on a parameter."""
    ids = subject.source[:1, :1].expand(1, 4)
    embeddings = embed(subject, function, ids)
    parameters = [p for p in subject.model.parameters() if p.requires_grad]
    if not embeddings.requires_grad:
        return False
    weights = torch.arange(1.0, subject.config.d_model + 1)
    moved = ((embeddings[0, 3] - embeddings[0, 0]) * weights).sum()
    gradients = torch.autograd.grad(moved, parameters, allow_unused=True)
    return any(g is not None and g.abs().max() > 1e-6 for g in gradients)


def learned_tables(subject: Subject) -> list[str]:
    """Return the names of learned tables of positions, or of functions that have some."""
    tables = [name for name, _ in position_tables(subject)]
    if tables:
        return tables
    functions = []
    for function in SIDES.values():
        try:
            if subject.defines(function) and has_trained_positions(subject, function):
                functions.append(f"{function}()")
        except AdapterError:  # the checks that need the function report it
            continue
    return functions


@check_of(
    "learned-positions",
    "3.5",
    passes="The positional encodings are not trained.",
    fails="The positional encodings are learned.",
    explains=("sinusoids", "parameter-count"),
)
def fixed_positions(subject: Subject) -> Finding:
    """Look for trained tables of positions, which only row (E) of Table 3 has."""
    trained = learned_tables(subject)
    expected = subject.config.learned_positions
    if trained and expected:
        return passed("The positional encodings are learned, as CONFIG.learned_positions says.")
    if trained:
        constants: list[str] = []
        for function in SIDES.values():
            constants += names_of_constants(subject, function) if subject.has(function) else []
        other = f"; the same vector for every token ({', '.join(dict.fromkeys(constants))})"
        found = f"a trained table ({', '.join(trained)}){other if constants else ''}"
        return variant(found, "sinusoids")
    if expected:
        return variant(
            "no table that is trained",
            "a trained table, since CONFIG.learned_positions is True",
            says="The positional encodings are not learned.",
        )
    return passed()
