"""Prepares a trained model for decoding, once."""

import re
from typing import Any

from torch import nn

from .config import ConfigError
from .fast.dropout import Dropout
from .fast.linear import Linear
from .precision import has_bf16_units


def convert_to_bf16(model: nn.Module) -> None:
    """Convert the weight matrices to bfloat16, if the model's device has units for it."""
    if has_bf16_units(next(model.parameters()).device.type):
        for module in model.modules():
            if isinstance(module, Linear):
                module.to_bf16()


def pack_weights(model: nn.Module) -> None:
    """On a CPU, also keep the weight matrices in oneDNN's layout: see :meth:`Linear.pack`.

    Only for an engine that owns its model: not all writes to the weights would be noticed. Not for
    ``torch.compile``, which sees only torch's own products.

    Args:
        model: any; prepared for inference, on the device on which it will decode
    """
    if not getattr(getattr(model, "cfg", None), "compile", False):
        for module in model.modules():
            if isinstance(module, Linear):
                module.pack()


def retain_dropout(model: nn.Module, generation: Any) -> None:
    """``--retain-dropout``: dropout stays on in decoding, so that each seed decodes differently.

    ``--retain-dropout-modules`` names the classes in which it stays on, such as ``EncoderLayer`` or
    ``FeedForward``; without it, all.

    Raises:
        ConfigError: no module of that name has dropout.
    """
    given = getattr(generation, "retain_dropout_modules", None)
    names = re.findall(r"\w+", given) if isinstance(given, str) else given
    if not getattr(generation, "retain_dropout", False):
        return
    known = set()
    for path, module in model.named_modules():
        if isinstance(module, Dropout) and module.p:
            parents = [path.rsplit(".", n)[0] for n in range(1, path.count(".") + 1)]
            owners = {type(model.get_submodule(parent)).__name__ for parent in parents}
            known |= owners - {"ModuleList"}
            module.in_inference = not names or not owners.isdisjoint(names)
    wrong = [name for name in names or [] if name not in known]
    if wrong:
        raise ConfigError(
            f"--retain-dropout-modules: no module named {', '.join(wrong)} has dropout; "
            f"this model has it in {', '.join(sorted(known))}"
        )
