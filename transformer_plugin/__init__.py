"""The Transformer of "Attention Is All You Need" for fairseq: load with ``--user-dir``.

Importing this package registers its parts with fairseq and makes fairseq's loading safe; see each
file for one part:

    fairseq-train → task.py → model.py → embedding.py → encoder.py → decoder.py
                               (layers.py, attention.py)
                  → criterion.py, loss.py → optimizer.py with lr_schedule.py → checkpoints
    fairseq-generate → task.py → generator.py → beam_search.py → decoder.py (cache.py)
    config.py     every option, its default, and the paper's symbol for it
    precision.py  --precision bf16
    initialisation.py  where the weights start;  inference.py  what is done once before decoding
    checkpoints.py  reading checkpoints without trusting them; outline.py and pickle_bounds.py:
                    what one holds, in bounds; parameters.py: whether they fit a model
    compat/       every workaround for a version of fairseq, torch or numpy
"""

# each registers its part
from . import compat, criterion, lr_schedule, model, optimizer, task  # noqa: F401

compat.apply()
