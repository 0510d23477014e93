"""Prepares a trained model for decoding, once."""

import re
from typing import Any

from torch import nn

from .config import ConfigError
from .fast.dropout import Dropout
from .fast.linear import Linear
from .precision import has_bf16_units


def prepare_weights(model: nn.Module, in_bf16: bool, pack: bool) -> None:
    """Put the weight matrices into a form that is quick to multiply by, for good.

    Args:
        model: of this plugin, on the device on which it will decode
        in_bf16: convert them to bfloat16, if the device has units for it
        pack: on a CPU, also keep them in oneDNN's layout (not for ``torch.compile``, which sees
            only torch's own products)
    """
    device = next(model.parameters()).device
    in_bf16 = in_bf16 and has_bf16_units(device.type)
    for module in model.modules():
        if isinstance(module, Linear):
            if in_bf16:
                module.to_bf16()
            if pack:
                module.pack()


def retain_dropout(model: nn.Module, generation: Any) -> None:
    """``--retain-dropout``: dropout stays on in decoding, so that each seed decodes differently.

    ``--retain-dropout-modules`` names the classes in which it stays on, such as ``EncoderLayer`` or
    ``FeedForward``; without it, all.

    Raises:
        ConfigError: no module of that name, or none at all, has dropout; or none is retained.
    """
    given = getattr(generation, "retain_dropout_modules", None)
    names = re.findall(r"\w+", given) if isinstance(given, str) else given
    if not getattr(generation, "retain_dropout", False):
        if names:
            raise ConfigError("--retain-dropout-modules has no effect without --retain-dropout")
        return
    known = set()
    for path, module in model.named_modules():
        if isinstance(module, Dropout) and module.p:
            parents = [path.rsplit(".", n)[0] for n in range(1, path.count(".") + 1)]
            owners = {type(model.get_submodule(parent)).__name__ for parent in parents}
            known |= owners - {"ModuleList"}
            module.in_inference = not names or not owners.isdisjoint(names)
    if not known:
        raise ConfigError("--retain-dropout: this model has no dropout (every P_drop is 0)")
    wrong = [name for name in names or [] if name not in known]
    if wrong:
        raise ConfigError(
            f"--retain-dropout-modules: no module named {', '.join(wrong)} has dropout; "
            f"this model has it in {', '.join(sorted(known))}"
        )
