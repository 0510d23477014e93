"""The implementation under check: sizes, the functions of its file, and what they may return.

Shape letters: B batch, S source, T target, V vocabulary, D d_model.
"""

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .trace import Layouts, layouts_of, trace_model

SAME = 1e-4
"""Two outputs are the same if they differ by less than this part of their standard deviation."""

SIGNATURES = {
    "build": "build(config)",
    "logits": "logits(model, source, target)",
    "embedding": "embedding(model, ids)",
    "target_embedding": "target_embedding(model, ids)",
    "encoder_layer": "encoder_layer(model, x)",
    "decoder_layer": "decoder_layer(model, x, memory)",
    "attention": "attention(q, k, v, mask)",
    "loss": "loss(logits, target)",
    "training_loss": "training_loss(model, source, target)",
    "learning_rate": "learning_rate(step)",
    "optimizer": "optimizer(model)",
    "translate": "translate(model, source)",
}
"""The functions of a file; it has to define the first two. The template explains each."""


class AdapterError(ValueError):
    """A problem of the file, in a sentence that names the function and what was expected.

    Args:
        found: what the function did
        function: name of the function, if it is an optional one
        expected: what it should have returned, if ``found`` does not say so
        fix: a sentence that says what to change, if that is certain
    """

    for_users = True

    def __init__(self, found: str, function: str = "", expected: str = "", fix: str = "") -> None:
        sentence = f"{found}: expected {expected}" if expected else found
        super().__init__(f"{sentence}. {fix}" if fix else sentence)
        self.found = found
        self.function = function
        self.expected = expected
        self.fix = fix


class NotFiniteError(AdapterError):
    """A function returned NaN or infinity."""


