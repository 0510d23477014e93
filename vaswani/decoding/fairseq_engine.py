"""Searches with the generator that a fairseq task builds, in this process or in several.

Those are forked when the model is ready: they start in milliseconds and share its weights. Each
batch is computed by one thread, whichever process takes it, so the results are those of a single
process, to the last digit.
"""

import contextlib
import threading
from typing import Any, Callable, Dict, Generator, Iterator, List, Optional, Sequence

from vaswani.common.errors import UserError
from vaswani.common.processes import Pool, limit_workers
from vaswani.decoding.alignment import attended_subwords
from vaswani.decoding.engine import Batch, BatchHypotheses, Search, TokenHypothesis, ignore
from vaswani.model_folder.search_options import CPU_BATCH, GPU_BATCH, SearchOptions

#: The longest batches go first, so that no process idles at the end, but only among this many: the
#: results are kept until those of the shortest, which are wanted first, are there.
BATCHES_AT_A_TIME = 500
ADVICE = "give fewer --workers or a smaller --max-tokens"


def search_processes(requested: Optional[int], on_cpu: bool) -> int:
    """How many processes may translate: as requested, or one per thread that torch would use.

    torch uses the physical cores available to this process, or ``OMP_NUM_THREADS``.

    Raises:
        UserError: several are requested on a GPU.
    """
    import torch

    if on_cpu:
        return torch.get_num_threads() if requested is None else limit_workers(requested)
    if requested is not None and requested > 1:
        raise UserError(
            f"--workers {requested} is for CPUs: on a GPU one process translates; leave it out, or "
            "hide the GPU (CUDA_VISIBLE_DEVICES=)"
        )
    return 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """While the block runs, torch computes in one thread.

    More would change the last digits of sums, and would hang in a forked process.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FairseqEngine:
    """A task with its models, one or an ensemble.

    Args:
        task: builds the generator; its dictionaries are the vocabularies
        models: in evaluation mode, prepared for decoding, on their device; they belong to the
            engine, which packs their weights, so nothing may write to these any more
        name: of the file or folder that they are from, for messages
        processes: the most that search, one thread each; None: only this process searches, with
            torch's threads, as suits a program that uses this as a library
        sample: a batch in fairseq's form; by default made from the token ids of a :class:`Batch`
    """

    #: fairseq's generator, of the search that was made last
    generator: Any = None

    def __init__(
        self,
        task: Any,
        models: Sequence[Any],
        name: str,
        processes: Optional[int] = None,
        sample: Optional[Callable[[Any], Dict[str, Any]]] = None,
    ) -> None:
        from vaswani_transformer.fast.linear import pack_weights

        self.task, self.models = task, list(models)
        for model in self.models:
            pack_weights(model)
        self.name, self.processes = name, processes
        self.sample = sample or self.sample_of_ids
        self.lock = threading.Lock()  # a generator sets its beam size in the model

    @property
    def model(self) -> Any:
        """The only model, or the first."""
        return self.models[0]

    @property
    def source(self) -> Any:
        """As :attr:`Engine.source`."""
        return self.task.source_dictionary

    @property
    def target(self) -> Any:
        """As :attr:`Engine.target`."""
        return self.task.target_dictionary

    @property
    def longest_source(self) -> int:
        """As :attr:`Engine.longest_source`."""
        return int(self.task.cfg.max_source_positions)

    @property
    def device(self) -> Any:
        """The torch device that the model is on."""
        return next(self.model.parameters()).device

    @property
    def on_cpu(self) -> bool:
        """As :attr:`Engine.on_cpu`."""
        return bool(self.device.type == "cpu")

    @property
    def batch_tokens(self) -> int:
        """As :attr:`Engine.batch_tokens`."""
        return CPU_BATCH if self.on_cpu else GPU_BATCH

    def sample_of_ids(self, batch: Batch) -> Dict[str, Any]:
        """A batch in fairseq's form: the source padded on the left, int64 [B, S]."""
        import torch
        from fairseq.data.data_utils import collate_tokens

        rows = [torch.tensor(ids) for ids in batch.ids]
        return {
            "id": torch.tensor(batch.places),
            "net_input": {
                "src_tokens": collate_tokens(rows, self.source.pad(), left_pad=True).to(
                    self.device
                ),
                "src_lengths": torch.tensor([len(row) for row in rows], device=self.device),
            },
        }

    def searcher(self, options: SearchOptions) -> Search:
        """As :meth:`Engine.searcher`."""
        search = self.batch_searcher(options)

        def search_all(
            batches: Sequence[Any], progress: Callable[[int], Any] = ignore
        ) -> Generator[BatchHypotheses, None, None]:
            return self.in_processes(search, batches, progress)

        return search_all

    def batch_searcher(self, options: SearchOptions) -> Callable[[Any], BatchHypotheses]:
        """A function that searches one batch, in this process."""
        import torch

        generation = options.generation()
        if hasattr(self.task.cfg, "length_penalty"):
            self.task.cfg.length_penalty = options.length_penalty
        no_language_model = {"lm_model": None, "lm_weight": 0.0}  # as fairseq-generate says it
        generator = self.task.build_generator(
            self.models, generation, extra_gen_cls_kwargs=no_language_model
        )
        self.generator = generator

        def search(batch: Any) -> BatchHypotheses:
            sample = self.sample(batch)
            with seeded(options, sample), torch.no_grad():
                try:
                    hypotheses = self.task.inference_step(generator, self.models, sample)
                except FloatingPointError as error:  # the plugin's, and written for the user
                    raise UserError(f"{self.name}: {error}") from None
            if not options.needs_attention:
                return [[hypothesis_of(one) for one in best] for best in hypotheses]
            attended = attended_subwords(self.model, sample, hypotheses)
            return [
                list(map(hypothesis_of, *rows)) for rows in zip(hypotheses, attended, strict=True)
            ]

        return search

    def in_processes(
        self,
        search: Callable[[Any], BatchHypotheses],
        batches: Sequence[Any],
        progress: Callable[[int], Any],
    ) -> Generator[BatchHypotheses, None, None]:
        """The results of a search for each batch, in order."""

        def arrived(result: BatchHypotheses) -> None:
            progress(len(result))

        if self.processes is None:
            for batch in batches:
                result = search(batch)
                arrived(result)
                yield result
            return
        count = max(1, min(self.processes, len(batches)))
        with (
            one_thread() if self.on_cpu else contextlib.nullcontext(),
            Pool(lambda: lambda n: search(batches[n]), count, "fork", ADVICE, arrived) as pool,
        ):
            for first in range(0, len(batches), BATCHES_AT_A_TIME):
                numbers = range(first, min(first + BATCHES_AT_A_TIME, len(batches)))
                results = list(pool.in_order(reversed(numbers), ahead=len(numbers)))
                yield from reversed(results)


def hypothesis_of(
    hypothesis: Dict[str, Any], attended: Optional[List[int]] = None
) -> TokenHypothesis:
    """A hypothesis, from fairseq's form, in Python's numbers, which processes exchange fast."""
    return TokenHypothesis(
        tokens=hypothesis["tokens"].tolist(),
        score=float(hypothesis["score"]),
        token_scores=hypothesis["positional_scores"].tolist(),
        attended=attended,
    )


@contextlib.contextmanager
def seeded(options: SearchOptions, sample: Dict[str, Any]) -> Iterator[None]:
    """While a batch is searched, make random numbers depend only on the seed and the batch."""
    if not options.sampling:
        yield
        return
    import torch

    source = sample["net_input"]["src_tokens"]
    devices = [source.device] if source.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(options.seed * 1_000_003 + int(sample["id"].min()))
        yield
