"""Skips two of torch's walks over a model that fairseq's trainer makes in each update.

A base model has some 240 modules. Setting the mode of each, or asking each whether it needs the
number of updates, takes longer than to check whether there is anything to do.
"""

from collections.abc import Iterator
from typing import Any

from fairseq.models import BaseFairseqModel, FairseqEncoder
from torch import nn


def every_part(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of ``model.modules()`` in another order; a shared module comes twice."""
    pending: list[nn.Module | None] = [model]
    while pending:
        module = pending.pop()
        if module is not None:
            yield module
            pending.extend(module._modules.values())


class LeanUpdates(BaseFairseqModel):
    """Base of models that checks before it walks over all modules. Results are fairseq's."""

    def train(self, mode: bool = True) -> "LeanUpdates":
        """Set the mode as torch does, unless every part is in training mode already.

        ``eval()`` always sets the mode of all parts.
        """
        if mode and all(part.training for part in every_part(self)):
            return self
        result: LeanUpdates = super().train(mode)
        return result

    def set_num_updates(self, num_updates: int) -> None:
        """Tell the number of updates to every part that has this method.

        fairseq's encoder has the method only to pass the number on.
        """
        for part in every_part(self):
            if part is not self and listens(part):
                tell: Any = part
                tell.set_num_updates(num_updates)


def listens(part: nn.Module) -> bool:
    """Return whether a part has its own ``set_num_updates``.

    ``hasattr`` would search parameters, buffers and modules for it, and raise and catch an error.
    """
    method = getattr(part.__class__, "set_num_updates", None)
    if method is FairseqEncoder.set_num_updates:
        return False
    return method is not None or "set_num_updates" in vars(part)
