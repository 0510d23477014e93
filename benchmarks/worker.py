"""Runs each measured system in a separate process, with its own memory and threads.

The parent asks them in turn, A B A B …, so that a machine whose speed drifts slows all alike.
"""

import multiprocessing
import os
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class WorkerError(RuntimeError):
    """A system failed in its process; the message is its traceback."""


class Worker:
    """An object living in a fresh process, whose methods are called from here.

    Args:
        make: called there, with ``options``, to make the object; must be importable by name
        environment: variables of that process, set before torch is imported
    """

    def __init__(
        self, make: Callable[..., Any], options: dict[str, Any], environment: Mapping[str, str] = {}
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, make, options))
        weakref.finalize(self, self.pipe.close)  # the process ends when nobody listens any more
        with environment_with(environment):
            self.process.start()
        there.close()
        self.answer()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method and return its result; raises WorkerError if it failed."""
        self.tell(method, *arguments)
        return self.answer()

    def tell(self, method: str, *arguments: Any) -> None:
        """Start a method; its result is the next :meth:`answer`."""
        self.pipe.send((method, arguments))

    def answer(self) -> Any:
        """Wait for the next result; raises WorkerError if it is a failure."""
        try:
            failure, result = self.pipe.recv()
        except EOFError:
            raise WorkerError(f"the process ended (exit code {self.process.exitcode})") from None
        if failure:
            raise WorkerError(failure)
        return result

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(timeout=10)
        self.process.kill()


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """``os.environ`` with some more variables, while a process is being started."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def serve(pipe: Any, make: Callable[..., Any], options: dict[str, Any]) -> None:
    """The process's loop: make the object, then answer until the parent hangs up."""
    system: Any | None = None
    method, arguments = "", ()
    while True:
        try:
            if system is None:
                system = make(**options)
                pipe.send((None, None))
            else:
                pipe.send((None, getattr(system, method)(*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return


def log_progress(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
