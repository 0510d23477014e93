"""Functions that the file does not define, derived from ``build`` and ``logits``.

The first layer of a stack is the smallest module that contains its first attention and its first
feed-forward network; it is called as the model calls it, with another input. The input of the first
layer is the input of the first norm where all sub-layers return zero.

Shape letters: B batch, S source, T target, L either, D d_model.
"""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from .arrows import has_scores_of_model, order_of_target
from .embeddings import factor_and_rows, positions
from .norms import first_norm_input
from .subject import SIGNATURES, AdapterError, Subject
from .whole_model import source_order
from .wiring import (
    CROSS_ATTENTION,
    DECODER_FFN,
    ENCODER_ATTENTION,
    ENCODER_FFN,
    SELF_ATTENTION,
    Wiring,
    wiring_of,
)

FIRST_PARTS = {
    "encoder_layer": (ENCODER_ATTENTION, ENCODER_FFN),
    "decoder_layer": (SELF_ATTENTION, CROSS_ATTENTION, DECODER_FFN),
}
PAIRS = (
    ("embedding", "encoder_layer", ENCODER_ATTENTION),
    ("target_embedding", "decoder_layer", SELF_ATTENTION),
)


def derive_functions(subject: Subject) -> None:
    """Add the embeddings and first layers to a subject that its file does not define.

    A layer is kept if, with the embedding of its side, it has the attention scores of the model; an
    embedding, if it is a multiple of a matrix's rows plus positions.
    """
    wiring = wiring_of(subject)
    if wiring.problem:
        return
    for embedding, layer, kind in PAIRS:
        derived = [name for name in (embedding, layer) if not subject.defines(name)]
        name = name_of_layer(wiring, layer)
        if embedding in derived:
            subject.derived[embedding] = embedding_of(subject, embedding, name)
        if layer in derived and name:
            subject.derived[layer] = layer_of_module(subject, layer, name)
        is_like_model = subject.has(layer) and fits_model(wiring, embedding, layer, kind)
        if not is_like_model:
            subject.derived.pop(layer, None)
        has_own_layer = subject.defines(layer) and not is_like_model
        if embedding in derived and (has_own_layer or not is_embedding(wiring, embedding)):
            subject.derived.pop(embedding)


def fits_model(wiring: Wiring, embedding: str, layer: str, kind: str) -> bool:
    """Return whether two functions have the model's scores; False if one of them fails."""
    try:
        return has_scores_of_model(wiring, embedding, layer, kind)
    except (AdapterError, RuntimeError):
        return False


def is_embedding(wiring: Wiring, function: str) -> bool:
    """Return whether a function returns a multiple of a matrix's rows plus positions.

    False if it returns no positions although the order of the tokens changes the logits: then the
    derivation has lost them.
    """
    subject = wiring.subject
    try:
        if factor_and_rows(subject, function)[2] >= 1e-2:
            return False
        if positions(subject, function).abs().max() > 1e-3:
            return True
        if function == "embedding":
            return source_order(subject).failed
        return order_of_target(wiring).failed
    except (AdapterError, RuntimeError):
        return False


