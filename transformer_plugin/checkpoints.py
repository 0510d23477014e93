"""Reads checkpoints without trusting them, and compares their parameters with a model's.

A checkpoint is a pickle, and unpickling runs every function that the file names. Here only the
functions and classes that checkpoints of fairseq's models need are allowed, and those given to
``add_safe_globals``; any other name is refused before anything is called. torch 2.6 and later
restrict ``torch.load`` themselves (``weights_only``), and our list is added to theirs; older torch
gets a restricted unpickler in place of ``pickle``.

``torch.load`` silently accepts flipped bits, so the checksums inside the file are compared first.
Files written under numpy 2 name ``numpy._core``, those under numpy 1 ``numpy.core``; both are
accepted. fairseq writes checkpoints; see compat/saving.py.
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

ZIP_MAGIC = b"PK\x03\x04"  # torch itself distinguishes its two formats by these first bytes
OLD_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # start of torch's format before zip
TORCH_RESTRICTS_ITSELF = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)
NO_CHECKPOINT = "is not a checkpoint that fairseq-train wrote, or is damaged"
ADVICE = "copy it again, or use another checkpoint"
TRAINED = re.compile(r"checkpoint(\d+|_\d+_\d+|_last|_best|\.best_.+)\.pt")
"""Names of fairseq-train's checkpoints; averages have other names."""


class CheckpointError(PluginError):
    """The file is not a usable checkpoint; one sentence: which file, what is wrong, what to do."""


def _by_name(things: Iterable[Any]) -> dict[str, Any]:
    """Return classes or functions by their dotted names in files."""
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in things}


def _numpy_names() -> dict[str, Any]:
    """Return numpy's arrays and scalars by name, which ``--eval-bleu`` puts into meters.

    Both ``numpy.core`` and ``numpy._core`` are included.
    """
    names: dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray._reconstruct"] = np.zeros(1).__reduce__()[0]
        names[f"{core}.multiarray.scalar"] = np.float64(1).__reduce__()[0]
    # each kind of numbers, strings and objects has a class of its own
    return {**names, **_by_name(type(np.dtype(kind)) for kind in np.typecodes["All"])}


def _fairseqs_names() -> dict[str, Any]:
    """Return the classes in checkpoints of fairseq's models by name: options, paths, meters."""
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
    """Return tensors and Python's own containers by name; torch itself finds storages."""
    names = _by_name([dict, list, int, set, collections.OrderedDict, collections.defaultdict])
    rebuild = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
    names.update({f"torch._utils.{name}": getattr(torch._utils, name) for name in rebuild})
    return {**names, "torch.Size": torch.Size, "typing.Any": Any}


ALLOWED = {**_torchs_names(), **_numpy_names(), **_fairseqs_names()}
"""Dotted name in a file → the harmless class or function of this name."""


def add_safe_globals(safe: list[Any]) -> None:
    """Allow more classes in checkpoints, as ``torch.serialization.add_safe_globals`` does.

    Args:
        safe: classes and functions. Reading a checkpoint calls them as the file says.
    """
    ALLOWED.update(_by_name(safe))


class RestrictedUnpickler(pickle.Unpickler):
    """``pickle.Unpickler`` that allows only the names in ``ALLOWED``."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the object of a name in the file.

        Raises:
            UnpicklingError: the name is not in ``ALLOWED``.
        """
        renamed = IMPORT_MAPPING.get(module_name, module_name), global_name
        # protocol 2 writes the names of Python 2
        name = ".".join(NAME_MAPPING.get((module_name, global_name), renamed))
        if name not in ALLOWED:
            raise pickle.UnpicklingError(f"GLOBAL {name} is not allowed in a checkpoint")
        return ALLOWED[name]


# the interface that torch.load needs of its `pickle_module`
restricted_pickle = types.SimpleNamespace(
    __name__="restricted_pickle",
    Unpickler=RestrictedUnpickler,
    load=lambda stream, **options: RestrictedUnpickler(stream, **options).load(),
)


def _unpickle(source: IO[bytes] | str, mapped: bool = False) -> Any:
    """Call torch.load on the CPU, restricted in the way that this version of torch has."""
    options: dict[str, Any] = {"map_location": "cpu", "mmap": mapped}
    if not TORCH_RESTRICTS_ITSELF:
        return torch.load(source, pickle_module=restricted_pickle, **options)
    with torch.serialization.safe_globals([(thing, name) for name, thing in ALLOWED.items()]):
        return torch.load(source, weights_only=True, **options)


