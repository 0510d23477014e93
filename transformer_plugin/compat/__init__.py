"""Every workaround for a version of fairseq, torch or numpy: what breaks, from when until when.

"Official" is fairseq 0.12.2 (torch 2.2, numpy 1.23), "modern" is fairseq-fixed 0.12.3.1 (torch 2.6
and later, numpy 2). ``apply`` installs all of them once; nothing here imports a model. There is one
file per subject, each with its own ``apply``:

    loading.py         reading checkpoints        saving.py        writing checkpoints
    resuming.py        resuming training          dictionaries.py  refusing wrong ones
    data.py            damaged text               batches.py       what goes into a batch
    divergence.py      NaN and infinity           decoding.py      options of beam search
    generation_options.py  decoding options that cannot work, or are ignored
    refusals.py        one sentence where fairseq has a stack trace, or trains something else
    stale_warnings.py  warnings about fairseq from newer libraries
    scope.py           whose task or model it is: other people's are left to fairseq
"""

import sys

from . import (
    batches,
    data,
    decoding,
    dictionaries,
    divergence,
    generation_options,
    loading,
    refusals,
    resuming,
    saving,
)
from .stale_warnings import quiet

__all__ = ["apply", "quiet"]

_applied = False


def apply() -> None:
    """Install every workaround, once per process; a second call changes nothing.

    Raises:
        SystemExit: the command line has a flag that cannot work (status 1, one sentence).
    """
    global _applied
    refusals.refuse_bf16(sys.argv)
    refusals.refuse_length_penalty(sys.argv)
    if _applied:
        return
    _applied = True
    reading = (loading, dictionaries, data, batches)
    training = (saving, resuming, divergence)
    for part in (*reading, *training, decoding, generation_options, refusals):
        part.apply()
