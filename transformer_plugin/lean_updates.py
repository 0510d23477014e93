"""What fairseq's trainer asks of a model twice in each update, without torch's walks over it.

A base model has some 240 modules. To set each one's mode, or to ask each whether it wants to know
the number of updates, takes longer than to look whether there is anything to do.
"""

from collections.abc import Iterator
from typing import Any

from fairseq.models import BaseFairseqModel, FairseqEncoder
from torch import nn


def every_part(model: nn.Module) -> Iterator[nn.Module]:
    """As ``model.modules()``, in another order; a module in two places comes twice."""
    pending: list[nn.Module | None] = [model]
    while pending:
        module = pending.pop()
        if module is not None:
            yield module
            pending.extend(module._modules.values())


class LeanUpdates(BaseFairseqModel):
    """For a model: looks before it walks. Results are fairseq's."""

    def train(self, mode: bool = True) -> "LeanUpdates":
        """As torch's; nothing is left to do if every part is in training already.

        ``eval()`` always sets all.
        """
        if mode and all(part.training for part in every_part(self)):
            return self
        result: LeanUpdates = super().train(mode)
        return result

    def set_num_updates(self, num_updates: int) -> None:
        """Tell every part that has such a method. fairseq's encoder has one only to pass it on."""
        for part in every_part(self):
            if part is not self and listens(part):
                tell: Any = part
                tell.set_num_updates(num_updates)


def listens(part: nn.Module) -> bool:
    """Return whether a part has a ``set_num_updates`` of its own.

    ``hasattr`` would search parameters, buffers and modules for it, and raise and catch an error.
    """
    method = getattr(part.__class__, "set_num_updates", None)
    if method is FairseqEncoder.set_num_updates:
        return False
    return method is not None or "set_num_updates" in vars(part)
