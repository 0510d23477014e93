"""Engines search for translations: they get batches of token ids and give hypotheses.

There are three: a packed model in plain torch (``torch_engine.py``), the generator that a fairseq
task builds, for runs (``fairseq_engine.py``), and CTranslate2 (``ctranslate2_engine.py``). A
fourth, in ``vaswani/export/to_huggingface.py``, serves to compare an export with its model.

Log-probabilities and scores are in nats: logarithms to base e. ``generate`` prints them to base 2,
as fairseq does.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from vaswani.common.processes import limit_workers, map_ordered
from vaswani.model_folder.search_options import CPU_BATCH, GPU_BATCH, SearchOptions


class Batch(NamedTuple):
    """Sentences that are translated together."""

    #: their places in the list that is translated
    places: list[int]
    #: the token ids of each, with the end of sentence
    ids: list[list[int]]


@dataclass(frozen=True)
class TokenHypothesis:
    """A hypothesis as token ids [T]."""

    #: the end of sentence may be left out
    tokens: list[int]
    #: log-probability in nats, divided by the length penalty
    score: float
    #: log-probability of each token [T] in nats; empty if the engine does not give it
    token_scores: list[float]
    #: for each token, the place of the source subword that it attends to most [T]; if requested
    attended: list[int] | None = None


BatchHypotheses = list[list[TokenHypothesis]]
"""The hypotheses of each sentence of a batch, best first."""


Search = Callable[..., Generator[BatchHypotheses, None, None]]
"""A search with fixed options: ``search(batches, progress)`` gives the hypotheses of each batch, in
the order of the batches. It is quickest if they are sorted by length, the shortest first.
``progress`` is called with the number of sentences translated since its last call."""


class Engine:
    """A model that is ready to search for translations."""

    #: a thread holds it while it makes a search and while that runs
    lock: contextlib.AbstractContextManager[Any]
    #: the symbols of each side by their ids, as fairseq's Dictionary has them
    source: Any
    target: Any
    #: the most tokens that a source, and a target, may have, with the end of sentence
    longest_source: int
    longest_target: int
    on_cpu: bool
    #: tokens per batch that suit the device
    batch_tokens: int

    #: makes a search with these options; raises UserError or ConfigError for an option that is
    #: invalid, or that this engine does not have
    searcher: Callable[[SearchOptions], Search]
    #: for each sentence, the log-probability in nats of each subword of a translation, and of its
    #: end
    log_probabilities: Callable[[Batch, list[list[str]]], list[list[float]]]


def ignore(sentences: int) -> None:
    """Report no progress."""


def most_tokens(options: SearchOptions, source: int, longest: int) -> int:
    """The most tokens that a translation may have, its end included.

    Args:
        options: of the search
        source: tokens of the longest source in the batch, its end included
        longest: the most tokens that the decoder takes
    """
    return min(int(options.max_len_a * source + options.max_len_b), longest - 1) + 1


# ---- with torch: one process, or several ---------------------------------------------------

#: So many batches are given out at a time, the longest first, so that no process is idle at the
#: end. The results of the shortest are wanted first, and those of the others wait for them.
BATCHES_AT_A_TIME = 500
ADVICE = "give fewer --workers or a smaller --max-tokens"


def search_processes(requested: int | None, on_cpu: bool) -> int:
    """How many processes may translate: as many as requested, or as torch would use threads.

    Torch uses one for each physical core available to this process, or ``OMP_NUM_THREADS``. On a
    GPU there is one process.
    """
    import torch

    if not on_cpu:
        return 1
    return torch.get_num_threads() if requested is None else limit_workers(requested)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """While the block runs, torch computes in one thread.

    With more, sums would have other last digits, and a forked process would hang.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ProcessEngine(Engine):
    """A model that searches batches with torch, in one process or in several forked from it.

    They are forked when the model is ready: so they start in milliseconds and share its weights.
    Each batch is computed by one thread, whichever process takes it, so the results are those of a
    single process, to the last digit.

    Args:
        model: in evaluation mode, prepared for decoding, on its device; it belongs to the engine,
            so nothing may write to its weights any more
        name: of the file or folder that the model is from, for messages
    """

    #: how many processes search, with one thread each; None: this process alone, with torch's
    #: threads, as suits a program that uses this as a library
    processes: int | None = None
    #: a subclass gives: search options → a function that searches one batch, in this process
    batch_searcher: Callable[[SearchOptions], Callable[[Any], BatchHypotheses]]
    #: a subclass gives: a batch and the decoder's input [B, T] → logits [B, T, V]
    logits: Callable[[Batch, Any], Any]

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name = model, name
        self.lock = threading.Lock()
        self.device = next(model.parameters()).device
        self.on_cpu = self.device.type == "cpu"
        self.batch_tokens = CPU_BATCH if self.on_cpu else GPU_BATCH

    def source_of(self, batch: Batch) -> Any:
        """The source of a batch, padded on the left, int64 [B, S]."""
        import torch

        from vaswani_transformer.vocabulary import PAD

        longest = max(map(len, batch.ids))
        rows = [[PAD] * (longest - len(ids)) + ids for ids in batch.ids]
        return torch.tensor(rows, device=self.device)

    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """As ``Engine.log_probabilities``."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        from vaswani_transformer.vocabulary import EOS, PAD

        rows = [torch.tensor([*map(self.target.index, target), EOS]) for target in targets]
        expected = pad_sequence(rows, batch_first=True, padding_value=PAD)
        begun = [row.roll(1) for row in rows]  # with the end of sentence
        previous = pad_sequence(begun, batch_first=True, padding_value=PAD)
        with torch.no_grad():
            logits = self.logits(batch, previous)
            log_probs = logits.float().log_softmax(-1).gather(-1, expected[..., None])[..., 0]
        return [of_row[: len(row)].tolist() for of_row, row in zip(log_probs, rows, strict=True)]

    def searcher(self, options: SearchOptions) -> Search:
        """As ``Engine.searcher``."""
        search = self.batch_searcher(options)

        def search_all(
            batches: Sequence[Any], progress: Callable[[int], Any] = ignore
        ) -> Generator[BatchHypotheses, None, None]:
            if self.processes is not None:
                yield from self.in_processes(search, batches, progress)
                return
            for batch in batches:
                result = search(batch)
                progress(len(result))
                yield result

        return search_all

    def in_processes(
        self,
        search: Callable[[Any], BatchHypotheses],
        batches: Sequence[Any],
        progress: Callable[[int], Any],
    ) -> Generator[BatchHypotheses, None, None]:
        """The results of a search for each batch, in order."""
        groups = [
            batches[at : at + BATCHES_AT_A_TIME] for at in range(0, len(batches), BATCHES_AT_A_TIME)
        ]
        longest_first = [batch for group in groups for batch in reversed(group)]
        count = max(1, min(self.processes or 1, len(batches)))
        with one_thread() if self.on_cpu else contextlib.nullcontext():
            found = map_ordered(lambda: search, longest_first, count, "fork", ADVICE)
            with contextlib.closing(found):
                for group in groups:
                    results = []
                    for result in islice(found, len(group)):
                        progress(len(result))
                        results.append(result)
                    yield from reversed(results)
