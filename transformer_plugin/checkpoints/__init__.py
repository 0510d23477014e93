"""Reading checkpoints without trusting them: unpickling runs whatever a file names.

    reading.py        reads one: data only, whole, unaltered and of the right kind
    outline.py        what one holds, without its tensors, within bounds on memory and time
    pickle_bounds.py  what its pickle may ask for
    parameters.py     whether its parameters fit a model

fairseq writes them; see ../compat/saving.py.
"""

from .reading import (
    TORCH_RESTRICTS_ITSELF,
    CheckpointError,
    check_is_file,
    load_checkpoint,
    outline_of,
    read_checkpoint,
    restricted_pickle,
)

__all__ = [
    "TORCH_RESTRICTS_ITSELF",
    "CheckpointError",
    "check_is_file",
    "load_checkpoint",
    "outline_of",
    "read_checkpoint",
    "restricted_pickle",
]
