"""How a command ends when told to: by Ctrl-C, SIGTERM, or a reader of its output that has gone."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

#: what ``signal.signal`` takes and returns
Handler = Callable[[int, FrameType | None], object] | int | None
#: exit codes, as in shells
INTERRUPTED, TERMINATED, EXIT_SIGPIPE = (128 + number for number in (2, 15, 13))


#: whether the running command, repeated, would continue its work; None: it starts over
_saved: Callable[[], bool] | None = None


def set_resumable(saved: Callable[[], bool] | None) -> None:
    """Say how to find out whether the running command, repeated, would continue its work.

    Without this a verb starts over, and ``continue_hint`` is silent.
    """
    global _saved
    _saved = saved


def continue_hint() -> str:
    """Return ``; the same command continues``, or an empty string if nothing is saved."""
    with contextlib.suppress(OSError):
        return "; the same command continues" if _saved and _saved() else ""
    return ""


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM in the block into KeyboardInterrupt, and list their numbers.

    The exception's argument is the signal's number. It may arrive as another exception: C
    extensions turn it into their own errors, in ``import torch`` as well as in writing a
    checkpoint. Under torchrun SIGTERM keeps its default: a process that waits for others would not
    receive it in Python.
    """
    set_resumable(None)  # until the verb knows better
    numbers: list[int] = []

    def note(number: int) -> None:
        numbers.append(number)
        raise KeyboardInterrupt(number)

    signals = [signal.SIGINT] + ([] if "TORCHELASTIC_RUN_ID" in os.environ else [signal.SIGTERM])
    before = _handle(signals, note)
    try:
        yield numbers
    finally:
        _restore(before)


class StopRequest:
    """The wish that this process stops, for work that is to be brought to a good end first.

    ``number`` is that of the signal that came first, SIGINT or SIGTERM; 0 if none has come. Until
    ``begin`` is called signals act as before. A second Ctrl-C raises KeyboardInterrupt; another
    SIGTERM does not, since launchers pass on what their processes have received themselves.

    In a process that multiprocessing spawned, whose parent passes Ctrl-C on and kills it where that
    comes twice, only SIGINT is noted, and it never raises.

    Args:
        notice: what to print when the signal comes; may be empty
    """

    def __init__(self, notice: str = "") -> None:
        self.number = 0
        self.notice = notice
        self._before: dict[int, Handler] = {}

    def begin(self) -> None:
        """Note only the first signal from now on, until the end of the block."""
        if not self._before:
            spawned = multiprocessing.parent_process() is not None
            signals = [signal.SIGINT] if spawned else [signal.SIGINT, signal.SIGTERM]
            self._raises = not spawned
            self._before = _handle(signals, self._note)

    def _note(self, number: int) -> None:
        if self.number:
            if number == signal.SIGINT and self._raises:
                raise KeyboardInterrupt(number)
            return
        self.number = number
        # a data loader's worker may have ended by the same signal: torch would raise amid the work
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._before[signal.SIGCHLD] = before or signal.SIG_DFL
        if self.notice:
            with contextlib.suppress(OSError):  # print() may be what was interrupted
                os.write(2, f"\n{self.notice}\n".encode())

    def __enter__(self) -> "StopRequest":
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._before)


def _handle(numbers: list[signal.Signals], note: Callable[[int], None]) -> dict[int, Handler]:
    """Have these signals call ``note``, and return their earlier handlers.

    What is ignored, by nohup or a shell for its background, stays ignored. Only the main thread can
    do this; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            note(number)
        elif number == signal.SIGTERM:  # a forked worker, no longer needed
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        # Ctrl-C goes to forked workers too: their owner ends them

    not_ignored = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in not_ignored}


def _restore(handlers: dict[int, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def end_with_parent() -> None:
    """End this process as soon as its parent ends, for whatever reason, even in the middle of work.

    The parent is the process that spawned it, or torchrun: if that is killed, its processes would
    wait for each other, and keep what they have locked.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait: Callable[[], object] = parent.join
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        wait = partial(wait_for_end_of, os.getppid())
    else:
        return

    def end() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def wait_for_end_of(parent: int) -> None:
    """Return once this process is no longer the child of process ``parent``."""
    while os.getppid() == parent:
        time.sleep(1)


def output_is_gone() -> bool:
    """Return whether standard output or error cannot be flushed; drops what is left for them."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # closed, or not a file
            descriptor = stream.fileno()
            try:
                stream.flush()
            except OSError:  # also of a full disk, on which the rest would fail again
                gone = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return gone
