"""Repairs of fairseq's own models in decoding, and of its report of a diverged training."""

import functools
from typing import Any

import torch
from fairseq import utils
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.nan_detector import NanDetector
from torch import Tensor

from .replacing import REPAIRS, replaces


@replaces(
    TransformerEncoderLayerBase,
    "__init__",
    REPAIRS,
    "0.12.2 with torch 2",
    'fairseq\'s own `transformer` can decode (without: "Mask Type should be defined")',
    needed="can_use_fastpath" in TransformerEncoderLayerBase.__init__.__code__.co_names,
)
def without_fast_path(layer: Any, *args: Any, **kwargs: Any) -> None:
    """Make fairseq's layer without its fused form, which is called as in torch 1.13."""
    without_fast_path.original(layer, *args, **kwargs)
    layer.can_use_fastpath = False


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

    def watch(module: Any, tensor: Tensor) -> Tensor:
        if tensor.requires_grad:
            look = functools.partial(detector.bhook_fn, module, None)
            detector.bhooks.append(tensor.register_hook(look))
        return tensor

    def after_forward(module: Any, inputs: Any, output: Any) -> None:
        if detector.forward:
            detector.fhook_fn(module, inputs, output)
        if detector.backward and torch.is_grad_enabled():
            utils.apply_to_sample(functools.partial(watch, module), output)

    detector.fhooks.append(module.register_forward_hook(after_forward))
