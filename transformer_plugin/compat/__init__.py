"""Every workaround for a version of fairseq, torch or numpy: what breaks, and in which versions.

"Official" is fairseq 0.12.2 (torch 2.2, numpy 1.23), "modern" is fairseq-fixed 0.12.3.1 (torch 2.6
and later, numpy 2). Importing this package replaces the attributes of fairseq that do not work,
each by ``@replaces`` (replacing.py) in the file of its subject; what protects a training is
replaced when our task begins one, or ``vaswani train``. Nothing here imports a model:

    loading.py         reading checkpoints        saving.py         writing checkpoints
    data.py            binarising, batches        resuming.py       resuming training
    models.py          fairseq's own              divergence.py     where a training diverges
    dictionaries.py    whether they are the model's
    training_text.py   whether it is the checkpoint's
    translation_task.py    what our task does besides fairseq's
    commands.py        what a process of fairseq's commands gets
    scope.py           whose model it is: other people's are left to fairseq
    stale_warnings.py  warnings about fairseq from newer libraries
"""

from . import data, loading, models, resuming, saving  # noqa: F401  (each replaces what it names)
from .stale_warnings import quiet  # noqa: F401
