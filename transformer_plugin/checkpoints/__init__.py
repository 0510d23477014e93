"""Reading checkpoints without trusting them: unpickling runs whatever a file names.

    reading.py     reads one: data only, whole, unaltered and of the right kind
    parameters.py  whether its parameters fit a model

fairseq writes them; see ../compat/saving.py.
"""

from .reading import (
    TORCH_RESTRICTS_ITSELF,
    CheckpointError,
    add_safe_globals,
    checkpoint_metadata,
    load_checkpoint,
    read_checkpoint,
    restricted_pickle,
)

__all__ = [
    "TORCH_RESTRICTS_ITSELF",
    "CheckpointError",
    "add_safe_globals",
    "checkpoint_metadata",
    "load_checkpoint",
    "read_checkpoint",
    "restricted_pickle",
]
