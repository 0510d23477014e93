"""Runs each measured system in a separate process, with its own memory and threads.

The parent asks them in turn, A B A B …, so that a machine whose speed drifts slows all alike.
"""

import logging
import math
import multiprocessing
import os
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

ENDS_AT: ContextVar[float] = ContextVar("ends_at", default=math.inf)
"""``time.monotonic()`` at the :func:`deadline`."""


class WorkerError(RuntimeError):
    """A system failed in its process; the message is its traceback."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the seconds that workers have in the block, all together, to answer.

    A worker that is late is ended.
    """
    ends_at = ENDS_AT.set(min(ENDS_AT.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        ENDS_AT.reset(ends_at)


def seconds_left() -> float | None:
    """Return the seconds until the :func:`deadline`, at least 0; None if there is no deadline."""
    ends_at = ENDS_AT.get()
    return None if ends_at == math.inf else max(0.0, ends_at - time.monotonic())


class Worker:
    """An object living in a fresh process, whose methods are called from here.

    Args:
        make: called there, with ``options``, to make the object; must be importable by name
        environment: variables of that process, set before torch is imported
        wait: until the object is made; else the first :meth:`answer` says that it is
    """

    def __init__(
        self,
        make: Callable[..., Any],
        options: dict[str, Any],
        environment: Mapping[str, str] = {},
        wait: bool = True,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, make, options))
        weakref.finalize(self, self.pipe.close)  # the process ends when nobody listens any more
        with environment_with(environment):
            self.process.start()
        there.close()
        if wait:
            self.answer()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method and return its result; raise WorkerError if it failed."""
        self.tell(method, *arguments)
        return self.answer()

    def tell(self, method: str, *arguments: Any) -> None:
        """Start a method, whose result the next :meth:`answer` returns."""
        self.pipe.send((method, arguments))

    def answer(self) -> Any:
        """Wait for the next result; raise WorkerError if it is a failure, or late."""
        if not self.pipe.poll(seconds_left()):
            self.end(patience=0)
            raise WorkerError("it did not answer before the deadline, and was ended")
        try:
            failure, result = self.pipe.recv()
        except EOFError:
            self.process.join(timeout=1)
            raise WorkerError(f"the process ended (exit code {self.process.exitcode})") from None
        if failure:
            raise WorkerError(failure)
        return result

    def end(self, patience: float = 10) -> None:
        """End the process, which has ``patience`` seconds to end by itself."""
        self.pipe.close()
        self.process.join(timeout=patience)
        self.process.kill()


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Add variables to ``os.environ`` in the block, in which a process is started."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def serve(pipe: Any, make: Callable[..., Any], options: dict[str, Any]) -> None:
    """Make the object, then answer calls of its methods until the parent hangs up."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    try:
        system = make(**options)
    except Exception:
        pipe.send((traceback.format_exc(), None))
        return
    pipe.send((None, None))
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((None, getattr(system, method)(*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))


def log_progress(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)
