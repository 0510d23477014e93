"""The Transformer of "Attention Is All You Need" for fairseq: load with ``--user-dir``.

Importing this package registers its parts with fairseq, and replaces those attributes of fairseq
that docs/coming-from-fairseq.md lists.

The paper, in the order in which to read it:

    config.py           every option, its default, and the paper's symbol for it
    attention.py        scaled dot-product and multi-head attention (3.2)
    embedding.py        embeddings and positions (3.4, 3.5)
    layers.py           feed-forward, residual and norm, the two layers (3.1, 3.3)
    encoder.py          the encoder stack (3.1)
    decoder.py          the decoder stack (3.1)
    model.py            the whole model and its presets, registered with fairseq
    initialisation.py   the initial weights
    loss.py             label smoothing (5.4), the formula
    criterion.py        the same loss as fairseq calls it
    lr_schedule.py      equation 3
    optimizer.py        Adam (5.3)
    search/             beam search (6.1)

fairseq's side:

    task.py             the task
    batch_size.py       measures how many tokens an update sees (5.1)
    valid_bleu.py       shows translations and BLEU at each validation
    cache.py            what the decoder keeps between the steps of a search
    precision.py        --precision bf16
    inference.py        prepares a trained model for decoding, once
    checkpoints/        reading checkpoints without trusting them
    compat/             every workaround for a particular version of fairseq, torch or numpy

Quicker forms, each equivalent to a readable one; and dropout (5.4), which is nowhere else: fast/
"""

# importing each of these registers its part
from . import compat, criterion, lr_schedule, model, optimizer, task  # noqa: F401
