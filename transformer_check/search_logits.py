"""The logits of each step of a search: recorded, recognised, or replaced (6.1).

Shape letters: N hypotheses, K known hypotheses, S source, V vocabulary.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .scores import slope_of
from .searches import Search
from .subject import Subject
from .trace import SOFTMAX
from .wiring import HIDDEN

SAME_LOGITS = 1e-3
"""greatest difference between equal logits, in standard deviations"""


class LogitsOfSearch(TorchDispatchMode):
    """Keeps the logits of each step of a search: what it takes a softmax of over V types [N, V].

    Args:
        first: the logits of the first token [V], by which the softmaxes of attention are told
    """

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.first = first
        self.vocabulary = len(first)
        self.inputs: list[Tensor] = []
        """the input [N, V] of each softmax over V types"""
        self.last_rows: list[Tensor] = []
        """the last of the first dimension of each input of three, which may be the position"""
        self.translations: list[list[int]] = []
        """what the search returns"""
        self.dimensions: set[int] = set()
        """the dimensions of the softmaxes, of inputs [N, V]: -1, or those of another one"""
        self.dims = 0
        """how many dimensions the input of a softmax over V types has; 0 before the first one"""
        self.longest = 0
        """the size of the largest softmax before it"""
        self.has_log = False
        """whether a logarithm is taken of what may be probabilities"""

    @cached_property
    def begin(self) -> tuple[int, float]:
        """Number of the input that has the first token's logits, and its factor; 0 if none has."""
        for number, rows in enumerate(self.inputs):
            factor = slope_of(rows[0], self.first)
            if factor is not None and factor > 0:
                return number, factor
        return 0, 0.0

    @property
    def temperature(self) -> float:
        """What logits are divided by; 1 if it is not known."""
        factor = self.begin[1]
        return round(1 / factor, 2) if factor else 1.0

    @property
    def steps(self) -> list[Tensor]:
        """The logits [N, V] of each step, without a temperature; none if the first is not there."""
        number, factor = self.begin
        return [rows / factor for rows in self.inputs[number:]] if factor else []

    @property
    def first_steps(self) -> list[Tensor]:
        """The logits [N, V] of the first two steps, those of a wrong start token included."""
        return (self.steps or self.inputs)[:2]

    @property
    def rows(self) -> Tensor:
        """The logits of all hypotheses [N, V], and perhaps of others; none as for ``steps``."""
        number, factor = self.begin
        if not factor:
            return self.first.new_zeros(0, self.vocabulary)
        return torch.cat(self.inputs[number:] + self.last_rows[number:]) / factor

    @property
    def numbers(self) -> str:
        """What the search adds up, as in :class:`Search`; empty if it is not known."""
        if not self.inputs:
            return "logits"
        if not self.begin[1]:
            return ""
        return "log-probabilities" if self.has_log else "probabilities"

    def agrees(self, search: Search) -> bool:
        """Return whether a search adds up the same numbers, as far as they are known.

        Greedy decoding needs no sums.
        """
        numbers = search.numbers.removeprefix("best ")
        has_numbers = self.numbers in ("", numbers) or search.beam == 1
        return has_numbers and search.temperature == self.temperature

    @property
    def length(self) -> int:
        """The number of steps, for a beam of 4 if its hypotheses are computed one by one."""
        widest = max((len(step) for step in self.steps), default=1)
        return len(self.steps) if widest > 1 else (len(self.steps) + 3) // 4

    def is_of_tokens(self, scores: Tensor) -> bool:
        """Return whether a softmax is over V types, and not over V keys of attention.

        Attention has V keys only after a step with V - 1 keys.
        """
        size = scores.size(-1)
        if self.dims == 0:
            is_keys = self.longest >= self.vocabulary - 1
            self.longest = max(self.longest, size)
            if size == self.vocabulary and not is_keys:
                self.dims = scores.dim()
        return size == self.vocabulary and scores.dim() == self.dims

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in (*SOFTMAX, "_log_softmax") and self.is_of_tokens(args[0]):
            length = args[0].size(-2) if args[0].dim() > 2 else 1
            rows = args[0].detach().nan_to_num().reshape(-1, length, self.vocabulary)
            self.inputs.append(rows[:, -1].clone())
            self.last_rows.append(rows[-1].clone())
            dims = args[0].dim()
            self.dimensions.add(args[1] % dims - dims)
            self.has_log |= name == "_log_softmax"
        elif name in ("log", "log_") and self.inputs and args[0].size(-1) == self.vocabulary:
            self.has_log = True
        return func(*args, **(kwargs or {}))


