"""The Transformer of "Attention Is All You Need" for fairseq: load with ``--user-dir``.

Importing this package registers its parts with fairseq and makes fairseq's loading safe.

The paper, in the order in which to read it:

    config.py           every option, its default, and the paper's symbol for it
    attention.py        scaled dot-product and multi-head attention (3.2)
    embedding.py        embeddings and positions (3.4, 3.5)
    layers.py           feed-forward, residual and norm, the two layers (3.1, 3.3)
    encoder.py          the stacks (3.1); model.py registers what they make up, with the presets
    decoder.py
    model.py
    initialisation.py   where the weights start
    loss.py             label smoothing (5.4); criterion.py is the same as fairseq calls it
    criterion.py
    lr_schedule.py      equation 3
    optimizer.py        Adam (5.3)
    search/             beam search (6.1)

fairseq's side:

    task.py             the task; batch_size.py measures how many tokens an update sees (5.1)
    batch_size.py
    cache.py            what the decoder keeps between the steps of a search
    precision.py        --precision bf16
    inference.py        what is done to a model once, before it decodes
    checkpoints/        reading checkpoints without trusting them
    compat/             every workaround for a version of fairseq, torch or numpy

What only speed needs, each file equal to a readable form: fast/
"""

# each registers its part
from . import compat, criterion, lr_schedule, model, optimizer, task  # noqa: F401

compat.apply()
