"""Every workaround for a version of fairseq, torch or numpy: what breaks, since when, until when.

"Official" is fairseq 0.12.2 (torch 2.2, numpy 1.23), "modern" is fairseq-fixed 0.12.3.1 (torch 2.6
and later, numpy 2). ``apply`` sets all of them once; nothing here imports a model. One file a
subject, each with its own ``apply``:

    loading.py         reading checkpoints        saving.py        writing them
    resuming.py        going on with a training   dictionaries.py  that they are the same
    data.py            damaged text               batches.py       what goes into a batch
    divergence.py      NaN and infinity           decoding.py      options of beam search
    generation_options.py  options of decoding that cannot work, or are forgotten
    refusals.py        one sentence where fairseq has a stack trace, or trains something else
    stale_warnings.py  what newer libraries say of fairseq
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
    """Set every workaround, once per process; a second call changes nothing.

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
