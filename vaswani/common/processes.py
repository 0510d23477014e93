"""Work spread over processes: the results in order, in bounded memory, and nothing left running."""

import contextlib
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar

from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.signals import end_with_parent

#: this many items are done sooner here than by new processes: spawned ones start in seconds
WORTH_PROCESSES = {"spawn": 5, "fork": 2}
#: the most processes per core (and in any case) that are allowed: each takes some 0.2 GB
MOST_PER_CORE, MOST_ANYWHERE = 2, 4

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item], Result]


class Worker(NamedTuple):
    """A process, and the pipe to it."""

    process: BaseProcess
    pipe: Connection


def limit_workers(requested: int) -> int:
    """Return the number of workers: as many as requested, but at most what this machine can use."""
    return min(requested, max(MOST_ANYWHERE, MOST_PER_CORE * cores()))


def map_ordered(
    make: Callable[[], Work[Item, Result]],
    items: Iterable[Item],
    workers: int,
    method: Literal["spawn", "fork"] = "spawn",
    advice: str = "free some memory, or give fewer --workers, and run the same command again",
) -> Generator[Result, None, None]:
    """Yield ``make()(item)`` for each item, in order, computed by ``workers`` new processes.

    Each process has a thread here, and a pipe of its own: concurrent.futures' processes share
    queues, on which a large item or a killed process can block the others for ever.

    Args:
        make: called once in each process, so that tools are made only once
        items: at most twice as many as there are processes are taken ahead of the results
        workers: the number of processes; if 1, or if there are only a few items, this one works
        method: ``spawn`` starts Python anew, so that ``make`` has to be picklable; it is safe
            beside threads. ``fork`` takes milliseconds, and shares what this process has in memory,
            such as a model
        advice: what to do where a process was killed, most likely for lack of memory

    Raises:
        UserError: a process was killed.
    """
    items = iter(items)
    first = list(islice(items, WORTH_PROCESSES[method]))
    items = chain(first, items)
    if workers == 1 or len(first) < WORTH_PROCESSES[method]:
        yield from map(make(), items)
        return
    processes: list[BaseProcess] = []
    idle: SimpleQueue[Worker] = SimpleQueue()

    def done(item: Item) -> Result:
        worker = idle.get()
        try:
            result: Result = _ask(worker, item, advice)
            return result
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(workers)
    try:
        for _ in range(workers):
            idle.put(_start(make, method, processes))
        waiting = deque(threads.submit(done, item) for item in islice(items, 2 * workers))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(threads.submit(done, item) for item in islice(items, 1))
    finally:
        for process in processes:
            process.kill()
        threads.shutdown(cancel_futures=True)
        for process in processes:
            process.join()


def _start(
    make: Callable[[], Work[Item, Result]], method: str, processes: list[BaseProcess]
) -> Worker:
    """Start a process, add it to the list, and return it with the pipe to it."""
    if method == "spawn":  # before: it would unblock what without_interrupts blocks
        resource_tracker.ensure_running()
    context: Any = multiprocessing.get_context(method)
    own_end, worker_end = context.Pipe()
    process = context.Process(target=_serve, args=(make, worker_end), daemon=True)
    with without_interrupts():  # Ctrl-C goes to all processes; this one ends the others
        process.start()
        processes.append(process)
    worker_end.close()  # so that the end of the process ends the pipe
    return Worker(process, own_end)


def _ask(worker: Worker, item: object, advice: str) -> Any:
    """Return a process's result for an item; raise UserError if it was killed, or its own error."""
    try:
        worker.pipe.send(item)
        result, error, trace = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        raise UserError(
            f"a process was killed (exit code {worker.process.exitcode}), most likely for lack "
            f"of memory: {advice}"
        ) from None
    if error:
        raise error from RuntimeError(f"in {worker.process.name}:\n{trace}")
    return result


def _serve(make: Callable[[], Work[Item, Result]], pipe: Connection) -> None:
    """Process items from a pipe, as long as somebody waits for the results."""
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    work = None
    with contextlib.suppress(EOFError, OSError):  # of the pipe: nobody is there any more
        while True:
            item = pipe.recv()
            try:
                work = work or make()
                answer: tuple[object, Exception | None, str] = (work(item), None, "")
            except Exception as error:
                answer = (None, error, traceback.format_exc())
            pipe.send(answer)


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
