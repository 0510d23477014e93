"""Work spread over processes: the results in order, in bounded memory, and nothing left running.

``prepare`` and the search over several cores both use :class:`Pool`; ``run_with_parent.py`` beside
this file does the same for a command of another project.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from itertools import chain, islice
from logging.handlers import QueueHandler
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any, Callable, Dict, Iterable, Iterator, List, Literal, Set, Tuple

from vaswani.common.environment import cores
from vaswani.common.errors import UserError

#: this many items are done sooner here than by processes that have yet to start
WORTH_A_PROCESS = 5
#: the most processes per core (and in any case) that are allowed: each takes some 0.2 GB
MOST_PER_CORE, MOST_ANYWHERE = 2, 4

Work = Callable[[Any], Any]


def limit_workers(requested: int) -> int:
    """As many workers as requested, or as this machine can use; says so if that is fewer."""
    most = max(MOST_ANYWHERE, MOST_PER_CORE * cores())
    if requested <= most:
        return requested
    print(
        f"--workers {requested:,} is more than {cores()} cores can use: continuing with {most}",
        file=sys.stderr,
    )
    return most


def in_order(make: Callable[[], Work], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """``make()(item)`` for each item, in order, over so many new processes.

    Args:
        make: called once in each process, so that tools are made only once; must be picklable
        items: if there are only a few, they are processed in this process
        workers: the number of processes

    Raises:
        UserError: a process was killed.
    """
    items = iter(items)
    first = list(islice(items, WORTH_A_PROCESS)) if workers > 1 else []
    count = workers if len(first) == WORTH_A_PROCESS else 1
    advice = "free some, or give fewer --workers, and run the same command again"
    with Pool(make, count, "spawn", advice) as pool:
        yield from pool.in_order(chain(first, items), 2 * count)


class Pool:
    """Processes that do the same work on one item after another; none outlives the block.

    Args:
        make: called in each process; returns the work, a function from an item to its result
        count: the number of processes; 1: this one does the work
        method: ``spawn`` starts Python anew, so that ``make`` has to be picklable; it is the same
            on every system, and safe beside threads. ``fork`` takes milliseconds, and shares what
            this process has in memory, such as a model
        advice: what to do where a process was killed, most likely for lack of memory
        arrived: called with each result when it arrives, which may be before its turn
    """

    def __init__(
        self,
        make: Callable[[], Work],
        count: int,
        method: Literal["spawn", "fork"],
        advice: str,
        arrived: Callable[[Any], Any] = lambda result: None,
    ) -> None:
        self.make, self.count, self.method = make, count, method
        self.advice, self.arrived = advice, arrived
        self.processes: Dict[Any, Any] = {}  # the pipe to a process → the process
        self.logged: Set[Tuple[str, str]] = set()  # log messages: each process has the same

    def __enter__(self) -> "Pool":
        try:
            if self.count > 1:
                self.start()
        except BaseException:  # an interrupt, or no memory for another process
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start the processes."""
        if self.method == "spawn":  # before: it would unblock what without_interrupts blocks
            resource_tracker.ensure_running()
        context: Any = multiprocessing.get_context(self.method)
        for _ in range(self.count):
            own_end, worker_end = context.Pipe()
            process = context.Process(target=_serve, args=(self.make, worker_end), daemon=True)
            with without_interrupts():  # Ctrl-C goes to all processes; this one ends the others
                process.start()
                self.processes[own_end] = process
            worker_end.close()  # so that the end of the process ends the pipe

    def __exit__(self, *_: Any) -> None:
        for process in self.processes.values():
            process.kill()
        for pipe, process in self.processes.items():
            process.join()
            pipe.close()
        self.processes.clear()

    def in_order(self, items: Iterable[Any], ahead: int) -> Iterator[Any]:
        """The results for items, in their order.

        Args:
            items: a free process gets the next one
            ahead: at most so many are taken before the first of them is given out; this bounds the
                results that wait for their turn

        Raises:
            UserError: a process was killed.
            Exception: what was raised by the work.
        """
        items = iter(items)
        if self.count == 1:
            yield from self.one_by_one(items)
            return
        free, busy = list(self.processes), {}  # pipe → the number of its item
        results: Dict[int, Any] = {}
        started = yielded = 0
        while True:
            for item in islice(items, max(0, min(len(free), yielded + ahead - started))):
                pipe = free.pop()
                with contextlib.suppress(OSError):  # its end is noticed below
                    pipe.send_bytes(pickle.dumps(item))
                busy[pipe] = started
                started += 1
            if yielded == started:
                return
            while yielded not in results:
                for pipe in wait(list(busy)):
                    for result in self.received(pipe):
                        results[busy.pop(pipe)] = result
                        free.append(pipe)
            yield results.pop(yielded)
            yielded += 1

    def one_by_one(self, items: Iterator[Any]) -> Iterator[Any]:
        """The results for items, by this process."""
        work = self.make()
        for item in items:
            result = work(item)
            self.arrived(result)
            yield result

    def received(self, pipe: Any) -> List[Any]:
        """What a process has sent: a result, or none, but a log record, which is logged here.

        Raises:
            UserError: nothing more will come, as it was killed.
            Exception: what was raised there.
        """
        try:
            kind, content = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            process = self.processes[pipe]
            process.join()
            raise UserError(
                f"one of {self.count} processes was killed (exit code {process.exitcode}), most "
                f"likely for lack of memory: {self.advice}"
            ) from None
        if kind == "result":
            self.arrived(content)
            return [content]
        if kind == "error":
            error, trace = content
            raise error from RuntimeError(f"in one of {self.count} processes:\n{trace}")
        key = (content.name, content.getMessage())
        if key not in self.logged:
            self.logged.add(key)
            logging.getLogger(content.name).handle(content)
        return []


def _serve(make: Callable[[], Work], pipe: Any) -> None:
    """Work on items from a pipe, as long as there are any and somebody waits for the results."""
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.getLogger().handlers = [_ToParent(pipe)]
    work = None
    while True:
        try:
            item = pipe.recv_bytes()
        except (EOFError, OSError):  # nobody is there any more
            return
        try:
            work = work or make()
            message = pickle.dumps(("result", work(pickle.loads(item))))
        except Exception as error:
            message = _pickled_error(error)
        with contextlib.suppress(OSError):
            pipe.send_bytes(message)


def end_with_parent() -> None:
    """Let this process end as soon as its parent has, for whatever reason, even amid its work."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        join, leave = parent.join, os._exit
        threading.Thread(target=lambda: (join(), leave(1)), daemon=True).start()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C while the block runs; processes started in it ignore it for good.

    It goes to every process of the terminal: otherwise workers would print their tracebacks, even
    while they are still starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ToParent(QueueHandler):
    """Sends log records through a pipe (``queue``)."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self.queue.send_bytes(pickle.dumps(("log", record)))  # type: ignore[attr-defined]


def _pickled_error(error: Exception) -> bytes:
    """An error and its traceback for another process; as text only, if it cannot be pickled."""
    trace = traceback.format_exc()
    try:
        message = pickle.dumps(("error", (error, trace)))
        pickle.loads(message)
    except Exception:
        return pickle.dumps(("error", (Exception(str(error)), trace)))
    return message
