"""Reading checkpoints without trusting them: whole, unaltered, data only, and of the right kind.

A checkpoint is a pickle, and unpickling runs whatever the file names. Here only the functions and
classes that fairseq's own checkpoints need are named; any other name is refused before anything is
called:

* torch 2.6 and later restrict ``torch.load`` themselves (``weights_only``) and get our list as an
  addition to theirs;
* older torch gets a restricted unpickler in place of ``pickle``.

``torch.load`` accepts flipped bits in silence, so the checksums inside the file are compared first.
Files written under numpy 2 name ``numpy._core``, under numpy 1 ``numpy.core``: both are understood.
"""

import argparse
import codecs
import collections
import pickle
import re
import types
import zipfile
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np
import torch
from fairseq.logging import meters

ZIP_MAGIC = b"PK\x03\x04"  # torch itself tells its two formats apart by these first bytes
TORCH_RESTRICTS_ITSELF = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)


class CheckpointError(ValueError):
    """A file that is no usable checkpoint; one sentence: which file, what is wrong, what to do."""


def _numpy_names() -> Dict[str, Any]:
    """Arrays and scalars of numbers, in both spellings; ``--eval-bleu`` puts them into meters."""
    rebuild_array = np.zeros(1).__reduce__()[0]
    rebuild_scalar = np.float64(1).__reduce__()[0]
    names: Dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray._reconstruct"] = rebuild_array
        names[f"{core}.multiarray.scalar"] = rebuild_scalar
    return names


def _allowed_names() -> Dict[str, Any]:
    """Dotted name in a file → the harmless class or function it stands for, for any torch."""
    names = {"argparse.Namespace": argparse.Namespace, "_codecs.encode": codecs.encode}
    names.update(_numpy_names())
    for meter in (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter):
        for module in ("fairseq.meters", "fairseq.logging.meters"):  # whole meters, before 0.9
            names[f"{module}.{meter.__name__}"] = meter
    return names


