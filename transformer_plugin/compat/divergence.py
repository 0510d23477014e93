"""Divergence: fairseq says where it began, and ends with the intended error."""

from typing import Any, Iterator

import torch
from fairseq.nan_detector import NanDetector
from torch import Tensor

from .replacing import REPAIRS, replaces


@replaces(
    NanDetector,
    "add_hooks",
    REPAIRS,
    "all",
    "training that diverges ends in fairseq's FloatingPointError, not in StopIteration",
)
def add_hooks(detector: Any, module: Any) -> None:
    """Watch the gradients of tensors.

    fairseq runs the batch once more with a backward hook on every module. torch looks for a
    tensor in the module's output, but finds none in the dictionary of lists that encoders return
    (fairseq's own too), and raises an uninformative StopIteration. A hook on each tensor of the
    output sees the same gradients.
    """

    def after_forward(module: Any, inputs: Any, output: Any) -> None:
        if detector.forward:
            detector.fhook_fn(module, inputs, output)
        if detector.backward and torch.is_grad_enabled():
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    hook = _watch(detector, module, tensor)
                    detector.bhooks.append(hook)

    detector.fhooks.append(module.register_forward_hook(after_forward))


def _watch(detector: Any, module: Any, tensor: Tensor) -> Any:
    """Let ``detector`` look at the gradient of one of the module's outputs."""
    return tensor.register_hook(lambda gradient: detector.bhook_fn(module, None, gradient))


def _tensors(output: Any) -> Iterator[Tensor]:
    """All tensors of a module's output, at any depth of dictionaries, lists and tuples."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        yield from _tensors(list(output.values()))
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from _tensors(part)
