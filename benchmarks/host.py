"""Host time: what Python and torch's dispatcher take of one thread, on whatever device.

    python -m benchmarks.run host           some two minutes

A fast GPU waits for its host. Models of 6+6 layers of width 16 compute next to nothing, so that an
update by fairseq's trainer and a step of beam search take little but host time, on any CPU. In
training our modules take the branches that they take on a GPU (:func:`take_gpu_branches`); a GPU's
driver, which launches the kernels, is not measured.

The systems take turns, on the same batches, each in a process of its own with one thread. Times
are that thread's, which other work on the machine does not count in.
"""

import copy
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.decoding import BEAM, configuration
from benchmarks.machine import precisions
from benchmarks.systems import TRAINED, precision_of, size_flags
from benchmarks.table import Row, median_and_range
from benchmarks.train import Training
from benchmarks.worker import Worker, log_progress

WITHOUT = "ours, without lean updates and steps"
"""Ours as it would be with fairseq's walks over the modules, and with steps layer by layer."""
NAMES = ("fairseq", "ours", WITHOUT, "fairseq, our bf16 autocast", "ours, bf16")
"""The systems that are trained, of ``TRAINED``; those in fp32 are also searched with."""
REFERENCE = "fairseq"
WORDS = 290
SENTENCES = 400
BATCH = ["--batch-size", "2", "--lr", "5e-4", "--num-workers", "0"]
STEPS = 40
"""Of each search, which may not end earlier."""
SOURCE_LENGTH = 12


