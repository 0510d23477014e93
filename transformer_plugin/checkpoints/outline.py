"""What is in a checkpoint, without its tensors, read within bounds on memory and time.

A file of a few kilobytes can ask for all memory, or for hours: an archive that expands, a pickle
that allocates or is nested without end, a tensor larger than its storage. torch notices too late,
if at all. So the pickle is first checked (``pickle_bounds.py``), then read with an outline in place
of each tensor; nothing that it names is called.
"""

import argparse
import collections
import io
import os
import pickle
import zipfile
from dataclasses import dataclass
from typing import IO, Any, Dict, Sequence, Tuple

from .pickle_bounds import (
    DAMAGED,
    MOST_BYTES,
    OLD_MAGIC,
    BoundedFile,
    Refused,
    check_steps,
    check_tree,
)

MOST_MEMBERS = 100_000
"""Files in the archive; there is one for each tensor."""
MOST_SHARED = 30
"""How many times as large as the file its tensors may be, since several may share memory."""

_ITEM_SIZES = {
    **{"DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2},
    **{"LongStorage": 8, "IntStorage": 4, "ShortStorage": 2},
    **{"ComplexFloatStorage": 8, "ComplexDoubleStorage": 16},
}


@dataclass(frozen=True)
class TensorOutline:
    """A tensor's shape, and its size in bytes."""

    shape: Tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class _Storage:
    count: int
    item_size: int


class _Opaque:
    """Stands for anything that a checkpoint names and an outline does not need; does nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "_Opaque":
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        """Nothing."""

    extend = add = append


def encoded(text: str, codec: str) -> _Opaque:
    """Stands for bytes, which pickle writes as latin1. Other codecs may take hours (punycode)."""
    if codec != "latin1":
        raise Refused(f"holds bytes as {codec}, as no checkpoint does")
    return _Opaque()


# ---- the archive ----------------------------------------------------------------------------


def open_archive(stream: IO[bytes]) -> zipfile.ZipFile:
    """The zip archive in an open file, if it is of a reasonable size. Checksums are not compared.

    Raises:
        Refused: too many files in it, two with the same name, or more bytes than in the file.
    """
    size = os.fstat(stream.fileno()).st_size if hasattr(stream, "fileno") else 0
    archive = zipfile.ZipFile(BoundedFile(stream))  # type: ignore[arg-type]
    members = archive.infolist()
    names = {member.filename for member in members}
    if len(members) > MOST_MEMBERS:
        raise Refused(f"holds {len(members):,} parts, more than any checkpoint")
    if len(names) < len(members):
        raise Refused("holds a part twice, as no checkpoint does")
    inside = sum(member.file_size for member in members)
    if size and inside > size:
        raise Refused(f"would expand to {inside:,} bytes; a checkpoint is not packed")
    return archive


def of_archive(archive: zipfile.ZipFile, size: int) -> Any:
    """What the pickle of an archive holds, with outlines for tensors; ``size`` is the file's.

    Raises:
        Refused: it holds or asks for too much. Also what zipfile raises for damaged bytes.
    """
    (pickled,) = [m for m in archive.infolist() if m.filename.rpartition("/")[2] == "data.pkl"]
    folder = pickled.filename[: -len("data.pkl")] + "data/"
    storages = {
        member.filename[len(folder) :]: member.file_size
        for member in archive.infolist()
        if member.filename.startswith(folder)
    }
    if pickled.file_size > MOST_BYTES:
        raise Refused(f"has a table of {pickled.file_size:,} bytes, more than any checkpoint")
    found, reader = read_pickle(io.BytesIO(archive.read(pickled)))
    for key, needed in reader.storages.items():
        if needed > storages.get(key, 0):
            raise Refused(f"{DAMAGED} (a tensor is larger than its part {key} of the file)")
    reader.check_total(size)
    return found


def of_old_format(stream: IO[bytes], size: int) -> Any:
    """As ``of_archive``, for a file in torch's format before zip: pickles, then the tensors' bytes.

    Raises:
        Refused: it holds or asks for too much, or is cut short. Also what pickle raises.
    """
    if read_pickle(stream)[0] != OLD_MAGIC:
        raise Refused("is not a checkpoint")
    read_pickle(stream)  # the format's version
    read_pickle(stream)  # the machine that wrote it
    found, reader = read_pickle(stream)
    read_pickle(stream)  # the order of the tensors' bytes
    if sum(reader.storages.values()) > size - stream.tell():
        raise Refused(f"{DAMAGED} (its tensors are larger than the file)")
    reader.check_total(size)
    return found


# ---- the pickle -----------------------------------------------------------------------------


def read_pickle(stream: IO[bytes]) -> Tuple[Any, "OutlineReader"]:
    """What the next pickle of a stream holds, with outlines for tensors, and its reader.

    Raises:
        Refused: it holds or asks for too much. Also what pickle raises for damaged bytes.
    """
    start = stream.tell()
    check_steps(BoundedFile(stream))
    length = stream.tell() - start
    stream.seek(start)
    reader = OutlineReader(io.BytesIO(stream.read(length)))
    found = reader.load()
    check_tree(found)
    return found, reader


class OutlineReader(pickle.Unpickler):
    """Reads a pickle of torch's with outlines for tensors, plain tables, and nothing else.

    ``storages``: the bytes that each needs, by its name in the file.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.storages: Dict[str, int] = {}
        self.total = 0

    def find_class(self, module_name: str, global_name: str) -> Any:
        """What replaces a name in the file. Which names are allowed is decided elsewhere."""
        if module_name.startswith("torch") and global_name.endswith("Storage"):
            return global_name
        known = {
            "torch._utils._rebuild_tensor": self.tensor,
            "torch._utils._rebuild_tensor_v2": self.tensor,
            "torch._utils._rebuild_tensor_v3": self.tensor,
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
            "torch.Size": tuple,
            "collections.OrderedDict": collections.OrderedDict,
            "argparse.Namespace": argparse.Namespace,
            "_codecs.encode": encoded,
            "builtins.set": set,
            "__builtin__.set": set,
        }
        return known.get(f"{module_name}.{global_name}", _Opaque)

    def persistent_load(self, found: Any) -> _Storage:
        """A storage: ("storage", type, name in the file, device, number of items, …)."""
        _, kind, key, _, count, *_ = found
        if type(count) is not int or count < 0:
            raise Refused(DAMAGED)
        item_size = _ITEM_SIZES.get(kind, 1)
        self.storages[key] = max(count * item_size, self.storages.get(key, 0))
        return _Storage(count, item_size)

    def tensor(
        self, storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any
    ) -> TensorOutline:
        """The outline of a tensor that a storage holds."""
        count, last = 1, offset
        for items, step in zip(size, stride, strict=True):
            if min(items, step, offset) < 0:
                raise Refused(DAMAGED)
            count, last = count * items, last + (items - 1) * step
        if count and last >= storage.count:
            raise Refused(f"{DAMAGED} (a tensor of {tuple(size)} is larger than what is stored)")
        self.total += count * storage.item_size
        return TensorOutline(tuple(size), count * storage.item_size)

    def check_total(self, size: int) -> None:
        """Raise Refused if the tensors are far larger than a file of ``size`` bytes."""
        if self.total > MOST_SHARED * size + MOST_BYTES:
            raise Refused(f"holds {size:,} bytes, but its tensors would take {self.total:,}")
