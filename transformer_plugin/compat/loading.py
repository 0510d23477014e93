"""Reading checkpoints: fairseq's own commands read them as ``checkpoints.read_checkpoint`` does."""

import functools
import types
from typing import IO, Any, Callable, Dict

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from ..checkpoints import TORCH_RESTRICTS_ITSELF, read_checkpoint


def apply() -> None:
    """Set this file's workarounds."""
    _load_safely()
    _share_state_between_ranks()


class _TorchWithOtherLoad(types.ModuleType):
    """``torch`` as one module of fairseq sees it: the real one, but for ``load``."""

    def __init__(self, load: Callable) -> None:
        super().__init__("torch")
        self.load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _load(stream: IO[bytes], map_location: Any = None) -> Dict[str, Any]:
    """Stands for ``torch.load(stream, map_location)`` in fairseq.checkpoint_utils (always CPU)."""
    return read_checkpoint(stream, getattr(stream, "name", "the checkpoint"))


def _load_safely() -> None:
    """fairseq reads checkpoints through ``read_checkpoint``.

    Official: ``torch.load`` runs whatever a pickle names. Modern: ``torch.load`` refuses what
    fairseq itself saves (argparse.Namespace, numpy arrays). Both: a damaged file is accepted, or
    fails without its name. Until fairseq does it (it is no longer developed).
    """
    checkpoint_utils.torch = _TorchWithOtherLoad(_load)


def _share_state_between_ranks() -> None:
    """Processes of rank > 0 can resume.

    Since torch 2.6 they fail in ``broadcast_object``, which sends a class of its own and the
    configuration as pickled bytes. Those bytes come from rank 0 of the same run, which has read
    the file with all restrictions, so they are loaded without. Until fairseq says so itself.
    """
    if TORCH_RESTRICTS_ITSELF:
        load = functools.partial(torch.load, weights_only=False)
        distributed_utils.torch = _TorchWithOtherLoad(load)