def write_random_text(folder: Path) -> None:
    """Write a data-bin of sentences of 4 to 8 random words, the same ones every time."""
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import make_builder

    random = np.random.default_rng(1)
    dictionary = Dictionary()
    for number in range(WORDS):
        dictionary.add_symbol(f"w{number}")
    for language in ("en", "de"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        name = str(folder / f"train.en-de.{language}")
        builder = make_builder(f"{name}.bin", "mmap", vocab_size=len(dictionary))
        for length in random.integers(4, 9, size=SENTENCES):
            words = random.integers(dictionary.nspecial, len(dictionary), size=length)
            builder.add_item(torch.tensor([*words, dictionary.eos()]))
        builder.finalize(f"{name}.idx")


def take_gpu_branches() -> None:
    """Make our modules in this process do on a CPU what they do on a GPU in training."""
    from torch import nn

    from transformer_plugin import criterion
    from vaswani_transformer.encoder import Encoder
    from vaswani_transformer.fast import attention
    from vaswani_transformer.fast.dropout import FastDropout

    def attend(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        dropout: float = 0.0,
        is_causal: bool = False,
    ) -> Any:
        kernel = torch.nn.functional.scaled_dot_product_attention
        if query.dtype == torch.bfloat16 and attention.HAS_CUDNN_ATTENTION:
            kernel = attention.without_cudnn
        return kernel(query, key, value, mask, dropout, is_causal)

    def places(chosen: Any, count: int | None = None) -> Any:
        order = chosen.to(torch.uint8).argsort(descending=True, stable=True)
        return order[: int(chosen.sum())]  # a GPU's count comes from the batch

    FastDropout.forward = nn.Dropout.forward  # type: ignore[method-assign]
    attention.FastEncoder.find_padding = Encoder.find_padding  # type: ignore[method-assign]
    attention.kernel_is_quicker = lambda query: True
    attention.fused_attention = attend
    criterion.places = places


class Operations(TorchDispatchMode):
    """Counts the operations that are dispatched inside, and those of them that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.all = 0
        self.no_views = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.all += 1
        self.no_views += not operation.is_view
        return operation(*args, **(kwargs or {}))


class Host(Training):
    """A training and a search of a narrow model in this process, whose thread is timed.

    Args:
        lean: with ``fast/step.py`` and ``lean_updates.py``, and the optimizer's plain loops
        options: of :class:`benchmarks.train.Training`, without ``data``
    """

    def __init__(self, lean: bool = True, **options: Any) -> None:
        from vaswani.configuration.plugin import load_plugin

        load_plugin()
        if not lean:
            leave_out_lean_forms()
        with tempfile.TemporaryDirectory() as folder:
            write_random_text(Path(folder))
            super().__init__(folder, **options)
            self.model = copy.deepcopy(self.trainer.model).eval()
            task = self.trainer.task
            config = configuration(self.trainer.cfg.task._name, folder)
        config.generation.update({"beam": BEAM, "max_len_a": 0})
        config.generation.update({"min_len": STEPS - 1, "max_len_b": STEPS - 1})
        self.model.prepare_for_inference_(config)
        self.generator = task.build_generator([self.model], config.generation)
        words = torch.Generator().manual_seed(1)
        source = torch.randint(4, WORDS, (1, SOURCE_LENGTH), generator=words)
        source[:, -1] = task.source_dictionary.eos()
        lengths = torch.tensor([SOURCE_LENGTH])
        self.sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        self.sample["net_input"]["prev_output_tokens"] = source[:, -1:]

    def train(self, count: int) -> float:
        """Do ``count`` updates, and return the milliseconds of this thread for each."""
        samples = [[self.next_batch()] for _ in range(count)]
        begun = time.thread_time()
        for sample in samples:
            self.update(sample)
        return 1000 * (time.thread_time() - begun) / count

    def search(self, count: int) -> float:
        """Search ``count`` times, and return the milliseconds of this thread for each step."""
        begun = time.thread_time()
        with torch.no_grad():
            for _ in range(count):
                self.generator.generate([self.model], self.sample)
        return 1000 * (time.thread_time() - begun) / (count * STEPS)

    def use_gpu_branches(self) -> None:
        """Let the modules of this process do what they do on a GPU in training."""
        take_gpu_branches()

    def operations(self, work: str) -> tuple[float, float]:
        """Count the operations of an update, or of a step of a search: all, and non-views."""
        counter = Operations()
        times = 1
        if work == "train":
            sample = [self.next_batch()]
            with counter:
                self.update(sample)
        else:
            times = STEPS
            with counter, torch.no_grad():
                self.generator.generate([self.model], self.sample)
        return counter.all / times, counter.no_views / times


def leave_out_lean_forms() -> None:
    """Replace our lean forms in this process by those of fairseq and the readable decoder."""
    from fairseq.optim import FairseqOptimizer

    from transformer_plugin.lean_updates import LeanUpdates
    from transformer_plugin.optimizer import VaswaniAdam
    from vaswani_transformer.fast import step

    step.make_step = lambda decoder: None
    del LeanUpdates.train
    del LeanUpdates.set_num_updates
    VaswaniAdam.zero_grad = FairseqOptimizer.zero_grad  # type: ignore[method-assign]
    VaswaniAdam.multiply_grads = FairseqOptimizer.multiply_grads  # type: ignore[method-assign]


def run(rounds: int = 9, updates: int = 15, searches: int = 2) -> dict[str, Any]:
    """Measure the host time of each system, and return one row for each.

    Args:
        rounds: in which each system gets one turn
        updates: of a turn
        searches: of a turn
    """
    usable = precisions("cpu")
    trained = [name for name in NAMES if precision_of(name) in usable]
    searched = [name for name in trained if precision_of(name) == "fp32"]
    workers = {name: start(name) for name in trained}
    rows: dict[str, Row] = {name: {"system": name} for name in workers}
    take_turns("search", "step", searched, workers, rows, rounds, searches)
    for name in trained:
        workers[name].ask("use_gpu_branches")
    take_turns("train", "update", trained, workers, rows, rounds, updates)
    for worker in workers.values():
        worker.end()
    note = (
        "Milliseconds of one thread; the ratio is that to fairseq, round by round. Operations: all "
        f"that are dispatched, and without views. 6+6 layers of width 16; updates of 2 sentences; "
        f"searches with beam {BEAM} for one sentence, {STEPS} steps."
    )
    return {"rows": list(rows.values()), "notes": [note]}


def start(name: str) -> Worker:
    """Start the process of a system."""
    system = TRAINED["ours" if name == WITHOUT else name]
    options = {
        "flags": [*system["flags"], *size_flags("narrow"), *BATCH],
        "device": "cpu",
        "autocast": system.get("autocast", False),
        "lean": name != WITHOUT,
    }
    return Worker(Host, options, {"OMP_NUM_THREADS": "1"})


def take_turns(
    method: str,
    unit: str,
    names: list[str],
    workers: dict[str, Worker],
    rows: dict[str, Row],
    rounds: int,
    count: int,
) -> None:
    """Measure the systems in turn, and add their figures to their rows.

    Args:
        method: of :class:`Host`, ``train`` or ``search``
        unit: what it does, for the columns' titles
        names: of the systems
        workers, rows: theirs, by name
        rounds: in which each gets one turn
        count: what ``method`` is asked for in a turn
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        workers[name].ask(method, count)  # the first time is slow
    for number in range(1, rounds + 1):
        for name in names:
            times[name].append(workers[name].ask(method, count))
        log_progress(f"host: {method}, round {number} of {rounds}")
    for name in names:
        everything, without_views = workers[name].ask("operations", method)
        rows[name][f"ms/{unit}"] = median_and_range(times[name])
        rows[name][f"{unit}: ratio"] = ratios(times[name], times[REFERENCE])
        if name == "ours":
            rows[name][f"{unit}: to without"] = ratios(times[name], times[WITHOUT])
        rows[name][f"{unit}: operations"] = f"{everything:,.0f}, {without_views:,.0f}"


def ratios(own: list[float], reference: list[float]) -> dict[str, float]:
    """Return the median and range of the ratio of the times in each round."""
    return median_and_range([a / b for a, b in zip(own, reference, strict=True)])
