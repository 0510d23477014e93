"""Beam search on several cores: batches are distributed to processes, and their results ordered.

fairseq's loop over the batches stays in this process, and prints and scores. What it asks
the task for, batch by batch, comes from processes that were forked when the model was ready to
decode: they start in milliseconds and share its weights. Each batch is computed by one thread,
whichever process takes it, so the results are those of a single process, to the last digit.
"""

import contextlib
import logging
import multiprocessing
import pickle
import signal
import traceback
from logging.handlers import QueueHandler
from multiprocessing.connection import wait
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from vaswani.common.errors import UserError
from vaswani.common.processes import limit_workers, without_interrupts

#: The longest batches go first, so that no process idles at the end, but only among this many:
#: results must be kept until fairseq, which starts with the shortest, asks for them.
AT_A_TIME = 500

Hypothesis = Dict[str, Any]


def processes(requested: Optional[int], on_cpu: bool) -> int:
    """How many processes may translate: as requested, or one per thread that torch would use.

    torch uses the physical cores available to this process, or ``OMP_NUM_THREADS``.

    Raises:
        UserError: fewer than one are requested, or several on a GPU.
    """
    import torch

    if requested is not None and requested < 1:
        raise UserError(f"--workers is {requested}, but must be at least 1")
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


class Workers:
    """The processes that search for one run of ``fairseq_cli.generate``; none outlives the block.

    Args:
        count: the most to start, at most one per batch; 1: this process does the work
        progress: called with the number of sentences translated since the last call
    """

    def __init__(self, count: int, progress: Callable[[int], Any]) -> None:
        self.count = count
        self.progress = progress
        self.batches: List[Tuple[Any, Any]] = []  # data set and the numbers of its sentences
        self.running: Dict[Any, Any] = {}  # the pipe from a process → the process
        self.started = False
        self.found: Dict[int, List[Hypothesis]] = {}  # by sentence, until fairseq asks for it
        self.logged: Set[Tuple[str, str]] = set()  # log messages: each process has the same

    def __enter__(self) -> "Workers":
        from fairseq import tasks

        self.setup_task = tasks.setup_task
        tasks.setup_task = lambda *args, **kwargs: self.help(self.setup_task(*args, **kwargs))
        return self

    def __exit__(self, *_: Any) -> None:
        from fairseq import tasks

        tasks.setup_task = self.setup_task
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.join()

    def help(self, task: Any) -> Any:
        """The task, with its batches recorded and its search done by the processes."""
        make_batches, search = task.get_batch_iterator, task.inference_step

        def get_batch_iterator(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            iterator = make_batches(dataset, *args, **kwargs)
            self.batches = [(dataset, numbers) for numbers in iterator.frozen_batches]
            self.count = max(1, min(self.count, len(self.batches)))
            return iterator

        def inference_step(*args: Any, **kwargs: Any) -> List[List[Hypothesis]]:
            generator, models, sample, *rest = args
            if self.count == 1:
                results: List[List[Hypothesis]] = search(*args, **kwargs)
                self.progress(len(results))
                return results
            if not self.started:
                self.started = True
                self.start(lambda batch: search(generator, models, batch, *rest, **kwargs))
            return [self.hypotheses(number) for number in sample["id"].tolist()]

        task.get_batch_iterator, task.inference_step = get_batch_iterator, inference_step
        return task

    def start(self, search: Callable[[Any], List[List[Hypothesis]]]) -> None:
        """Fork the processes. Each takes the next free batch, as long as there is one."""
        batches: List[Tuple[Any, Any]] = []
        for first in range(0, len(self.batches), AT_A_TIME):
            batches += reversed(self.batches[first : first + AT_A_TIME])
        context = multiprocessing.get_context("fork")
        taken = context.Value("i", 0)

        def work(pipe: Any) -> None:
            for other in self.running:  # a pipe without a reader means that the parent has gone
                other.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            logging.getLogger().handlers = [ToParent(pipe)]
            with contextlib.suppress(BrokenPipeError):
                try:
                    while (number := next_of(taken)) < len(batches):
                        dataset, sentences = batches[number]
                        sample = dataset.collater([dataset[n] for n in sentences])
                        results = [[packed(h) for h in best] for best in search(sample)]
                        found = dict(zip(sample["id"].tolist(), results, strict=True))
                        pipe.send_bytes(pickle.dumps(found))
                except Exception as error:
                    pipe.send_bytes(pickled_error(error))

        for _ in range(self.count):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(there,), daemon=True)
            self.running[here] = process
            with without_interrupts():  # Ctrl-C goes to all processes; this one ends the others
                process.start()
            there.close()

    def hypotheses(self, sentence: int) -> List[Hypothesis]:
        """The hypotheses of a sentence, as soon as they are ready."""
        while sentence not in self.found:
            if not self.running:
                raise RuntimeError(f"no process has translated sentence {sentence + 1}")
            for pipe in wait(list(self.running)):
                self.hear(pipe)
        return [unpacked(hypothesis) for hypothesis in self.found.pop(sentence)]

    def hear(self, pipe: Any) -> None:
        """Handle what a process sends: hypotheses, a log record or an error; or notice its end.

        Raises:
            UserError: it was killed.
            Exception: what was raised there.
        """
        try:
            message = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            self.check_end(pipe)
            return
        if isinstance(message, dict):
            self.found.update(message)
            self.progress(len(message))
        elif isinstance(message, logging.LogRecord):
            key = (message.name, message.getMessage())
            if key not in self.logged:
                self.logged.add(key)
                logging.getLogger(message.name).handle(message)
        else:
            error, trace = message
            raise error from RuntimeError(f"in a process that translates:\n{trace}")

    def check_end(self, pipe: Any) -> None:
        """Raises UserError unless a process has ended because there was nothing left to do."""
        process = self.running[pipe]
        process.join()
        if process.exitcode:
            raise UserError(
                f"one of {self.count} processes was killed (exit code {process.exitcode}), most "
                "likely for lack of memory: give fewer --workers or a smaller --max-tokens"
            )
        del self.running[pipe]


class ToParent(QueueHandler):
    """Sends log records through a pipe (``queue``)."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self.queue.send_bytes(pickle.dumps(record))  # type: ignore[attr-defined]


def next_of(counter: Any) -> int:
    """The next value of a counter shared by several processes."""
    with counter.get_lock():
        counter.value += 1
        return int(counter.value) - 1


def pickled_error(error: Exception) -> bytes:
    """An error and its traceback for another process; as text only, if it cannot be pickled."""
    trace = traceback.format_exc()
    try:
        message = pickle.dumps((error, trace))
        pickle.loads(message)
    except Exception:
        return pickle.dumps((RuntimeError(str(error)), trace))
    return message


def packed(hypothesis: Hypothesis) -> Hypothesis:
    """A hypothesis with its tensors as arrays, which are pickled a hundred times as fast."""
    import torch

    return {
        name: value.numpy()
        if isinstance(value, torch.Tensor) and value.dtype != torch.bfloat16
        else value
        for name, value in hypothesis.items()
    }


def unpacked(hypothesis: Hypothesis) -> Hypothesis:
    """The inverse of :func:`packed`."""
    import numpy
    import torch

    return {
        name: torch.from_numpy(value) if isinstance(value, numpy.ndarray) else value
        for name, value in hypothesis.items()
    }
