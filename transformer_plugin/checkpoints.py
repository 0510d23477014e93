"""Reading checkpoints without trusting them, and whether their parameters fit a model.

A checkpoint is a pickle, and unpickling runs whatever the file names. Here only the functions and
classes that checkpoints of fairseq's models need are allowed, and what ``add_safe_globals`` adds;
any other name is refused before anything is called. torch 2.6 and later restrict ``torch.load``
themselves (``weights_only``), and our list is added to theirs; older torch gets a restricted
unpickler in place of ``pickle``.

``torch.load`` silently accepts flipped bits, so the checksums inside the file are compared first.
Files written under numpy 2 name ``numpy._core``, those under numpy 1 ``numpy.core``: both are
understood. fairseq writes checkpoints; see compat/saving.py.
"""

import argparse
import codecs
import collections
import os
import pathlib
import pickle
import re
import types
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.logging import meters
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf
from omegaconf.base import ContainerMetadata, Metadata
from torch import Tensor, nn

from .config import PluginError

ZIP_MAGIC = b"PK\x03\x04"  # torch itself tells its two formats apart by these first bytes
OLD_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # how its format before zip begins
TORCH_RESTRICTS_ITSELF = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)
NO_CHECKPOINT = "is not a checkpoint that fairseq-train wrote, or is damaged"
ADVICE = "copy it again, or use another checkpoint"
TRAINED = re.compile(r"checkpoint(\d+|_\d+_\d+|_last|_best|\.best_.+)\.pt")
"""The names that fairseq-train gives its checkpoints; averages have others."""


class CheckpointError(PluginError):
    """Not a usable checkpoint; one sentence: which file, what is wrong, what to do."""


def _by_name(things: Iterable[Any]) -> dict[str, Any]:
    """Classes or functions by their names in files."""
    return {f"{one.__module__}.{one.__qualname__}": one for one in things}


def _numpy_names() -> dict[str, Any]:
    """Arrays and scalars, in both spellings; ``--eval-bleu`` and others put them into meters."""
    names: dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray._reconstruct"] = np.zeros(1).__reduce__()[0]
        names[f"{core}.multiarray.scalar"] = np.float64(1).__reduce__()[0]
    # for numbers of each kind, strings and objects, a class
    return {**names, **_by_name(type(np.dtype(kind)) for kind in np.typecodes["All"])}


def _fairseqs_names() -> dict[str, Any]:
    """Return what checkpoints of fairseq's and other people's models hold: options, paths,
    meters.
    """
    names = _by_name([DictConfig, ListConfig, AnyNode, Metadata, ContainerMetadata])
    names.update({"argparse.Namespace": argparse.Namespace, "_codecs.encode": codecs.encode})
    names["fairseq.data.dictionary.Dictionary"] = Dictionary  # in the state of some speech tasks
    for module in ("pathlib", "pathlib._local"):  # the second since Python 3.13
        names[f"{module}.PosixPath"] = pathlib.PosixPath
        names[f"{module}.PurePosixPath"] = pathlib.PurePosixPath
    for name, value in vars(meters).items():
        if isinstance(value, type) and issubclass(value, meters.Meter):
            names[f"fairseq.logging.meters.{name}"] = value
            names[f"fairseq.meters.{name}"] = value  # fairseq up to 0.9, which pickles meters
    return names


def _torchs_names() -> dict[str, Any]:
    """Tensors (torch itself finds their storages) and Python's own containers."""
    names = _by_name([dict, list, int, set, collections.OrderedDict, collections.defaultdict])
    rebuild = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
    names.update({f"torch._utils.{name}": getattr(torch._utils, name) for name in rebuild})
    return {**names, "torch.Size": torch.Size, "typing.Any": Any}


ALLOWED = {**_torchs_names(), **_numpy_names(), **_fairseqs_names()}
"""Dotted name in a file → the harmless class or function it stands for."""


def add_safe_globals(safe: list[Any]) -> None:
    """Allow checkpoints to name these, as ``torch.serialization.add_safe_globals`` does for torch.

    Args:
        safe: classes and functions. Reading a checkpoint calls them as the file says.
    """
    ALLOWED.update(_by_name(safe))


