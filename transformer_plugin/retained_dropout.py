"""``--retain-dropout``: dropout in decoding."""

import re
from typing import Any

from torch import nn

from vaswani_transformer.fast.dropout import FastDropout

from .config import ConfigError


class RetainedDropout(nn.Dropout):
    """Dropout that stays on in evaluation mode."""

    def train(self, mode: bool = True) -> "RetainedDropout":
        """Keep training mode on, whatever ``mode`` is."""
        return super().train(True)


class RetainedFastDropout(RetainedDropout, FastDropout):
    """The faster dropout, which stays on in evaluation mode."""


RETAINED = {nn.Dropout: RetainedDropout, FastDropout: RetainedFastDropout}


def retain_dropout(model: nn.Module, generation: Any) -> None:
    """Leave dropout on in decoding (``--retain-dropout``), so that each seed decodes differently.

    ``--retain-dropout-modules`` names the parts of the model in which it stays on, such as
    ``EncoderLayer`` or ``FeedForward``; without it, all.

    Raises:
        ConfigError: no module of that name has dropout.
    """
    modules = getattr(generation, "retain_dropout_modules", None)
    names = re.findall(r"\w+", modules) if isinstance(modules, str) else modules
    if not getattr(generation, "retain_dropout", False):
        return
    owners_of_dropout = set()
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Dropout) and module.p:
            parents = [path.rsplit(".", n)[0] for n in range(1, path.count(".") + 1)]
            owners = {name for p in parents for name in names_of(type(model.get_submodule(p)))}
            owners_of_dropout |= owners
            if not names or not owners.isdisjoint(names):
                module.__class__ = RETAINED[type(module)]
                module.train()
    wrong = [name for name in names or [] if name not in owners_of_dropout]
    if wrong:
        raise ConfigError(
            f"--retain-dropout-modules: no module named {', '.join(wrong)} has dropout, so give "
            f"modules that have it: {', '.join(sorted(owners_of_dropout))}"
        )


def names_of(cls: type) -> list[str]:
    """Return the names of a class: those of the paper's parts among its parents, or its own.

    Fast and compiled classes have the names of the classes that they replace. torch's containers
    have none.
    """
    parts = []
    for parent in cls.__mro__:
        package = parent.__module__
        if package.startswith("vaswani_transformer.") and ".fast." not in package:
            parts.append(parent.__name__)
    if parts or cls.__module__.startswith("torch."):
        return parts
    return [cls.__name__]