@dataclass(frozen=True)
class Config:
    """The sizes of the model that ``build`` makes; all differ, so that a shape identifies a size.

    A file whose sizes are fixed says so with ``CONFIG = Config(layers=6, …)``.
    """

    layers: int = 2
    """N, of the encoder and of the decoder"""
    d_model: int = 32
    d_ff: int = 80
    heads: int = 4
    d_k: int | None = None
    """d_model / heads, if not given"""
    d_v: int | None = None
    dropout: float = 0.1
    label_smoothing: float = 0.1
    learned_positions: bool = False
    """row (E) of Table 3"""
    vocabulary: int = 50
    """types, the same on both sides"""
    max_length: int = 128
    """no sentence is longer"""
    pad: int = 1
    start: int = 0
    """with which the decoder begins"""
    end: int = 2

    def __post_init__(self) -> None:
        """Raise AdapterError for a size with which no model can be made and checked."""
        least = {"layers": 1, "d_model": 2, "d_ff": 1, "heads": 1, "vocabulary": 18}
        least |= {"max_length": 48, "pad": 0, "start": 0, "end": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise AdapterError(f"CONFIG: {name} is {value!r}: expected {smallest} or more")
        for name in ("pad", "start", "end"):
            if getattr(self, name) >= self.vocabulary:
                raise AdapterError(
                    f"CONFIG: {name} is {getattr(self, name)}: expected an id below "
                    f"{self.vocabulary}, the size of the vocabulary"
                )
        if self.d_ff == self.d_model:
            raise AdapterError(
                "CONFIG: d_ff and d_model are equal: expected two different sizes, because "
                "matrices are recognised by their shapes"
            )
        if self.pad in (self.start, self.end):
            raise AdapterError("CONFIG: pad is also start or end: give padding an id of its own")

    def widths(self) -> tuple[int, int]:
        """Return the sizes d_k and d_v."""
        return self.d_k or self.d_model // self.heads, self.d_v or self.d_model // self.heads


class Subject:
    """A model built by a file's ``build``, without dropout, and the file's functions.

    Args:
        adapter: a module or another object whose attributes are the functions
        config: what to build, instead of the file's ``CONFIG``
        name: what to call it in messages

    Raises:
        AdapterError: a function is missing, fails, or does not return what it should.
    """

    def __init__(self, adapter: Any, config: Config | None = None, name: str = "the file") -> None:
        self.adapter = adapter
        self.name = name
        self.config: Config = config if config else getattr(adapter, "CONFIG", Config())
        if not isinstance(self.config, Config):
            raise AdapterError(
                f"CONFIG is {describe(self.config)}: expected transformer_check.Config(…)"
            )
        for needed in ("build", "logits"):
            if not callable(getattr(adapter, needed, None)):
                raise AdapterError(
                    f"{name} does not define {needed}(): 'vaswani check --template' has an example"
                )
        self.derived: dict[str, Callable[..., Any]] = {}
        self.model = self.build(dropout=0.0)
        self.source = self.words(2, 7)  # [B, S]
        self.target = self.words(2, 5)  # [B, T]
        self.target[:, 0] = self.config.start
        self.output = torch.empty(0)

    def run(self) -> None:
        """Compute the logits that other checks compare with.

        Raises:
            AdapterError: logits fails, or is not a function of its input.
        """
        self.output = self.logits(self.source, self.target)
        if self.model.training:
            raise AdapterError("logits() left the model in training mode: remove model.train()")
        if difference(self.output, self.logits(self.source, self.target)) > SAME:
            raise AdapterError(f"logits() returned two results for one input: {self.cause()}")

    def cause(self) -> str:
        """Return why logits() returns two results for one input."""
        results = []
        for _ in range(2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(1)
                results.append(self.logits(self.source, self.target))
        if difference(*results) > SAME:
            return "it keeps a state from call to call, such as a position, a cache or a counter"
        return "remove what is random in evaluation mode with config.dropout = 0"

    def defines(self, function: str) -> bool:
        """Return whether the file defines a function."""
        return callable(getattr(self.adapter, function, None))

    def has(self, function: str) -> bool:
        """Return whether the file defines a function, or it could be derived from logits."""
        return self.defines(function) or function in self.derived

    def place(self, function: str) -> str:
        """Return a function's name with the file and line of its definition."""
        code = getattr(inspect.unwrap(getattr(self.adapter, function)), "__code__", None)
        if code is None:
            return f"{function}()"
        return f"{function}() at {Path(code.co_filename).name}:{code.co_firstlineno}"

    def accepted(self) -> list[str]:
        """Return the ids of the file's ``ACCEPT``: differences that are intended.

        Raises:
            AdapterError: it is no list of strings.
        """
        accept = getattr(self.adapter, "ACCEPT", [])
        if not isinstance(accept, (list, tuple, set)) or not all(
            isinstance(a, str) for a in accept
        ):
            raise AdapterError(f'ACCEPT is {accept!r}: expected ids, such as ["pre-norm"]')
        return list(accept)

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of the file, or the derived one, and return its result.

        Raises:
            AdapterError: the function raises, or changes a mode of torch.
        """
        has_gradients = torch.is_grad_enabled()
        try:
            call = getattr(self.adapter, function, None) or self.derived[function]
            result = call(*arguments)
        except AdapterError:  # of a derived function
            raise
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            own = [frame for frame in frames if "/torch/" not in frame.filename]
            place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
            shapes = ", ".join(map(describe, arguments))
            raise AdapterError(
                f"{function}({shapes}) raised {type(error).__name__}{place}: {error}", function
            ) from error
        restore_modes(f"{function}()", has_gradients, function)
        return result

    def tensor(self, function: str, shape: tuple[int, ...], *arguments: Any) -> Tensor:
        """Return a function's tensor, or its first one; AdapterError for another type or shape."""
        result = self.call(function, *arguments)
        if isinstance(result, tuple):
            result = result[0]
        shapes = ", ".join(map(describe, arguments))
        expected = f"a tensor of floats {list(shape)} for ({shapes})"
        is_floats = isinstance(result, Tensor) and result.is_floating_point()
        if not is_floats or result.shape != shape:
            found = f"{function}() returned {describe(result)}"
            raise AdapterError(found, function, expected, fix_for_shape(result, shape))
        if result.is_inference():
            raise AdapterError(
                f"{function}() ran in torch.inference_mode(), so that its tensors have no "
                "gradient: remove inference_mode()",
                function,
            )
        if not result.isfinite().all():
            raise NotFiniteError(
                f"{function}() returned NaN or infinity",
                function,
                expected,
                "Possible causes: a row of a mask hides every key, or a divisor is zero.",
            )
        floats: Tensor = result.float()
        return floats

    def build(self, **changes: Any) -> nn.Module:
        """Return a new model in evaluation mode, always initialised with the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = self.call("build", replace(self.config, **changes))
        if not isinstance(model, nn.Module):
            raise AdapterError(f"build() returned {describe(model)}: expected a torch.nn.Module")
        for name, parameter in model.named_parameters():
            if parameter.is_inference():
                raise AdapterError("build() ran in torch.inference_mode(): remove inference_mode()")
            if parameter.dtype != torch.float32:
                kind = str(parameter.dtype)[6:]
                raise AdapterError(f"build() made {name} with type {kind}: expected float32")
        return model.eval()

    def logits(self, source: Tensor, target: Tensor, model: nn.Module | None = None) -> Tensor:
        """Return logits [B, T, V] of ids [B, S] and of ids [B, T] that begin with ``start``."""
        shape = (*target.shape, self.config.vocabulary)
        logits = self.tensor("logits", shape, model or self.model, source, target)
        if logits.min() >= 0 and (logits.sum(-1) - 1).abs().max() < 1e-3:
            raise AdapterError("logits() returned probabilities: return the softmax's input")
        return logits

    def names_of(self, modules: Iterable[nn.Module | None]) -> tuple[str, ...]:
        """Return the names of modules of the model, in its order, without repetition."""
        chosen = {id(module) for module in modules}
        return tuple(n for n, module in self.model.named_modules() if n and id(module) in chosen)

    @cached_property
    def layouts(self) -> Layouts:
        """The dimensions of queries and keys in attention weights."""
        other = (self.config.heads, *self.config.widths())  # sizes that a length must not have
        of_source, of_target = [length for length in (11, 9, 13, 14, 17) if length not in other][:2]
        target = self.words(1, of_target)
        target[:, 0] = self.config.start
        with trace_model() as trace:
            self.call("logits", self.model, self.words(1, of_source), target)  # perhaps NaN
        return layouts_of(trace.softmaxes, of_source, of_target)

    def is_matrix(self, parameter: Tensor) -> bool:
        """Return whether a parameter is a matrix, not a vector such as a bias [heads, d_k]."""
        c = self.config
        if sum(size > 1 for size in parameter.shape) < 2:
            return False
        return c.d_model in parameter.shape or parameter.numel() > c.heads * max(c.widths())

    def words(self, batch: int, length: int, seed: int = 0) -> Tensor:
        """Return random ids [batch, length] without special tokens.

        An id is repeated only in rows that are longer than the vocabulary.
        """
        c = self.config
        special = (c.pad, c.start, c.end)
        ids = torch.tensor([n for n in range(c.vocabulary) if n not in special])
        numbers = torch.Generator().manual_seed(seed)
        order = torch.rand(batch, max(length, len(ids)), generator=numbers).argsort(dim=1)
        return ids[order[:, :length] % len(ids)]

    def padded(self, ids: Tensor, pads: int) -> Tensor:
        """Return ids [B, L] with padding on the right, [B, L + pads]."""
        return nn.functional.pad(ids, (0, pads), value=self.config.pad)


def fix_for_shape(result: Any, shape: tuple[int, ...]) -> str:
    """Return the fix for a function that returned another shape; empty if it is unknown."""
    if not isinstance(result, Tensor):
        return ""
    if not result.is_floating_point():
        return "Return the scores of all tokens, not the token that scores highest."
    if result.dim() == len(shape) and (result.shape[1], result.shape[0]) == shape[:2]:
        return "The model is sequence first: return result.transpose(0, 1)."
    if result.numel() == torch.Size(shape).numel():
        return f"Return result.view({', '.join(map(str, shape))})."
    if result.shape[:-1] == torch.Size(shape[:-1]):
        return f"The last dimension is {result.size(-1)} instead of {shape[-1]}."
    return ""


def restore_modes(who: str, has_gradients: bool = True, function: str = "") -> None:
    """Restore torch's default type and gradient mode; AdapterError if ``who`` changed one."""
    kind = torch.get_default_dtype()
    if kind != torch.float32:
        torch.set_default_dtype(torch.float32)
        message = f"{who} set torch's default type to {str(kind)[6:]}: remove set_default_dtype()"
        raise AdapterError(message, function)
    if torch.is_grad_enabled() != has_gradients:
        torch.set_grad_enabled(has_gradients)
        now = "off" if has_gradients else "on"
        raise AdapterError(
            f"{who} leaves gradients switched {now}: call torch.set_grad_enabled({has_gradients}) "
            "at its end",
            function,
        )


def describe(value: Any) -> str:
    """Describe an argument or a result for a message: the shape of a tensor, or what it is."""
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype)[6:]}"
        return f"a tensor{kind} {list(value.shape)}"
    if isinstance(value, nn.Module):
        return "model"
    return repr(value) if isinstance(value, (int, float, str)) else type(value).__name__


def difference(a: Tensor, b: Tensor) -> float:
    """Return the greatest difference, in standard deviations of ``a``."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / a.std().clamp(min=1e-12))


def load(path: Path) -> Any:
    """Import a file as a module; it may import other modules of its folder.

    Raises:
        AdapterError: there is no such file, it is not Python, or it raises on import.
    """
    if not path.is_file():
        raise AdapterError(f"{path} does not exist: 'vaswani check --template' prints an example")
    place = path.resolve()  # the file may change the current folder
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", place)
    if spec is None or spec.loader is None:
        raise AdapterError(f"{path} is not a Python file: give one whose name ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(place.parent))
    folder = Path.cwd()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise AdapterError(f"{path} raised {type(error).__name__} on import: {error}") from error
    finally:
        os.chdir(folder)
        if str(place.parent) in sys.path:
            sys.path.remove(str(place.parent))
    restore_modes(str(path))
    return module
