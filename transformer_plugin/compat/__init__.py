"""Every workaround for a version of fairseq, torch or numpy: the failure, and the versions.

"Official" is fairseq 0.12.2 (torch 2.2, numpy 1.23), "modern" is fairseq-fixed 0.12.3.1 (torch 2.6
and later, numpy 2). Importing this package replaces the attributes of fairseq that do not work,
each by ``@replaces`` (replacing.py) in the file of its subject; what protects a training is
replaced when our task begins one, or ``vaswani train``. Nothing here imports a model:

    loading.py         reading checkpoints        saving.py         writing checkpoints
    data.py            binarising, batches        resuming.py       resuming training
    models.py          fairseq's own models       divergence.py     reports a diverged training
    dictionaries.py    compares dictionaries with the checkpoint's
    training_text.py   compares the training text with the checkpoint's
    translation_task.py    additions of our task to fairseq's
    commands.py        settings of fairseq's commands
    scope.py           finds out whether a model is the plugin's
    stale_warnings.py  warnings about fairseq from newer libraries
"""

from . import data, loading, models, resuming, saving  # noqa: F401  (each replaces what it names)
from .stale_warnings import quiet  # noqa: F401
