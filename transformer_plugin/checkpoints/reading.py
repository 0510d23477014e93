"""Reading checkpoints without trusting them: whole, unaltered, data only, and of the right kind.

A checkpoint is a pickle, and unpickling runs whatever the file names. Here only the functions and
classes that checkpoints of fairseq's models need are allowed, and what ``add_safe_globals`` adds;
any other name is refused before anything is called:

* torch 2.6 and later restrict ``torch.load`` themselves (``weights_only``), and our list is added
  to theirs;
* older torch gets a restricted unpickler in place of ``pickle``.

``torch.load`` silently accepts flipped bits, so the checksums inside the file are compared first.
Files written under numpy 2 name ``numpy._core``, those under numpy 1 ``numpy.core``: both are
understood.
"""

import argparse
import codecs
import collections
import functools
import logging
import os
import pathlib
import pickle
import re
import types
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, List, Tuple, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.logging import meters
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf
from omegaconf.base import ContainerMetadata, Metadata

from ..config import PluginError

logger = logging.getLogger(__name__)

ZIP_MAGIC = b"PK\x03\x04"  # torch itself tells its two formats apart by these first bytes
OLD_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # how its format before zip begins
TORCH_RESTRICTS_ITSELF = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)


NO_CHECKPOINT = "is not a checkpoint that fairseq-train wrote, or is damaged"


class CheckpointError(PluginError):
    """Not a usable checkpoint; one sentence: which file, what is wrong, what to do."""


def _numpy_names() -> Dict[str, Any]:
    """Arrays and scalars, in both spellings; ``--eval-bleu`` and others put them into meters."""
    rebuild_array = np.zeros(1).__reduce__()[0]
    rebuild_scalar = np.float64(1).__reduce__()[0]
    names: Dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray._reconstruct"] = rebuild_array
        names[f"{core}.multiarray.scalar"] = rebuild_scalar
    # for numbers of each kind, strings and objects a class, which torch has to be allowed to fill
    names.update(_by_name(type(np.dtype(kind)) for kind in np.typecodes["All"]))
    return names


def _by_name(things: Iterable[Any]) -> Dict[str, Any]:
    """Classes or functions by their names in files; a pair (thing, name) has its name with it."""
    pairs = (
        one if isinstance(one, tuple) else (one, f"{one.__module__}.{one.__qualname__}")
        for one in things
    )
    return {name: one for one, name in pairs}


def _other_peoples_names() -> Dict[str, Any]:
    """What checkpoints of other models and tasks hold: configurations, paths, meters."""
    names = _by_name([DictConfig, ListConfig, AnyNode, Metadata, ContainerMetadata])
    names.update(_by_name([dict, list, int, collections.defaultdict]), **{"typing.Any": Any})
    for module in ("pathlib", "pathlib._local"):  # the second since Python 3.13
        names[f"{module}.PosixPath"] = pathlib.PosixPath
        names[f"{module}.PurePosixPath"] = pathlib.PurePosixPath
    for name, value in vars(meters).items():
        if isinstance(value, type) and issubclass(value, meters.Meter):
            names[f"fairseq.logging.meters.{name}"] = value
            names[f"fairseq.meters.{name}"] = value  # fairseq up to 0.9, which pickles meters
    return names


def _allowed_names() -> Dict[str, Any]:
    """Dotted name in a file → the harmless class or function it stands for, for any torch."""
    names = {"argparse.Namespace": argparse.Namespace, "_codecs.encode": codecs.encode}
    names.update(_numpy_names())
    names.update(_other_peoples_names())
    names["fairseq.data.dictionary.Dictionary"] = Dictionary  # in the state of some speech tasks
    return names


ALLOWED = _allowed_names()
ALLOWED_BY_TORCH = {  # what torch 2.6 and later allow by default, as far as checkpoints need it
    "collections.OrderedDict": collections.OrderedDict,
    "builtins.set": set,
    "torch.Size": torch.Size,
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
}
# (torch resolves the storages of tensors itself, whatever module a file names for them.)
_ADDED: List[Any] = []  # where torch has no such list


def add_safe_globals(safe: List[Any]) -> None:
    """Allow checkpoints to name these: ``torch.serialization.add_safe_globals`` for any torch.

    Args:
        safe: classes and functions, or pairs of one and its dotted name in the file. Reading a
            checkpoint calls them as the file says.
    """
    if hasattr(torch.serialization, "add_safe_globals"):  # 2.4 and later
        torch.serialization.add_safe_globals(safe)
    else:
        _ADDED.extend(safe)