def distances(rows: Tensor, known: Tensor) -> Tensor:
    """Return the greatest difference [M, N] between rows of logits [M, V] and others [N, V].

    A number that is added to all logits of a row changes nothing, and forbidden tokens are left
    out. The unit is the standard deviation of the other logits.
    """
    visible = (rows > HIDDEN).all(0)  # [V]; a search may forbid tokens in all rows
    rows = rows[:, visible]
    known = known[:, visible]
    rows = rows - rows.mean(-1, keepdim=True)
    known = known - known.mean(-1, keepdim=True)
    return torch.cdist(rows, known, p=float("inf")) / known.std(unbiased=False).clamp(min=1e-12)


def is_among(rows: Tensor, known: Tensor) -> Tensor:
    """Return for each row of logits [M, V] whether it is among others [N, V], except for rounding.

    Returns:
        [M], true or false
    """
    return distances(rows, known).amin(1) < SAME_LOGITS


class ChosenLogits(TorchDispatchMode):
    """Replaces the logits of each step of a search.

    Args:
        known: the logits [K, V] of the model after some hypotheses
        chosen: what replaces them [K, V]
        others: what replaces the logits after all other hypotheses [V]
        factor: by which the search multiplies all logits
        dims: how many dimensions the input of its softmax over V types has
    """

    def __init__(
        self, known: Tensor, chosen: Tensor, others: Tensor, factor: float, dims: int
    ) -> None:
        super().__init__()
        self.chosen = torch.cat([chosen, others[None]])
        self.known = [known, self.chosen]  # a second softmax gets what was chosen
        self.others = others
        self.factor = factor
        self.dims = dims
        self.seen: set[int] = set()
        """numbers of the known hypotheses that the search went on with"""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in (*SOFTMAX, "_log_softmax"):
            logits = args[0]
            if logits.dim() == self.dims and logits.size(-1) == len(self.others):
                args = (self.replace(logits), *args[1:])
        return func(*args, **(kwargs or {}))

    def replace(self, logits: Tensor) -> Tensor:
        """Return the chosen logits in place of logits [..., V]; forbidden tokens stay forbidden."""
        rows = logits.detach().reshape(-1, logits.size(-1))
        chosen = self.others.expand_as(rows)
        for known in self.known:
            away = distances(rows / self.factor, known)  # [N, K]
            nearest, numbers = away.min(1)
            fits = nearest < SAME_LOGITS
            chosen = torch.where(fits[:, None], self.chosen[numbers], chosen)
            if known is self.known[0]:
                self.seen.update(numbers[fits].tolist())
        chosen = (chosen * self.factor).to(rows.dtype)
        return torch.where(rows > HIDDEN, chosen, rows).view(logits.shape)


def wrong_start(subject: Subject, model: nn.Module, source: Tensor, first: Tensor) -> str:
    """Return the predicate of a sentence about another start token than the right one, or nothing.

    Args:
        subject: the implementation
        model: a model of it
        source: [1, S]
        first: logits of the first step of a search [N, V]
    """
    c = subject.config
    starts = [n for n in range(c.vocabulary) if n not in (c.start, c.pad)]  # padding is masked
    target = torch.tensor(starts)[:, None]
    with torch.no_grad():
        logits = subject.logits(source.expand(len(starts), -1), target, model)[:, -1]
    matches = is_among(logits, first[:1])
    if int(matches.sum()) != 1:
        return ""
    token = starts[int(matches.nonzero())]
    words = source[0].tolist()
    names = {words[-1]: "the source's last token", words[-2]: "the source's last word"}
    return f"starts with {names.get(token, f'token {token}')} instead of start"
