"""What is asked of a checkpoint before it is used; see integration/test_bad_checkpoints.py."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_plugin.checkpoints import (
    CheckpointError,
    RestrictedUnpickler,
    checkpoint_metadata,
    load_checkpoint,
)


def checkpoint(**parts: Any) -> dict[str, Any]:
    """Return the parts of a checkpoint that fairseq requires."""
    return {
        "model": {"encoder.weight": torch.arange(4.0)},
        "cfg": {"model": {"_name": "vaswani_transformer"}},
        "optimizer_history": [{"num_updates": 1}],
        **parts,
    }


def test_an_archive_that_expands_is_refused(tmp_path: Path) -> None:
    """67 MB of zeros in a few kilobytes: torch does not pack its parts."""
    path = tmp_path / "checkpoint.pt"
    torch.save(checkpoint(), path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/data/9", bytes(1 << 26))
    assert path.stat().st_size < 1 << 20
    for read in (load_checkpoint, checkpoint_metadata):
        with pytest.raises(CheckpointError, match=str(path)):
            read(path)


@pytest.mark.parametrize("old_format", [False, True])
def test_metadata_is_read_from_a_checkpoint_whose_tensors_are_damaged(
    old_format: bool, tmp_path: Path
) -> None:
    """Hence its name: for the tensors, the whole file is read and its checksums compared."""
    state = checkpoint(extra_state={"list": [1, 2.5, None, "x"], "table": {"set": {1}}})
    path = tmp_path / "checkpoint.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not old_format)
    content = bytearray(path.read_bytes())
    content[content.rindex(torch.arange(4.0).numpy().tobytes()) + 7] ^= 1
    path.write_bytes(content)
    metadata = checkpoint_metadata(path)
    assert metadata["extra_state"] == state["extra_state"] and metadata["cfg"] == state["cfg"]
    if not old_format:
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(path)


def test_the_unpickler_of_the_official_stack_finds_no_other_names() -> None:
    """torch 2.6 and later has its own; this one is tested with every torch."""
    with pytest.raises(pickle.UnpicklingError, match="system is not allowed"):
        RestrictedUnpickler(io.BytesIO(pickle.dumps(os.system))).load()