class RestrictedUnpickler(pickle.Unpickler):
    """``pickle.Unpickler`` that knows the names of checkpoints and refuses all others."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the object behind a name in the file; raises UnpicklingError unless it is
        allowed.
        """
        renamed = IMPORT_MAPPING.get(module_name, module_name), global_name
        # protocol 2 writes the names of Python 2
        name = ".".join(NAME_MAPPING.get((module_name, global_name), renamed))
        if name not in ALLOWED:
            raise pickle.UnpicklingError(f"GLOBAL {name} is not allowed in a checkpoint")
        return ALLOWED[name]


# what torch.load asks of its `pickle_module`
restricted_pickle = types.SimpleNamespace(
    __name__="restricted_pickle",
    Unpickler=RestrictedUnpickler,
    load=lambda stream, **options: RestrictedUnpickler(stream, **options).load(),
)


def _unpickle(source: IO[bytes] | str, mapped: bool = False) -> Any:
    """torch.load on the CPU, restricted in the way this torch offers."""
    options: dict[str, Any] = {"map_location": "cpu", "mmap": mapped}
    if not TORCH_RESTRICTS_ITSELF:
        return torch.load(source, pickle_module=restricted_pickle, **options)
    with torch.serialization.safe_globals([(thing, name) for name, thing in ALLOWED.items()]):
        return torch.load(source, weights_only=True, **options)


def _check_archive(stream: IO[bytes], name: str, checksums: bool) -> None:
    """Raise CheckpointError unless an open zip archive is one of torch's, whole and unaltered.

    A TorchScript program is another kind of archive. The parts of a checkpoint are not packed, so
    that together they are no larger than the file.
    """
    problem = ""
    try:
        with zipfile.ZipFile(stream) as archive:
            parts = [part.rpartition("/")[2] for part in archive.namelist()]
            inside = sum(part.file_size for part in archive.infolist())
            if parts.count("data.pkl") != 1 or "constants.pkl" in parts:
                problem = "is a zip archive but not a checkpoint"
            elif inside > os.fstat(stream.fileno()).st_size:
                problem = f"would expand to {inside:,} bytes, which no checkpoint does"
            elif checksums:
                damaged = archive.testzip()
                problem = f"is damaged (wrong checksum in {damaged})" if damaged else ""
    except Exception:  # zipfile raises almost anything for damaged bytes
        problem = "is cut short or damaged"
    if problem:
        raise CheckpointError(f"{name} {problem}; {ADVICE}.")
    stream.seek(0)


def _check_content(state: Any, name: str) -> None:
    """Raise CheckpointError unless ``state`` has the parts that fairseq needs of a checkpoint."""
    parts = state if isinstance(state, dict) else {}
    has_options = isinstance(parts.get("cfg"), dict) or parts.get("args") is not None
    has_history = "optimizer_history" in parts or "best_loss" in parts
    if not (isinstance(parts.get("model"), dict) and has_options and has_history):
        raise CheckpointError(
            f"{name} is not a checkpoint of a fairseq model; name a .pt file that fairseq-train "
            "wrote."
        )
    if "optimizer_history" in parts and not _is_history(parts["optimizer_history"]):
        raise CheckpointError(
            f"{name} has no history that fairseq can read (optimizer_history: a list of tables, "
            f"each with num_updates); {ADVICE}."
        )


def _is_history(history: Any) -> bool:
    """Return whether it is a list of what was trained, the last at its end: fairseq looks at
    that.
    """
    if not isinstance(history, list) or not history:
        return False
    for training in history:
        updates = training.get("num_updates", 0) if isinstance(training, dict) else None
        if not isinstance(updates, Real) or isinstance(updates, bool):
            return False
    return True


