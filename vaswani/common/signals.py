"""How a command ends when told to: by Ctrl-C, SIGTERM, or a reader of its output that has gone."""

import contextlib
import os
import select
import signal
import sys
import threading
from typing import Any, Callable, Iterator, List

#: exit codes, as in shells
INTERRUPTED, TERMINATED, NO_READER = (128 + number for number in (2, 15, 13))


def _nothing_saved() -> bool:
    return False


_saved: Callable[[], bool] = _nothing_saved


def continues_if(saved: Callable[[], bool]) -> None:
    """Say how to find out whether the running command, repeated, would continue its work.

    Without this a verb starts over, and ``continue_hint`` is silent.
    """
    global _saved
    _saved = saved


def continue_hint() -> str:
    """``; the same command continues``, or nothing where nothing is saved."""
    with contextlib.suppress(OSError):
        return "; the same command continues" if _saved() else ""
    return ""


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[List[int]]:
    """While the block runs, SIGINT and SIGTERM raise KeyboardInterrupt and are added to the list.

    The exception's argument is the signal's number. It may arrive as another exception: C
    extensions turn it into their own errors, in ``import torch`` as well as in writing a
    checkpoint. Under torchrun SIGTERM keeps its default: a process that waits for others would not
    receive it in Python.
    """
    continues_if(_nothing_saved)  # until the verb knows better
    numbers: List[int] = []
    owner = os.getpid()

    def note(number: int, frame: Any) -> None:
        if number == signal.SIGTERM and os.getpid() != owner:  # a forked worker, no longer needed
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        numbers.append(number)
        raise KeyboardInterrupt(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        wanted = [signal.SIGINT] + ([] if "TORCHELASTIC_RUN_ID" in os.environ else [signal.SIGTERM])
        # what is ignored (by nohup, or a shell for its background) stays ignored
        wanted = [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, note) for number in wanted}
    try:
        yield numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def output_is_gone() -> bool:
    """Whether nobody reads standard output or error any more; drops what is left for them."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # closed, or not a file
            descriptor = stream.fileno()
            poll = select.poll()
            poll.register(descriptor, 0)
            broken = any(event & select.POLLERR for _, event in poll.poll(0))
            try:
                stream.flush()
            except OSError:  # also of a full disk, on which the rest would fail again
                broken = True
            if broken:
                gone = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return gone
