"""What the engines share that search with torch: one process, or several forked from it."""

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from vaswani.common.processes import limit_workers, map_ordered
from vaswani.decoding.engine import Batch, BatchHypotheses, Engine, Progress, ignore
from vaswani.folders.search_options import CPU_BATCH, GPU_BATCH, TranslationOptions
from vaswani_transformer.vocabulary import EOS, PAD

#: So many batches are given out at a time, the longest first, so that no process is idle at the
#: end. The results of the shortest are wanted first, and those of the others wait for them.
BATCHES_AT_A_TIME = 500
ADVICE = "give fewer --workers or a smaller --max-tokens"


def search_processes(requested: int | None, on_cpu: bool) -> int:
    """Return how many processes may translate: as many as requested, or as torch would use threads.

    Torch uses one for each physical core available to this process, or ``OMP_NUM_THREADS``. On a
    GPU there is one process.
    """
    if not on_cpu:
        return 1
    return torch.get_num_threads() if requested is None else limit_workers(requested)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread in the block.

    With more threads, sums would differ in their last digits, and a forked process would hang.
    """
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

    def __init__(self, model: nn.Module, name: str) -> None:
        self.model = model
        self.name = name
        self.lock = threading.Lock()
        self.device = next(model.parameters()).device
        self.on_cpu = self.device.type == "cpu"
        self.batch_tokens = CPU_BATCH if self.on_cpu else GPU_BATCH

    @abstractmethod
    def search_batch(self, batch: Batch, options: TranslationOptions) -> BatchHypotheses:
        """Search one batch, in this process, with options from ``prepare``."""

    @abstractmethod
    def logits(self, batch: Batch, previous: Tensor) -> Tensor:
        """Return the model's logits [B, T, V] for a batch and the decoder's input [B, T]."""

    def source_of(self, batch: Batch) -> Tensor:
        """Return the source of a batch, padded on the left, int64 [B, S]."""
        longest = max(map(len, batch.ids))
        rows = [[PAD] * (longest - len(ids)) + ids for ids in batch.ids]
        return torch.tensor(rows, device=self.device)

    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """Return the log-probabilities of translations, as ``Engine.log_probabilities``."""
        rows = [torch.tensor([*map(self.target.index, target), EOS]) for target in targets]
        expected = pad_sequence(rows, batch_first=True, padding_value=PAD)
        begun = [row.roll(1) for row in rows]  # with the end of sentence
        previous = pad_sequence(begun, batch_first=True, padding_value=PAD)
        with torch.no_grad():
            logits = self.logits(batch, previous)
            log_probs = logits.float().log_softmax(-1).gather(-1, expected[..., None])[..., 0]
        return [of_row[: len(row)].tolist() for of_row, row in zip(log_probs, rows, strict=True)]

    def search(
        self, batches: Sequence[Batch], options: TranslationOptions, progress: Progress = ignore
    ) -> Generator[BatchHypotheses, None, None]:
        """Search the batches, as ``Engine.search``, in this process or in forked ones."""
        options = self.prepare_search(options)
        if self.processes is not None:
            yield from self.search_in_processes(batches, options, progress)
            return
        for batch in batches:
            hypotheses = self.search_batch(batch, options)
            progress(len(hypotheses))
            yield hypotheses

    def search_in_processes(
        self, batches: Sequence[Batch], options: TranslationOptions, progress: Progress
    ) -> Generator[BatchHypotheses, None, None]:
        """Search the batches in processes that are forked from this one."""
        groups = [
            batches[at : at + BATCHES_AT_A_TIME] for at in range(0, len(batches), BATCHES_AT_A_TIME)
        ]
        longest_first = [batch for group in groups for batch in reversed(group)]
        count = max(1, min(self.processes or 1, len(batches)))
        search = partial(self.search_batch, options=options)
        with one_thread() if self.on_cpu else contextlib.nullcontext():
            results = map_ordered(lambda: search, longest_first, count, "fork", ADVICE)
            with contextlib.closing(results):
                for group in groups:
                    of_group = []
                    for hypotheses in islice(results, len(group)):
                        progress(len(hypotheses))
                        of_group.append(hypotheses)
                    yield from reversed(of_group)
