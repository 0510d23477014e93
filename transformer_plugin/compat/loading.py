"""Reading checkpoints: fairseq's own commands read them as ``checkpoints.read_checkpoint`` does."""

import functools
import types
from pathlib import Path
from typing import IO, Any, Callable, Dict, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.modules import SinusoidalPositionalEmbedding
from torch.nn.modules.module import register_module_parameter_registration_hook

from ..checkpoints import TORCH_RESTRICTS_ITSELF, CheckpointError, check_is_file, read_checkpoint
from ..checkpoints.parameters import model_name, model_options, not_finite
from .scope import is_known

MOST_IN_TABLE = 1 << 30
"""Numbers (4 GB) in a table of positions of a model built from a checkpoint: 2,000,000 × 512."""


def apply() -> None:
    """Install this file's workarounds."""
    _load_safely()
    _build_no_more_than_was_saved()
    _make_no_endless_table()
    _share_state_between_ranks()


class _TorchWithOtherLoad(types.ModuleType):
    """``torch`` as one module of fairseq sees it: the real one, except for ``load``."""

    def __init__(self, load: Callable) -> None:
        super().__init__("torch")
        self.load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _load(stream: IO[bytes], map_location: Any = None) -> Dict[str, Any]:
    """Replaces ``torch.load(stream, map_location)`` in fairseq.checkpoint_utils (always CPU)."""
    name = getattr(stream, "name", "the checkpoint")
    state = read_checkpoint(stream, name)
    if not is_known(model_name(model_options(state))):
        return state  # another plugin's: what its parameters mean is its own affair
    parameter = not_finite(state["model"])
    if parameter:
        raise CheckpointError(
            f"{name} has NaN or infinity in {parameter}: its training has diverged; use an earlier "
            "checkpoint."
        )
    if Limit.now:
        Limit.now.give(name, state["model"])
    return state


def _load_safely() -> None:
    """fairseq reads checkpoints through ``read_checkpoint``.

    Official: ``torch.load`` runs whatever a pickle names. Modern: ``torch.load`` refuses what
    fairseq itself saves (argparse.Namespace, numpy arrays). Both: a damaged file is accepted, or
    fails without its name; a pipe blocks; parameters that are NaN still decode to something. Until
    fairseq does this itself (it is no longer developed).
    """
    checkpoint_utils.torch = _TorchWithOtherLoad(_load)
    original = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        check_is_file(Path(path))
        return original(path, *args, **kwargs)

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


class Limit:
    """How large a model built from a checkpoint may become: a few times what is in the file.

    (Some parameters are made and then replaced by shared ones; and the data's dictionary may be
    larger than the checkpoint's, which is explained better once the model is built.) Another
    plugin's model may have parts that it does not save: those are not counted.
    """

    now: Optional["Limit"] = None

    def __init__(self) -> None:
        self.name = ""
        self.tensors, self.numbers = 1_000, 100_000_000

    def give(self, name: str, model: Dict[str, Any]) -> None:
        """Allow for one more checkpoint: of an ensemble, or one to start a model from."""
        tensors = [tensor for tensor in model.values() if isinstance(tensor, torch.Tensor)]
        self.name = name
        self.tensors += 4 * len(tensors)
        self.numbers += 4 * sum(tensor.numel() for tensor in tensors)

    def take(self, module: Any, name: str, parameter: Any) -> None:
        """Count a new parameter; raises CheckpointError if it is one too many."""
        if self.name and parameter is not None:
            self.tensors -= 1
            self.numbers -= parameter.numel()
            if min(self.tensors, self.numbers) < 0:
                raise self.refusal()

    def refusal(self) -> CheckpointError:
        """The error for a checkpoint that asks for too much."""
        return CheckpointError(
            f"{self.name} describes a model far larger than the parameters in it: it was altered, "
            "or the data's dictionary is not the one that it was trained with; use another one."
        )


def _build_no_more_than_was_saved() -> None:
    """A configuration inside a checkpoint that asks for a million layers is refused.

    All versions build the model that it describes, for as long and in as much memory as it takes,
    before they compare it with the parameters in the same file.
    """
    original = checkpoint_utils.load_model_ensemble_and_task

    @functools.wraps(original)
    def load_model_ensemble_and_task(*args: Any, **kwargs: Any) -> Any:
        limit = Limit()
        before, Limit.now = Limit.now, limit
        hook = register_module_parameter_registration_hook(limit.take)
        try:
            return original(*args, **kwargs)
        except (MemoryError, RuntimeError) as error:
            if limit.name and (isinstance(error, MemoryError) or "allocate memory" in str(error)):
                raise limit.refusal() from None
            raise
        finally:
            hook.remove()
            Limit.now = before

    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task


def _make_no_endless_table() -> None:
    """A checkpoint that asks for a thousand million sinusoidal positions is refused.

    All versions compute the table of fairseq's own models at once. It is no parameter, and so is
    not counted above.
    """
    original = SinusoidalPositionalEmbedding.__init__

    @functools.wraps(original)
    def __init__(self: Any, embedding_dim: int, padding_idx: int, init_size: int = 1024) -> None:
        if Limit.now and Limit.now.name and init_size * embedding_dim > MOST_IN_TABLE:
            raise Limit.now.refusal()
        original(self, embedding_dim, padding_idx, init_size)

    SinusoidalPositionalEmbedding.__init__ = __init__


def _share_state_between_ranks() -> None:
    """Processes of rank > 0 can resume.

    Since torch 2.6 they fail in ``broadcast_object``, which sends a class of its own and the
    configuration as pickled bytes. Those bytes come from rank 0 of the same run, which has read
    the file with all restrictions, so they are loaded without any. Until fairseq does so itself.
    """
    if TORCH_RESTRICTS_ITSELF:
        load = functools.partial(torch.load, weights_only=False)
        distributed_utils.torch = _TorchWithOtherLoad(load)
