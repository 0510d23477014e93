"""The Transformer of "Attention Is All You Need" for fairseq: load with ``--user-dir``.

The paper itself is in vaswani_transformer/. Importing this package registers it with fairseq, and
replaces those attributes of fairseq that transformer_plugin/README.md lists.

    config.py           every option, its default, and the paper's symbol for it
    checks.py           refuses options that cannot work
    encoder.py          the encoder as fairseq calls it
    decoder.py          the decoder as fairseq calls it
    model.py            the whole model and its presets, registered with fairseq
    compiled.py         --compile
    retained_dropout.py --retain-dropout
    criterion.py        the loss (5.4)
    lr_schedule.py      equation 3
    optimizer.py        Adam (5.3)
    generator.py        beam search (6.1)
    task.py             the task
    batch_size.py       measures the number of tokens per update (5.1)
    valid_bleu.py       shows translations and BLEU at each validation
    checkpoints.py      reading checkpoints without trusting them
    compat/             every workaround for a particular version of fairseq, torch or numpy
"""

# importing each of these registers its part
from . import compat, criterion, lr_schedule, model, optimizer, task  # noqa: F401
