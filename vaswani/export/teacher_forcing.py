"""Log-probabilities of given translations: what a model says where no search decides."""

from typing import Any, Dict, List, Sequence

from vaswani.decoding.translator import batches
from vaswani.model_folder.search_options import CPU_BATCH


def log_probabilities(
    translator: Any, sentences: Sequence[str], targets: Sequence[List[str]]
) -> List[List[float]]:
    """For each sentence, the log-probability of each subword of its translation, and of its end.

    Args:
        translator: of a packed model, or of an export
        sentences: raw text; none is blank or too long
        targets: a translation of each, as subwords without an end
    """
    from vaswani.decoding.workers import one_thread

    of_batch = of_ctranslate2 if hasattr(translator.model, "score_batch") else of_torch
    sources = [translator.read(line) for line in sentences]
    found: List[List[float]] = [[] for _ in sources]
    with one_thread():
        for numbers in batches(sources, CPU_BATCH):
            sample = translator.sample(sources, numbers)
            rows = of_batch(translator, sample, [targets[number] for number in numbers])
            for number, row in zip(numbers, rows, strict=True):
                found[number] = row
    return found


def of_ctranslate2(
    translator: Any, sample: Dict[str, Any], targets: List[List[str]]
) -> List[List[float]]:
    """Those of a batch, by CTranslate2."""
    scored = translator.model.score_batch(sample["subwords"], targets, max_input_length=0)
    return [list(result.log_probs) for result in scored]


def of_torch(
    translator: Any, sample: Dict[str, Any], targets: List[List[str]]
) -> List[List[float]]:
    """Those of a batch, by our model or fairseq's."""
    import torch
    from fairseq.data.data_utils import collate_tokens

    words = translator.task.target_dictionary
    rows = [torch.tensor([*map(words.index, target), words.eos()]) for target in targets]
    expected = collate_tokens(rows, words.pad())
    previous = collate_tokens([row.roll(1) for row in rows], words.pad())  # begins with the end
    with torch.no_grad():
        logits, _ = translator.model(**sample["net_input"], prev_output_tokens=previous)
        found = logits.float().log_softmax(-1).gather(-1, expected[..., None])[..., 0]
    return [one[: len(row)].tolist() for one, row in zip(found, rows, strict=True)]
