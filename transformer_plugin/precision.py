"""``--precision bf16``: matrix products in bfloat16 under autocast, weights and sums in fp32.

fairseq's own ``--bf16`` cannot be used: on the command line it switches to TPU mode.
"""

import contextlib
import logging
from functools import lru_cache
from typing import ContextManager

import torch

PRECISIONS = ["fp32", "bf16"]

logger = logging.getLogger(__name__)


@lru_cache(maxsize=None)
def has_bf16_units(device_type: str) -> bool:
    """Whether the device is known to multiply bfloat16 in hardware; a warning if not, once."""
    if device_type == "cuda":
        # torch itself says yes where it would only emulate them
        on_amd = torch.version.hip is not None
        present = on_amd or torch.cuda.get_device_capability() >= (8, 0)
    elif device_type == "cpu":
        # Emulated bf16 is slower than fp32: the switch would cost time instead of saving it.
        ask = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        if ask is None:
            logger.warning(
                "--precision bf16: torch %s cannot tell whether this cpu has bf16 units; "
                "using fp32",
                torch.__version__,
            )
            return False
        present = bool(ask())
    else:
        present = False
    if not present:
        logger.warning("--precision bf16: this %s has no bf16 units; using fp32", device_type)
    return present


def autocast(precision: str, device: torch.device) -> ContextManager[object]:
    """The context in which encoder and decoder run.

    Softmax, norm statistics and the loss stay in fp32: what a norm reads is the fp32 sum of its
    residual and a product, the softmax asks for fp32, and the criterion widens the logits itself.
    """
    if precision == "bf16" and has_bf16_units(device.type):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def without_autocast(device: torch.device) -> ContextManager[object]:
    """The context in which products are computed in the types they are given."""
    if device.type == "meta":  # autocast refuses to be even switched off there
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)
