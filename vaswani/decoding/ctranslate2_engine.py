"""Searches with a model that was exported to CTranslate2, in several threads.

Neither torch nor fairseq is needed or imported.
"""

import contextlib
import json
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any

from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.processes import limit_workers
from vaswani.decoding.engine import (
    Batch,
    BatchHypotheses,
    Engine,
    Progress,
    TokenHypothesis,
    ignore,
    most_tokens,
)
from vaswani.folders.exported_model import ExportedModel
from vaswani.folders.search_options import EXPORT_CPU_BATCH, GPU_BATCH, TranslationOptions
from vaswani_transformer.vocabulary import SPECIAL, Vocabulary


class CTranslate2Engine(Engine):
    """A model in CTranslate2. ``workers`` threads translate a batch each.

    Args:
        folder: read by :meth:`vaswani.folders.exported_model.ExportedModel.read`
        device: ``cpu``, ``cuda`` or ``cuda:1``; by default a GPU if there is one
        workers: threads on a CPU (default: one per core)
    """

    def __init__(
        self, folder: ExportedModel, device: str | None = None, workers: int | None = None
    ) -> None:
        self.lock = contextlib.nullcontext()  # its threads may serve several callers
        self.source, self.target = vocabularies(folder)
        self.longest_source = folder.limits.source
        self.longest_target = folder.limits.target
        self.model = load(folder, device, threads(workers))
        self.on_cpu = self.model.device == "cpu"
        self.batch_tokens = EXPORT_CPU_BATCH if self.on_cpu else GPU_BATCH

    def subwords(self, batch: Batch) -> list[list[str]]:
        """Return a batch in CTranslate2's form: without ends of sentences, which it adds."""
        return [[self.source[number] for number in ids[:-1]] for ids in batch.ids]

    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """Return the log-probabilities of translations, as :meth:`Engine.log_probabilities`."""
        scored = self.model.score_batch(self.subwords(batch), targets, max_input_length=0)
        return [list(result.log_probs) for result in scored]

    def prepare_search(self, options: TranslationOptions) -> TranslationOptions:
        """Check the options, and reduce the beam to the vocabulary; see ``Engine``."""
        check_supported(options)
        options.check()
        return options.within_vocabulary(len(self.target))

    def search(
        self, batches: Sequence[Batch], options: TranslationOptions, progress: Progress = ignore
    ) -> Generator[BatchHypotheses, None, None]:
        """Search all batches at once, as ``Engine.search``, the longest first."""
        options = self.prepare_search(options)
        running = [self.start(batch, options) for batch in reversed(batches)]
        results = []
        for wait in running:
            results.append(wait())
            progress(len(results[-1]))
        yield from reversed(results)

    def start(self, batch: Batch, options: TranslationOptions) -> Callable[[], BatchHypotheses]:
        """Start translating a batch, and return a function that waits for the hypotheses."""
        most = most_tokens(options, max(map(len, batch.ids)), self.longest_target)
        results = self.model.translate_batch(
            self.subwords(batch),
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.nbest,
            length_penalty=options.lenpen,
            max_input_length=0,
            max_decoding_length=most - 1,  # without the end
            min_decoding_length=options.min_len,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            return_scores=True,
        )

        def wait() -> BatchHypotheses:
            return [
                [
                    TokenHypothesis([self.target.index(subword) for subword in subwords], score, [])
                    for subwords, score in zip(result.hypotheses, result.scores, strict=True)
                ]
                for result in (pending.result() for pending in results)
            ]

        return wait


def check_supported(options: TranslationOptions) -> None:
    """Raise UserError for a search that CTranslate2 lacks."""
    lacking = {
        "--length-penalty gnmt": options.length_penalty == "gnmt"
        and "it divides by a power of the length alone; --lenpen is the power",
        "--temperature": options.temperature != 1 and "its beam search has none",
        "--unkpen": options.unkpen and "it has no penalty for unknown words",
        "--print-alignment": options.print_alignment and "translate with the packed model",
        "--replace-unk": options.replace_unk and "translate with the packed model",
    }
    for name, reason in lacking.items():
        if reason:
            raise UserError(f"{name} is unavailable for a model exported to CTranslate2: {reason}")


def threads(requested: int | None) -> int:
    """Return how many threads translate: as requested, or OMP_NUM_THREADS, or one per core."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if requested is not None:
        return limit_workers(max(1, requested))  # it would wait for ever
    return int(setting) if setting.isdigit() and int(setting) else cores()


def load(folder: ExportedModel, device: str | None, workers: int) -> Any:
    """Load a folder as CTranslate2's translator."""
    import ctranslate2

    if device is None:
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    kind, _, number = device.partition(":")
    count = {"cpu": 1, "cuda": ctranslate2.get_cuda_device_count()}.get(kind, 0)
    index = int(number) if number.isdecimal() else 0 if number == "" else -1
    if not 0 <= index < count:
        raise UserError(
            f"there is no device {device!r} here: CTranslate2 takes 'cpu', and, on a machine with "
            "NVIDIA GPUs, 'cuda' or 'cuda:1'"
        )
    return ctranslate2.Translator(
        str(folder.path),
        device=kind,
        device_index=index,
        inter_threads=workers if kind == "cpu" else 1,
        intra_threads=1 if kind == "cpu" else 0,
    )


def vocabularies(folder: ExportedModel) -> list[Vocabulary]:
    """Return the vocabularies of source and target."""
    per_side = []
    for side in ("source", "target"):
        paths = [folder.path / f"{name}_vocabulary.json" for name in (side, "shared")]
        path = next(path for path in paths if path.name in folder.sums)
        types = json.loads(path.read_text(encoding="utf-8"))  # the special ones first
        per_side.append(Vocabulary(types[len(SPECIAL) :]))
    return per_side