def _check_archive(stream: IO[bytes], name: str, checksums: bool) -> None:
    """Raise CheckpointError unless an open zip archive is torch's, complete and unchanged.

    A TorchScript program is another kind of archive. The parts of a checkpoint are not compressed,
    so together they are never larger than the file.
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
        raise CheckpointError(f"{name} {problem}: {ADVICE}.")
    stream.seek(0)


def _check_content(state: Any, name: str) -> None:
    """Raise CheckpointError unless ``state`` has the parts of a fairseq checkpoint."""
    parts = state if isinstance(state, dict) else {}
    has_options = isinstance(parts.get("cfg"), dict) or parts.get("args") is not None
    has_history = "optimizer_history" in parts or "best_loss" in parts
    if not (isinstance(parts.get("model"), dict) and has_options and has_history):
        raise CheckpointError(
            f"{name} is not a checkpoint of a fairseq model: give a .pt file that fairseq-train "
            "wrote."
        )
    if "optimizer_history" in parts and not _is_history(parts["optimizer_history"]):
        raise CheckpointError(
            f"{name} has an optimizer_history that is not a list of tables, each with num_updates: "
            f"{ADVICE}."
        )


def _is_history(history: Any) -> bool:
    """Return whether ``history`` is a list of trainings, each with its number of updates."""
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
    """Read the checkpoint in an open file, with its tensors on the CPU.

    Args:
        stream: at the start of the file
        name: of the file, for messages
        mapped: whether tensors are read from the file when they are used, so that unused ones (the
            optimizer's) take no memory; the file must not be written to meanwhile
        checksums: whether the whole file is read to compare its checksums; the format of torch
            before 1.6 has none

    Raises:
        CheckpointError: the file is not a complete, unchanged checkpoint of data only. No name in
            the file is called unless it is in ``ALLOWED``.
    """
    start = stream.read(len(OLD_MAGIC))
    stream.seek(0)
    is_zip = start.startswith(ZIP_MAGIC)
    if is_zip:
        _check_archive(stream, name, checksums)
    elif start != OLD_MAGIC:
        raise CheckpointError(f"{name} {NO_CHECKPOINT}: {ADVICE}.")
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
                f"{name} was not loaded, and no code in it was run, because it contains the class "
                f"{refused.group(1)}: if you trust the file, call "
                "transformer_plugin.checkpoints.add_safe_globals([…]) in your own Python code "
                "before you load it."
            ) from None
        raise CheckpointError(f"{name} {NO_CHECKPOINT}: {ADVICE}.") from None
    _check_content(state, name)
    return dict(state)


def load_checkpoint(
    path: str | Path, mapped: bool = False, checksums: bool = True
) -> dict[str, Any]:
    """Read a checkpoint unchanged from its file, with its tensors on the CPU.

    Raises:
        CheckpointError: there is no such file, or as in :func:`read_checkpoint`.
    """
    try:
        with open(path, "rb") as stream:
            return read_checkpoint(stream, str(path), mapped, checksums)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: check the name, or train first.") from None


def trained_checkpoints(folder: Path) -> list[Path]:
    """Return fairseq-train's checkpoints in a folder, sorted by name."""
    return [path for path in sorted(folder.glob("*.pt")) if TRAINED.fullmatch(path.name)]


def checkpoint_metadata(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint for everything but tensors: options, updates, dictionaries.

    Tensors are not read, so this is fast and needs little memory, but does not find damage in them.

    Raises:
        CheckpointError: there is no such file, or it is not a checkpoint.
    """
    return load_checkpoint(path, mapped=True, checksums=False)


# --- the content of a checkpoint ---------------------------------------------------------------


def explain_untied(saved: Mapping[str, Any], model: nn.Module) -> str:
    """Return a sentence on a parameter that a model shares and a checkpoint does not; or ""."""
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
    """Return a sentence on why parameters do not fit a model; "" if they do.

    Both arguments map parameter names to tensors. They fit if all names and shapes are equal.
    """
    one_sided = set(saved_state) ^ set(model_state)
    if one_sided:
        return (
            f"The checkpoint is of another architecture ({min(one_sided)} exists in only one of "
            "the two): use the --arch and the options of its training."
        )
    for name in sorted(saved_state):
        saved, now = tuple(saved_state[name].shape), tuple(model_state[name].shape)
        if saved != now:
            words = name.endswith("tokens.weight") and saved[1:] == now[1:]
            return (
                f"The checkpoint was trained with another {'dictionary' if words else 'size'} "
                f"({name} is {saved} in the checkpoint, {now} in this model): use the "
                f"{'dictionary' if words else 'options'} of its training."
            )
    return ""


def registered_name(state: Mapping[str, Any]) -> str | None:
    """Return the name under which the model of a checkpoint is registered, or None.

    Older checkpoints have their options in a Namespace.
    """
    cfg = state["cfg"].get("model") if isinstance(state.get("cfg"), dict) else state.get("args")
    options = cfg if isinstance(cfg, dict) else vars(cfg) if hasattr(cfg, "__dict__") else {}
    return options.get("_name") or options.get("arch")


def not_finite(model: Mapping[str, Any]) -> str:
    """Return the name of the first weight or bias with NaN or infinity; "" if there is none.

    Other tensors in a state may be infinite, as masks are.
    """
    for name, tensor in model.items():
        is_parameter = isinstance(tensor, Tensor) and name.endswith(("weight", "bias"))
        if is_parameter and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return name
    return ""
