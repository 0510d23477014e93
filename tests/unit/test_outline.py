"""Checkpoints that ask for too much: refused at once, in little memory, whatever reads them."""

import io
import pickle
import resource
import struct
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
import torch
from fairseq import checkpoint_utils

from transformer_plugin.checkpoints import (
    CheckpointError,
    load_checkpoint,
    outline,
    outline_of,
    pickle_bounds,
)

MOST_SECONDS, MOST_MEGABYTES = 5, 200


def checkpoint(**parts: Any) -> Dict[str, Any]:
    """What fairseq asks of a checkpoint."""
    return {
        "model": {"encoder.weight": torch.arange(4.0)},
        "cfg": {"model": {"_name": "vaswani_transformer"}},
        "optimizer_history": [{"num_updates": 1}],
        **parts,
    }


class Claimed:
    """A tensor that is said to have a size, over a storage that is said to have a count."""

    def __init__(self, count: int, size: Any, stride: Any) -> None:
        self.count = count
        self.layout = (0, size, stride, False, {})

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, (Stored(self.count), *self.layout)


class Stored:
    def __init__(self, count: int) -> None:
        self.count = count


def pickled(state: Any) -> bytes:
    """As torch pickles it, with tensors over the part "0" of the file."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, found: Any) -> Any:
            if isinstance(found, Stored):
                return ("storage", torch.FloatStorage, "0", "cpu", found.count)
            return None

    stream = io.BytesIO()
    Pickler(stream, protocol=2).dump(state)
    return stream.getvalue()


def by_hand(inside: bytes) -> bytes:
    """The pickle of a checkpoint whose extra_state is made by the given instructions."""
    start = pickled(checkpoint(model={"encoder.weight": Claimed(4, (4,), (1,))}))
    return start[:-2] + b"X\x0b\x00\x00\x00extra_state" + inside + b"u."


def archive(path: Path, table: bytes, packing: int = zipfile.ZIP_STORED, size: int = 16) -> None:
    """A zip as torch makes it, with one storage."""
    with zipfile.ZipFile(path, "w", packing) as made:
        made.writestr("archive/data.pkl", table)
        made.writestr("archive/version", "3\n")
        made.writestr("archive/data/0", bytes(size))


def old(path: Path, state: Any) -> None:
    """The format before zip: four pickles, the order of the storages, and their bytes."""
    tables = [outline.OLD_MAGIC, 1001, {"little_endian": True}]
    start = b"".join(pickle.dumps(table, protocol=2) for table in tables)
    path.write_bytes(start + pickled(state) + pickle.dumps(["0"], protocol=2) + bytes(24))


def many_parts(path: Path) -> None:
    """300,000 entries in the list of files, all of the same file."""
    name = b"archive/version"
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
    entry = struct.pack(
        "<4s6H3I5H2I",
        *(b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0),
    )
    entries = (entry + name) * 300_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 65535, 65535, len(entries), len(local), 0)
    path.write_bytes(local + entries + end)


def a_part_twice(path: Path) -> None:
    archive(path, pickled(checkpoint(model={"w": Claimed(4, (4,), (1,))})))
    with zipfile.ZipFile(path, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("archive/data/0", bytes(16))


def model(*claimed: Any) -> bytes:
    return pickled(checkpoint(model={"encoder.weight": Claimed(*claimed)}))


def text(content: str) -> bytes:
    """The instruction for a text."""
    return b"X" + struct.pack("<I", len(content.encode())) + content.encode()


DEEP = 100_000
WAYS: Dict[str, Any] = {
    "expands": (
        lambda path: archive(path, model(1 << 24, (4,), (1,)), zipfile.ZIP_DEFLATED, 1 << 26),
        "would expand to 67,",
    ),
    "many parts": (many_parts, "asks for 18,300,000 bytes at once"),
    "a part twice": (a_part_twice, "holds a part twice"),
    "storage larger than its part": (
        lambda path: archive(path, model(1 << 40, (4,), (1,))),
        "a tensor is larger than its part 0",
    ),
    "tensor larger than its storage": (
        lambda path: archive(path, model(4, (1 << 40,), (1,))),
        "larger than what is stored",
    ),
    "negative size": (lambda path: archive(path, model(4, (-1,), (1,))), "cut short or damaged"),
    "one number as a tensor of a million million": (
        lambda path: archive(path, model(4, (1 << 40,), (0,))),
        "its tensors would take 4,398,",
    ),
    "old format, storage larger than the file": (
        lambda path: old(path, checkpoint(model={"w": Claimed(1 << 40, (4,), (1,))})),
        "its tensors are larger than the file",
    ),
    "old format, a long text": (
        lambda path: path.write_bytes(b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + bytes(99)),
        "asks for 1,099,511,627,776 bytes at once",
    ),
    "long table": (
        lambda path: archive(path, by_hand(b"(" + b"N" * (17 << 20) + b"l")),
        "has a table of 17,",
    ),
    "many steps": (
        lambda path: archive(path, by_hand(b"(" + b"N" * 200_000 + b"l")),
        "with more in it than any checkpoint",
    ),
    "room for a thousand million": (
        lambda path: archive(path, by_hand(b"Nr" + struct.pack("<I", 1 << 30))),
        "counts to 1,073,741,824 without need",
    ),
    "lists in lists": (
        lambda path: archive(path, by_hand(b"]" * DEEP + b"a" * (DEEP - 1))),
        "nested more than 100 deep",
    ),
    "tuples in tuples, to be hashed": (
        lambda path: archive(path, by_hand(b"}" + b")" + b"\x85" * DEEP + b"Ns")),
        "nested more than 100 deep",
    ),
    "lists in lists, from below": (
        lambda path: archive(
            path, by_hand(b"(" + b"".join(b"]q%c" % n for n in range(200)) + b"l0" + nest(200))
        ),
        "without end",
    ),
    "each list twice in the next": (
        lambda path: archive(path, by_hand(b"]" + b"q\x01h\x01\x86" * 60)),
        "without end",
    ),
    "a list in itself": (lambda path: archive(path, by_hand(b"]q\x01h\x01a")), "holds itself"),
    "numbers that hash alike": (
        lambda path: archive(path, pickled(checkpoint(extra_state={(2**61 - 1) * 2**30: 1}))),
        "more than 64 bits",
    ),
    "bytes in a slow codec": (
        lambda path: archive(
            path,
            by_hand(b"c_codecs\nencode\n" + text("äö" * 500_000) + text("punycode") + b"\x86R"),
        ),
        "holds bytes as punycode",
    ),
    "a million layers": (
        lambda path: torch.save(
            checkpoint(
                cfg={"model": {"_name": "vaswani_transformer", "encoder_layers": 10**6}},
                model={"encoder.layers.0.feed_forward.fc1.weight": torch.zeros(2, 2)},
            ),
            path,
        ),
        r"configuration says encoder_layers 1,000,000, its parameters 1 \(encoder",
    ),
}


def nest(count: int) -> bytes:
    """Instructions that put each of the remembered lists into the next one."""
    return b"".join(b"h%ch%ca0" % (n, n - 1) for n in range(1, count)) + b"h%c" % (count - 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_bomb_is_refused_at_once(way: str, tmp_path: Path, monkeypatch: Any) -> None:
    make, message = WAYS[way]
    if way == "many steps":  # of which the true number takes seconds
        monkeypatch.setattr(pickle_bounds, "MOST_STEPS", 100_000)
    path = tmp_path / "checkpoint.pt"
    make(path)
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=message) as refused:
        load_checkpoint(path)
    assert time.monotonic() - start < MOST_SECONDS
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < MOST_MEGABYTES * 1024
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)
    if way in ("expands", "old format, a long text", "a million layers"):
        with pytest.raises(CheckpointError, match=message):
            checkpoint_utils.load_checkpoint_to_cpu(str(path))


def test_the_bombs_above_are_built_around_a_checkpoint_that_is_read(tmp_path: Path) -> None:
    """So that they are refused for what they ask, not for being made by hand."""
    path = tmp_path / "checkpoint.pt"
    archive(path, by_hand(b"]q\x01Na"))
    assert load_checkpoint(path)["extra_state"] == [None]
    archive(path, by_hand(b"c_codecs\nencode\n" + text("äö") + text("latin1") + b"\x86R"))
    assert load_checkpoint(path)["extra_state"] == "äö".encode("latin1")
    archive(path, by_hand(b"N"))
    assert load_checkpoint(path)["model"]["encoder.weight"].tolist() == [0.0] * 4
    old(path, checkpoint(model={"w": Claimed(4, (4,), (1,))}))
    assert outline_of(path)["model"]["w"] == outline.TensorOutline((4,), 16)


@pytest.mark.parametrize("old_format", [False, True])
def test_an_outline_has_everything_but_the_numbers(old_format: bool, tmp_path: Path) -> None:
    table = torch.zeros(6, 4)
    state = checkpoint(
        model={"tied": table, "again": table, "half": table.half(), "none": torch.zeros(0, 3)},
        extra_state={"list": [1, 2.5, None, "x"], "table": {"set": {1}, "tuple": (1, (2,))}},
    )
    path = tmp_path / "checkpoint.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not old_format)
    found = outline_of(path)
    assert found["extra_state"] == state["extra_state"] and found["cfg"] == state["cfg"]
    shapes = {name: (part.shape, part.bytes) for name, part in found["model"].items()}
    assert shapes == {
        "tied": ((6, 4), 96),
        "again": ((6, 4), 96),
        "half": ((6, 4), 48),
        "none": ((0, 3), 0),
    }


def test_tables_that_share_parts_are_no_bomb() -> None:
    part = [1, 2]
    pickle_bounds.check_tree({"a": part, "b": [part, part], "c": {"d": part}})


def test_old_formats_are_read_with_a_warning(tmp_path: Path, caplog: Any) -> None:
    """Said once of each file: what a zip's checksums would find."""
    new, before = tmp_path / "new.pt", tmp_path / "before.pt"
    torch.save(checkpoint(), new)
    torch.save(checkpoint(), before, _use_new_zipfile_serialization=False)
    for path in (new, before, before):
        load_checkpoint(path)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert (
        warning.startswith(str(before)) and "damage in its numbers would not be noticed" in warning
    )


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_pipe_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    import os

    path: Optional[Path] = Path("/dev/null")
    if kind == "fifo":
        path = tmp_path / "checkpoint.pt"
        os.mkfifo(path)
    for read in (load_checkpoint, lambda p: checkpoint_utils.load_checkpoint_to_cpu(str(p))):
        with pytest.raises(CheckpointError, match="is not a regular file"):
            read(path)
