"""Divergence: fairseq says when and where it began, and ends with the intended error."""

import functools
from typing import Any, Iterator

import torch
from fairseq.nan_detector import NanDetector
from fairseq.trainer import Trainer
from torch import Tensor


def apply() -> None:
    """Install this file's workarounds."""
    _watch_gradients_of_tensors()
    _say_at_which_update()


def _say_at_which_update() -> None:
    """A FloatingPointError names its update. All versions leave that to the log."""
    original = Trainer.train_step

    @functools.wraps(original)
    def train_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(trainer, *args, **kwargs)
        except FloatingPointError as error:
            update = trainer.get_num_updates() + 1
            raise FloatingPointError(f"update {update:,}: {error}") from error

    Trainer.train_step = train_step


def _watch_gradients_of_tensors() -> None:
    """A training whose gradients are not finite ends in fairseq's FloatingPointError.

    All versions run the batch once more with a backward hook on every module. torch looks for a
    tensor in the module's output, but finds none in the dictionary of lists that encoders return
    (fairseq's own too), and raises an uninformative StopIteration. A hook on each tensor of the
    output sees the same gradients.
    """

    def add_hooks(detector: Any, module: Any) -> None:
        def after_forward(module: Any, inputs: Any, output: Any) -> None:
            if detector.forward:
                detector.fhook_fn(module, inputs, output)
            if detector.backward and torch.is_grad_enabled():
                for tensor in _tensors(output):
                    if tensor.requires_grad:
                        hook = _watch(detector, module, tensor)
                        detector.bhooks.append(hook)

        detector.fhooks.append(module.register_forward_hook(after_forward))

    NanDetector.add_hooks = add_hooks


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