def read_checkpoint(
    stream: IO[bytes], name: str, mapped: bool = False, checksums: bool = True
) -> dict[str, Any]:
    """Return the checkpoint in an open file, its tensors on the CPU; ``name`` is for messages.

    Args:
        stream: at the file's start
        name: the file's
        mapped: whether tensors are read from the file when they are used, so that unused ones (the
            optimizer's) take no memory; the file must not be written to meanwhile
        checksums: whether the whole file is read to compare them; the format of torch before 1.6
            has none

    Raises:
        CheckpointError: anything but a whole, unaltered checkpoint that holds data only; nothing
            that a file names is called unless it is on the list.
    """
    start = stream.read(len(OLD_MAGIC))
    stream.seek(0)
    is_zip = start.startswith(ZIP_MAGIC)
    if is_zip:
        _check_archive(stream, name, checksums)
    elif start != OLD_MAGIC:
        raise CheckpointError(f"{name} {NO_CHECKPOINT}; {ADVICE}.")
    mapped = mapped and is_zip  # the old format cannot be mapped
    try:
        state = _unpickle(stream.name if mapped else stream, mapped)
        if isinstance(state, dict) and isinstance(state.get("cfg"), DictConfig):
            state["cfg"] = OmegaConf.to_container(state["cfg"])  # as fairseq itself saves it
    except MemoryError:
        raise
    except Exception as error:  # bytes that are not a pickle raise almost anything
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and refused:
            raise CheckpointError(
                f"{name} was refused, and nothing in it was run, because it asks for "
                f"{refused.group(1)}; if you trust this class and where the file is from, allow it "
                "in your Python: transformer_plugin.checkpoints.add_safe_globals([…])."
            ) from None
        raise CheckpointError(f"{name} {NO_CHECKPOINT}; {ADVICE}.") from None
    _check_content(state, name)
    return dict(state)


def load_checkpoint(
    path: str | Path, mapped: bool = False, checksums: bool = True
) -> dict[str, Any]:
    """Read a checkpoint as it stands in the file, its tensors on the CPU.

    Raises CheckpointError if there is no such file, or as ``read_checkpoint`` does.
    """
    try:
        with open(path, "rb") as stream:
            return read_checkpoint(stream, str(path), mapped, checksums)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the name, or train first.") from None


def trained_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that fairseq-train left in a folder, in order of their names."""
    return [path for path in sorted(folder.glob("*.pt")) if TRAINED.fullmatch(path.name)]


def checkpoint_metadata(path: str | Path) -> dict[str, Any]:
    """Return a checkpoint of which only what is no tensor will be used: options, updates,
    dictionaries.

    It takes hardly any time or memory, since damage inside the tensors is not looked for.

    Raises CheckpointError if there is no such file, or it is not a checkpoint.
    """
    return load_checkpoint(path, mapped=True, checksums=False)


# --- what is in one ----------------------------------------------------------------------------


def explain_untied(saved: Mapping[str, Any], model: nn.Module) -> str:
    """Return one sentence on parameters that a model shares and a checkpoint does not; "" if
    none.
    """
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = names.setdefault(id(parameter), name)
        if first != name and not torch.equal(saved[first], saved[name]):
            return (
                f"{first} and {name} are two parameters in the checkpoint and one parameter in "
                "this model: give the options that it was trained with, such as "
                "--untie-embeddings."
            )
    return ""


def explain_mismatch(saved_state: Mapping[str, Any], model_state: Mapping[str, Any]) -> str:
    """Return one sentence on why parameters do not fit a model, with one that differs.

    Both map parameter names to tensors. Returns "" if they fit: every name and shape agrees.
    """
    one_sided = set(saved_state) ^ set(model_state)
    if one_sided:
        return (
            f"The checkpoint is of another architecture ({min(one_sided)} exists in only one of "
            "the two); use the --arch and the options that it was trained with."
        )
    for name in sorted(saved_state):
        saved, now = tuple(saved_state[name].shape), tuple(model_state[name].shape)
        if saved != now:
            words = name.endswith("tokens.weight") and saved[1:] == now[1:]
            return (
                f"The checkpoint was trained with another {'dictionary' if words else 'size'}; "
                f"{name} is {saved} in the checkpoint, {now} in this model."
            )
    return ""


def registered_name(state: Mapping[str, Any]) -> str | None:
    """Return the name under which a checkpoint's model is registered; older ones have a
    Namespace.
    """
    cfg = state["cfg"].get("model") if isinstance(state.get("cfg"), dict) else state.get("args")
    options = cfg if isinstance(cfg, dict) else vars(cfg) if hasattr(cfg, "__dict__") else {}
    return options.get("_name") or options.get("arch")


def not_finite(model: Mapping[str, Any]) -> str:
    """Return the first parameter (a weight or bias) with a NaN or an infinity in it; "" if there is
    none.

    Other tensors in a state may be infinite, as masks are.
    """
    for name, tensor in model.items():
        is_parameter = isinstance(tensor, Tensor) and name.endswith(("weight", "bias"))
        if is_parameter and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return name
    return ""
