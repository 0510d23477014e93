"""Every workaround for a version of fairseq, torch or numpy: what breaks, since when, until when.

"Official" is fairseq 0.12.2 (torch 2.2, numpy 1.23), "modern" is fairseq-fixed 0.12.3.1 (torch 2.6
and later, numpy 2). ``apply`` sets all of them once; nothing here imports a model.
"""

import copy
import functools
import os
import shutil
import sys
import types
import warnings
from pathlib import Path
from typing import IO, Any, Callable, Dict, Optional, Sequence

import numpy as np
import torch
from fairseq import checkpoint_utils, models, utils
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import FairseqTask

from .checkpoints import TORCH_RESTRICTS_ITSELF, CheckpointError, read_checkpoint

_applied = False


def apply() -> None:
    """Set every workaround, once per process; a second call changes nothing."""
    global _applied
    refuse_bf16(sys.argv)
    if _applied:
        return
    _applied = True
    _load_safely()
    _share_state_between_ranks()
    _copy_atomically()
    _save_plain_meters()
    _name_unknown_models()
    _keep_off_fast_path()
    _keep_last_batch()
    _replace_unknown_words()


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


def _copy_atomically() -> None:
    """checkpoint_best.pt and checkpoint_last.pt are replaced in one step.

    All versions copy onto the old file, so that a kill or a full disk in that moment leaves
    neither the old nor the new one.
    """
    original = PathManager.copy

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if PathManager.path_requires_pathmanager(dst_path):
            return original(src_path, dst_path, overwrite)  # not a file of this machine
        aside = f"{dst_path}.tmp"
        try:
            shutil.copyfile(src_path, aside)
            with open(aside, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(aside, dst_path)
        finally:
            Path(aside).unlink(missing_ok=True)
        return dst_path

    PathManager.copy = staticmethod(copy)


def _plain(value: Any) -> Any:
    """``value`` with numpy numbers as Python numbers and numpy arrays as tensors, at any depth."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return type(value)((key, _plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value


def _save_plain_meters() -> None:
    """Checkpoints hold no numpy object, so that any numpy and plain ``torch.load`` can read them.

    All versions keep the arrays of ``--eval-bleu`` in their meters; numpy 2 writes them as
    ``numpy._core``, which numpy 1 cannot read, and torch from 2.6 on refuses them.
    """
    original = metrics.state_dict

    @functools.wraps(original)
    def state_dict() -> Any:
        return _plain(original())

    metrics.state_dict = state_dict


def _name_unknown_models() -> None:
    """A model that is not registered is named in one sentence.

    All versions: "Replacement index 1 out of range", from the formatting of the message.
    """
    original = models.build_model

    @functools.wraps(original)
    def build_model(cfg: Any, task: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in models.ARCH_MODEL_REGISTRY and name not in models.MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered; correct model._name (--arch), or, for a "
                "checkpoint of another plug-in, add the --user-dir that it was trained with."
            )
        return original(cfg, task, *args, **kwargs)

    models.build_model = build_model


def _keep_off_fast_path() -> None:
    """fairseq's own ``transformer`` can decode, to be compared with.

    Official fairseq with torch 2: "Mask Type should be defined", from a fused encoder layer that
    it calls with the arguments of torch 1.13. Modern fairseq has no such path.
    """
    never = property(lambda layer: False, lambda layer, value: None)
    TransformerEncoderLayerBase.can_use_fastpath = never


def refuse_bf16(argv: Sequence[str]) -> None:
    """Stop a command of fairseq that is given ``--bf16``, naming the switch that works.

    All versions turn the flag into TPU mode before any model is built, and fail for want of
    torch_xla. (``common.bf16`` in YAML does not: fairseq-hydra-train then keeps the weights
    themselves in bfloat16.) ``argv`` is a command with its arguments; those of other programs are
    left alone. Raises SystemExit (status 1) with one sentence.
    """
    command = Path(argv[0] if argv else "")
    if not command.name.startswith("fairseq-") and command.parent.name != "fairseq_cli":
        return
    asked = [a for a in argv[1:] if a in ("--bf16", "--memory-efficient-bf16")]
    if asked:
        raise SystemExit(
            f"{asked[0]} means TPU mode in fairseq; for bfloat16 use this plugin's "
            "--precision bf16 (in YAML: model.precision)."
        )


def _keep_last_batch() -> None:
    """No sentence is lost because the data do not divide by 8.

    Modern fairseq drops the last batch (the longest sentences of a training epoch, and up to seven
    of a test set, in silence) unless its size is a multiple of ``--required-batch-size-multiple``;
    the official one keeps it, as the option's own description says.
    """
    original = data_utils.batch_by_size

    @functools.wraps(original)
    def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
        batches = original(indices, *args, **kwargs)
        kept = sum(len(batch) for batch in batches)
        if kept < len(indices):  # batches are consecutive pieces of `indices`
            batches = [*batches, np.asarray(indices, dtype=np.int64)[kept:]]
        return batches

    data_utils.batch_by_size = batch_by_size


def _replace_unknown_words() -> None:
    """``--replace-unk`` copies the source word that an unknown word attends to most.

    All versions stop at the first unknown word: the generator aligns only for
    ``--print-alignment``, its pairs are read as single numbers, and the flag without a file opens
    one called "@@ ".
    """
    read_table, build_generator = utils.load_align_dict, FairseqTask.build_generator

    def load_align_dict(replace_unk: Optional[str]) -> Optional[Dict[str, str]]:
        return {} if replace_unk == "@@ " else read_table(replace_unk)

    def replace_unk(
        hypo_str: str, src_str: str, alignment: Any, align_dict: Dict[str, str], unk: str
    ) -> str:
        words, source = hypo_str.split(), src_str.split()
        for number, origin in _origins(alignment).items():
            if number < len(words) and words[number] == unk and origin < len(source):
                words[number] = align_dict.get(source[origin], source[origin])
        return " ".join(words)

    def aligning(task: Any, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        asked = getattr(args, "replace_unk", None) is not None
        if asked and not getattr(args, "print_alignment", None):
            args = copy.deepcopy(args)  # the command itself goes on without printing it
            args.print_alignment = "hard"
        return build_generator(task, models, args, *rest, **kwargs)

    utils.load_align_dict, utils.replace_unk = load_align_dict, replace_unk
    FairseqTask.build_generator = aligning


def _origins(alignment: Any) -> Dict[int, int]:
    """Number of a target word → that of its source word, both from 0.

    ``alignment`` is fairseq's: hard, pairs (source, target); or soft, for each target word its
    weights as text, the last one for the end of the sentence.
    """
    if len(alignment) and isinstance(alignment[0][0], str):
        rows = [[float(weight) for weight in row[:-1]] for row in alignment]
        return {number: row.index(max(row)) for number, row in enumerate(rows) if row}
    return {int(target): int(source) for source, target in alignment}


# What fairseq sets off in newer libraries, and no user of this plugin can mend: a regular
# expression that the message begins with, and its kind. All were seen with the pinned stacks.
_STALE = [
    (r"hydra\.experimental\.\w+\(\) is no longer experimental", UserWarning),
    (r"\s*The version_base parameter is not specified", UserWarning),
    (r"In '.*': Usage of deprecated keyword in package header", UserWarning),
    (r"\s*'config' is validated against ConfigStore schema", UserWarning),
    (r"\s*The strict flag in the compose API is deprecated", UserWarning),
    (r"Future Hydra versions will no longer change working directory", UserWarning),
    (r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning),
    (r"'pin_memory' argument is set as true but no accelerator", UserWarning),
    (r"Support for mismatched key_padding_mask and attn_mask", UserWarning),
]


def quiet() -> None:
    """Leave out known stale warnings, and only those, from the output of our own commands."""
    for message, category in _STALE:
        warnings.filterwarnings("ignore", message=message, category=category)