def embedding_of(
    subject: Subject, function: str, name: str
) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return a function from the model and ids [B, L] to the first layer's input [B, L, D].

    Args:
        subject: the implementation
        function: ``embedding`` or ``target_embedding``
        name: of the first layer's module; without one, the first norm's input is returned
    """

    def embedding(model: nn.Module, ids: Tensor) -> Tensor:
        source = ids
        target = dummy(subject, len(ids), ids.size(1) + 2)
        if function == "target_embedding":
            source, target = target, source
        if not name:
            x = first_norm_input(subject, model, source, target, ids.size(1))
        else:
            with record_call(model.get_submodule(name)) as call:
                subject.logits(source, target, model)
            x = input_of_length(call, (*ids.shape, subject.config.d_model))
        if x is None:
            raise AdapterError(
                f"{function}() cannot be derived from logits(): define {SIGNATURES[function]}",
                function,
            )
        return x

    return embedding


def input_of_length(call: dict[str, Any], shape: tuple[int, int, int]) -> Tensor | None:
    """Return the first argument [B, L, D] or [L, B, D] of a recorded call, with the batch first."""
    batch, length, width = shape
    for value in (*call.get("arguments", ()), *call.get("named", {}).values()):
        if isinstance(value, Tensor) and value.shape == shape:
            return value
        if isinstance(value, Tensor) and value.shape == (length, batch, width):
            return value.transpose(0, 1)
    return None


def dummy(subject: Subject, batch: int, length: int) -> Tensor:
    """Return random ids [batch, length] for the other side of the model."""
    return subject.words(batch, min(length, subject.config.max_length), seed=16)


def name_of_layer(wiring: Wiring, function: str) -> str:
    """Return the name of the smallest module that contains the first layer and no other layer."""
    chains = []
    for kind in FIRST_PARTS[function]:
        part = wiring.part(kind, 1)
        if part is None:
            return ""
        chains.append(ancestors(wiring, part.events[0]))
    later_parts = [p for p in wiring.parts if p.kind in FIRST_PARTS[function] and p.layer > 1]
    taken = {name for part in later_parts for name in ancestors(wiring, part.events[0])}
    common = [name for name in chains[0] if all(name in chain for chain in chains)]
    own = [name for name in common if name not in taken]
    return max(own, key=len, default="")


def ancestors(wiring: Wiring, number: int) -> list[str]:
    """Return the names of the modules around an event, from the outermost to the innermost."""
    names = wiring.subject.names_of([wiring.events[number].module])
    parts = names[0].split(".") if names else []
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def layer_of_module(subject: Subject, function: str, name: str) -> Callable[..., Tensor]:
    """Return a function of the model, x [B, L, D] and, for a decoder, the memory [B, S, D]."""

    def layer(model: nn.Module, x: Tensor, memory: Tensor | None = None) -> Tensor:
        module = model.get_submodule(name)
        batch, length = x.shape[:2]
        source = dummy(subject, batch, length if memory is None else memory.size(1))
        target = dummy(subject, batch, length + 2 if memory is None else length)
        replacing = Replacing([x] if memory is None else [x, memory])
        with record_call(module) as call, _disable_current_modes(), torch.enable_grad():
            subject.logits(source, target, model)
        arguments = replacing(call.get("arguments", ()))
        named = replacing(call.get("named", {}))
        if len(replacing.used) < len(replacing.inputs):
            raise AdapterError(
                f"{function}() cannot be derived from logits(): define {SIGNATURES[function]}",
                function,
            )
        result = module(*arguments, **named)
        result = result[0] if isinstance(result, tuple) else result
        is_batch_first = result.size(0) == batch and result.size(1) == length
        return result if is_batch_first else result.transpose(0, 1)

    return layer


@contextmanager
def record_call(module: nn.Module) -> Any:
    """Record the arguments of a module's first call in the block."""
    call: dict[str, Any] = {}

    def keep(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not call:
            call.update(arguments=arguments, named=named)

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield call
    finally:
        handle.remove()


class Replacing:
    """Puts inputs [B, L, D] in the place of recorded arguments [B, L, D] or [L, B, D]."""

    def __init__(self, inputs: list[Tensor]) -> None:
        self.inputs = {x.size(1): x for x in inputs}
        self.used: set[int] = set()

    def __call__(self, value: Any) -> Any:
        """Return an argument with every recorded tensor replaced by the input of its length.

        Tuples, lists and dicts are searched, too.
        """
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(each) for key, each in value.items()}
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        for length, x in self.inputs.items():
            if value.shape in (x.shape, x.transpose(0, 1).shape):
                self.used.add(length)
                return x if value.shape == x.shape else x.transpose(0, 1)
        return value