ALLOWED = _allowed_names()
ALLOWED_BY_TORCH = {  # what torch from 2.6 on allows of itself, as far as checkpoints need it
    "collections.OrderedDict": collections.OrderedDict,
    "builtins.set": set,
    "__builtin__.set": set,
    "torch.Size": torch.Size,
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
}
# (torch resolves the storages of tensors itself, whatever module a file names for them.)
# numpy has a class for each kind of number; torch asks for leave to fill instances of it
NUMBER_TYPES = [type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"]


class RestrictedUnpickler(pickle.Unpickler):
    """``pickle.Unpickler`` that knows the names of checkpoints and refuses all others."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """The object behind a name in the file; raises UnpicklingError unless it is allowed."""
        name = f"{module_name}.{global_name}"
        if name in ALLOWED:
            return ALLOWED[name]
        if name in ALLOWED_BY_TORCH:
            return ALLOWED_BY_TORCH[name]
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
    spelled: List[Union[Callable, Tuple[Callable, str]]] = [
        (f, name) for name, f in ALLOWED.items()
    ]
    with torch.serialization.safe_globals(spelled + NUMBER_TYPES):
        return torch.load(source, weights_only=True, **options)


def _check_zip(stream: IO[bytes], name: str) -> None:
    """Raise CheckpointError unless the zip archive is whole and every checksum in it is right."""
    advice = "copy it again, or use another checkpoint"
    try:
        with zipfile.ZipFile(stream) as archive:
            damaged = archive.testzip()
            members = [member.rpartition("/")[2] for member in archive.namelist()]
    except Exception:  # zipfile raises half a dozen kinds for damaged bytes
        raise CheckpointError(f"{name} is cut short or damaged; {advice}.") from None
    if damaged is not None:
        raise CheckpointError(f"{name} is damaged (wrong checksum in {damaged}); {advice}.")
    if "data.pkl" not in members or "constants.pkl" in members:  # the latter: a TorchScript program
        raise CheckpointError(
            f"{name} is a zip archive but no checkpoint; name a .pt file that fairseq-train wrote."
        )


def _check_content(state: Any, name: str) -> Dict[str, Any]:
    """Raise CheckpointError unless ``state`` has the parts that fairseq needs of a checkpoint."""
    missing = []
    if isinstance(state, dict):
        if not isinstance(state.get("model"), dict):
            missing.append("model")
        if state.get("cfg") is None and state.get("args") is None:
            missing.append("cfg")
        if "optimizer_history" not in state and "best_loss" not in state:
            missing.append("optimizer_history")
    if not isinstance(state, dict) or missing:
        lacks = f"no {missing[0]!r} inside" if missing else f"it holds a {type(state).__name__}"
        raise CheckpointError(
            f"{name} is no checkpoint of a fairseq model ({lacks}); "
            "name a .pt file that fairseq-train wrote."
        )
    return state


def read_checkpoint(stream: IO[bytes], name: str, mapped: bool = False) -> Dict[str, Any]:
    """The checkpoint in an open file, its tensors on the CPU; ``name`` is for messages.

    ``mapped``: tensors are read from the file when they are used, so that those which are not
    (the optimizer's) take no memory; the file must not be written to meanwhile.

    Raises CheckpointError for anything but a whole, unaltered checkpoint that holds data only;
    nothing that a file names is called unless it is on the list.
    """
    start = stream.read(len(ZIP_MAGIC))
    if not start:
        raise CheckpointError(f"{name} is empty; use another checkpoint, or train again.")
    stream.seek(0)
    if start == ZIP_MAGIC:
        _check_zip(stream, name)
        stream.seek(0)
    try:
        mapped = mapped and start == ZIP_MAGIC  # the old format cannot be
        state = _unpickle(stream.name if mapped else stream, mapped)
    except MemoryError:
        raise
    except Exception as error:  # bytes that are no pickle raise almost anything
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and refused:
            raise CheckpointError(
                f"{name} was refused, and nothing in it was run, because it asks for "
                f"{refused.group(1)}, which no checkpoint needs; use one from a source you trust."
            ) from None
        raise CheckpointError(
            f"{name} is no checkpoint, or a damaged one; name a .pt file that fairseq-train wrote."
        ) from None
    return _check_content(state, name)


def load_checkpoint(path: Union[str, Path], mapped: bool = False) -> Dict[str, Any]:
    """Read a checkpoint as it stands in the file, its tensors on the CPU.

    Raises CheckpointError if there is no such file, or as ``read_checkpoint`` does.
    """
    path = Path(path)
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; name a checkpoint in it.")
    try:
        with open(path, "rb") as stream:
            return read_checkpoint(stream, str(path), mapped)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the name, or train first.") from None


# A parameter that both sides have, by the end of its name → the option that sets its first
# (0) or second (1) size; looked through in this order, since a width changes everything else.
_SIZES: List[Tuple[str, int, str]] = [
    ("tokens.weight", 1, "--encoder-embed-dim and --decoder-embed-dim"),
    ("tokens.weight", 0, "the dictionary (its number of entries)"),
    ("positions.weight", 0, "--max-source-positions or --max-target-positions"),
    ("fc1.weight", 0, "--{side}-ffn-embed-dim"),
    ("out_proj.weight", 1, "--head-value-dim"),
    ("q_proj.weight", 0, "--head-key-dim"),
    ("qkv_proj.weight", 0, "--head-key-dim"),
]


def _layers(state: Mapping[str, Any], side: str) -> int:
    """How many layers a state has on one side ("encoder" or "decoder")."""
    found = (re.match(rf"{side}\.layers\.(\d+)\.", name) for name in state)
    return len({match.group(1) for match in found if match})


def _differing_option(saved: Mapping[str, Any], model: Mapping[str, Any]) -> Optional[str]:
    """The first option that explains a difference, with both its values; None if none does."""
    for ending, axis, option in _SIZES:
        for name in sorted(set(saved) & set(model)):
            there, here = saved[name].shape, model[name].shape
            if name.endswith(ending) and len(there) > axis and there[axis] != here[axis]:
                label = option.format(side=name.partition(".")[0])
                return f"{label}: {there[axis]} there, {here[axis]} here ({name})"
    for side in ("encoder", "decoder"):
        there, here = _layers(saved, side), _layers(model, side)
        if there and here and there != here:
            return f"--{side}-layers: {there} there, {here} here"
        learned = [any(f"{side}." in n and "positions." in n for n in s) for s in (saved, model)]
        if learned[0] != learned[1]:
            return f"--{side}-learned-pos: {learned[0]} there, {learned[1]} here"
    return None


def _untied(saved: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Whether matrices that the model shares (one place in memory) differ in the checkpoint."""
    first: Dict[int, str] = {}
    for name in sorted(set(saved) & set(model)):
        other = first.setdefault(model[name].data_ptr(), name)
        if other != name and not torch.equal(saved[other], saved[name]):
            return True
    return False


def explain_mismatch(saved_state: Mapping[str, Any], model_state: Mapping[str, Any]) -> str:
    """One sentence on why parameters do not fit a model, naming the option that differs.

    Both map parameter names to tensors. Returns "" if they fit: every name and shape agrees, and
    what the model shares is shared in the checkpoint.
    """
    other = "The checkpoint was trained with other options; "
    kinds = [
        {re.sub(r"\d+", "*", n) for n in s if ".layers." in n} for s in (saved_state, model_state)
    ]
    if kinds[0] != kinds[1]:
        odd = sorted(kinds[0] - kinds[1]) or sorted(kinds[1] - kinds[0])
        return (
            f"The checkpoint is of another architecture ({odd[0]} is only on one side); "
            "use the --arch that it was trained with."
        )
    option = _differing_option(saved_state, model_state)
    if option:
        return f"{other}{option}."
    for name in sorted(set(saved_state) ^ set(model_state)):
        return f"{other}{name} is only {'there' if name in saved_state else 'here'}."
    for name in sorted(saved_state):
        there, here = tuple(saved_state[name].shape), tuple(model_state[name].shape)
        if there != here:
            return f"{other}{name} is {there} there, {here} here."
    if _untied(saved_state, model_state):
        return f"{other}--untie-embeddings: True there, False here."
    return ""
