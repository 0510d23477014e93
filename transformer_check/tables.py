"""Learned tables of positions, found from ``logits`` by the rows that get a gradient (3.5).

Shape letters: B batch, S source, T target, V vocabulary, D d_model.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .subject import Subject

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