def _added_names() -> Dict[str, Any]:
    """What was allowed besides, by name."""
    return _by_name(getattr(torch.serialization, "get_safe_globals", lambda: _ADDED)())


class RestrictedUnpickler(pickle.Unpickler):
    """``pickle.Unpickler`` that knows the names of checkpoints and refuses all others."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """The object behind a name in the file; raises UnpicklingError unless it is allowed."""
        renamed = IMPORT_MAPPING.get(module_name, module_name), global_name
        # protocol 2 writes the names of Python 2
        name = ".".join(NAME_MAPPING.get((module_name, global_name), renamed))
        for names in (ALLOWED, ALLOWED_BY_TORCH, _added_names()):
            if name in names:
                return names[name]
        raise pickle.UnpicklingError(f"GLOBAL {name} is not allowed in a checkpoint")


def _restricted_load(stream: IO[bytes], **kwargs: Any) -> Any:
    return RestrictedUnpickler(stream, **kwargs).load()


# what torch.load asks of its `pickle_module`
restricted_pickle = types.SimpleNamespace(
    __name__="restricted_pickle", Unpickler=RestrictedUnpickler, load=_restricted_load
)


def _unpickle(source: Union[IO[bytes], str], mapped: bool = False) -> Any:
    """torch.load on the CPU, restricted in the way this torch offers."""
    options: Dict[str, Any] = {"map_location": "cpu", "mmap": mapped}
    if not TORCH_RESTRICTS_ITSELF:
        return torch.load(source, pickle_module=restricted_pickle, **options)
    by_name: List[Union[Callable, Tuple[Callable, str]]] = [
        (f, name) for name, f in ALLOWED.items()
    ]
    with torch.serialization.safe_globals(by_name):
        return torch.load(source, weights_only=True, **options)


ADVICE = "copy it again, or use another checkpoint"


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


@functools.lru_cache(maxsize=None)
def _warn_of_old_format(name: str) -> None:
    """Warn, once for each file, of what cannot be promised for it."""
    logger.warning(
        "%s is in the format of torch before 1.6, which has no checksums: damage in its numbers "
        "would not be noticed",
        name,
    )


def _check_content(state: Any, name: str) -> None:
    """Raise CheckpointError unless ``state`` has the parts that fairseq needs of a checkpoint."""
    parts = state if isinstance(state, dict) else {}
    known = {
        "model": isinstance(parts.get("model"), dict),
        "cfg": isinstance(parts.get("cfg"), dict) or parts.get("args") is not None,
        "optimizer_history": isinstance(parts.get("optimizer_history") or [], list)
        and ("optimizer_history" in parts or "best_loss" in parts),
    }
    for part, is_there in known.items():
        if not is_there:
            raise CheckpointError(
                f"{name} is not a checkpoint of a fairseq model (no {part!r} inside); "
                "name a .pt file that fairseq-train wrote."
            )


def read_checkpoint(
    stream: IO[bytes], name: str, mapped: bool = False, checksums: bool = True
) -> Dict[str, Any]:
    """The checkpoint in an open file, its tensors on the CPU; ``name`` is for messages.

    Args:
        stream: at the file's start
        name: the file's
        mapped: whether tensors are read from the file when they are used, so that unused ones (the
            optimizer's) take no memory; the file must not be written to meanwhile
        checksums: whether the whole file is read to compare them

    Raises:
        CheckpointError: anything but a whole, unaltered checkpoint that holds data only; nothing
            that a file names is called unless it is on the list.
    """
    start = stream.read(len(OLD_MAGIC))
    stream.seek(0)
    is_zip = start.startswith(ZIP_MAGIC)
    if is_zip:
        _check_archive(stream, name, checksums)
    elif start == OLD_MAGIC:
        _warn_of_old_format(name)
    else:
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
    path: Union[str, Path], mapped: bool = False, checksums: bool = True
) -> Dict[str, Any]:
    """Read a checkpoint as it stands in the file, its tensors on the CPU.

    Raises CheckpointError if there is no such file, or as ``read_checkpoint`` does.
    """
    path = Path(path)
    try:
        with open(path, "rb") as stream:
            return read_checkpoint(stream, str(path), mapped, checksums)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the name, or train first.") from None


def checkpoint_metadata(path: Union[str, Path]) -> Dict[str, Any]:
    """A checkpoint of which only what is no tensor will be used: options, updates, dictionaries.

    It takes hardly any time or memory, since damage inside the tensors is not looked for.

    Raises CheckpointError if there is no such file, or it is not a checkpoint.
    """
    return load_checkpoint(path, mapped=True, checksums=False)
