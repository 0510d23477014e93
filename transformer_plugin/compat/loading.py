"""Lets fairseq's own commands read checkpoints as ``checkpoints.read_checkpoint`` does."""

import functools
import types
from collections.abc import Callable
from typing import IO, Any

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from ..checkpoints import (
    TORCH_RESTRICTS_ITSELF,
    CheckpointError,
    not_finite,
    read_checkpoint,
    registered_name,
)
from .replacing import REPAIRS, replaces
from .scope import is_plugin_model


class _TorchWithOtherLoad(types.ModuleType):
    """``torch`` as one module of fairseq sees it: the real one, except for ``load``."""

    def __init__(self, load: Callable) -> None:
        super().__init__("torch")
        self.load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def load_safely(stream: IO[bytes], map_location: Any = None) -> dict[str, Any]:
    """Read a checkpoint in place of ``torch.load`` in fairseq.checkpoint_utils (always on CPU).

    Official: ``torch.load`` runs whatever a pickle names. Modern: it refuses what fairseq itself
    saves (argparse.Namespace, numpy arrays). Both accept damage, and parameters that are NaN.

    Raises:
        CheckpointError: as in ``read_checkpoint``, or a parameter is NaN or infinite.
    """
    name = getattr(stream, "name", "the checkpoint")
    state = read_checkpoint(stream, name)
    parameter = not_finite(state["model"]) if is_plugin_model(registered_name(state)) else ""
    if parameter:
        raise CheckpointError(
            f"{name} has NaN or infinity in {parameter}: its training has diverged, so use an "
            "earlier checkpoint."
        )
    return state


replaces(
    checkpoint_utils,
    "torch",
    REPAIRS,
    "all",
    "on torch 2.6 and later fairseq can read its own checkpoints; nothing that a checkpoint names "
    "is run, and damage is noticed",
)(_TorchWithOtherLoad(load_safely))

# Since torch 2.6, ranks above 0 fail in ``broadcast_object``, which sends a class of its own and
# the configuration as pickled bytes. Those come from rank 0 of the same run, which has read the
# file with all restrictions, so they are loaded without any.
replaces(
    distributed_utils,
    "torch",
    REPAIRS,
    "torch 2.6 and later",
    "training in several processes can be resumed",
    needed=TORCH_RESTRICTS_ITSELF,
)(_TorchWithOtherLoad(functools.partial(torch.load, weights_only=False)))
