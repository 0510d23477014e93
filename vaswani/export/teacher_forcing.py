"""Log-probabilities of given translations: what a model says where no search decides."""

from collections.abc import Sequence
from typing import Any

from vaswani.decoding.ctranslate2_engine import CTranslate2Engine
from vaswani.decoding.engine import Batch, one_thread
from vaswani.decoding.marian_engine import MarianEngine
from vaswani.decoding.translator import Translator, batches_of
from vaswani.model_folder.search_options import CPU_BATCH


def log_probabilities(
    translator: Translator, sentences: Sequence[str], targets: Sequence[list[str]]
) -> list[list[float]]:
    """For each sentence, the log-probability of each subword of its translation, and of its end.

    Args:
        translator: of a packed model, or of an export
        sentences: raw text; none is blank or too long
        targets: a translation of each, as subwords without an end
    """
    engine: Any = translator.engine
    of_batch: Any = of_torch
    if isinstance(engine, CTranslate2Engine):
        of_batch = of_ctranslate2
    elif isinstance(engine, MarianEngine):
        of_batch = MarianEngine.log_probabilities
    sources = [translator.read(line) for line in sentences]
    log_probs: list[list[float]] = [[] for _ in sources]
    with one_thread():
        for batch in batches_of(sources, CPU_BATCH):
            rows = of_batch(engine, batch, [targets[place] for place in batch.places])
            for place, row in zip(batch.places, rows, strict=True):
                log_probs[place] = row
    return log_probs


def of_ctranslate2(
    engine: CTranslate2Engine, batch: Batch, targets: list[list[str]]
) -> list[list[float]]:
    """Those of a batch, by CTranslate2."""
    scored = engine.model.score_batch(engine.subwords(batch), targets, max_input_length=0)
    return [list(result.log_probs) for result in scored]


def of_torch(engine: Any, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
    """Those of a batch, by our model or fairseq's."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from vaswani_transformer.vocabulary import EOS, PAD

    rows = [torch.tensor([*map(engine.target.index, target), EOS]) for target in targets]
    expected = pad_sequence(rows, batch_first=True, padding_value=PAD)
    begun = [row.roll(1) for row in rows]  # with the end of sentence
    previous = pad_sequence(begun, batch_first=True, padding_value=PAD)
    with torch.no_grad():
        logits = engine.logits(batch, previous)
        log_probs = logits.float().log_softmax(-1).gather(-1, expected[..., None])[..., 0]
    return [of_row[: len(row)].tolist() for of_row, row in zip(log_probs, rows, strict=True)]
