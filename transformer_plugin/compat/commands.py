"""Settings of the processes of fairseq's commands, made by our task.

An exception hook and the allocator's settings apply to a whole process. In ``fairseq-train`` and
similar commands our task may change them; in a notebook or a service it does not.
"""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from vaswani_transformer.fast import malloc

TRACEBACK = "VASWANI_TRACEBACK"
"""Environment variable that adds the traceback to errors for users, as in ``vaswani``."""


def command_name() -> str:
    """Return the fairseq command of this process, such as ``fairseq-train``; "" if none."""
    program = Path(sys.argv[0])
    if program.parent.name == "fairseq_cli":  # python -m fairseq_cli.train
        return f"fairseq-{program.stem}"
    return program.stem if program.name.startswith("fairseq-") else ""


def keep_freed_memory() -> None:
    """Let the allocator of a fairseq command keep freed memory: see fast/malloc.py."""
    if command_name():
        malloc.keep_freed_memory()


def print_refusals_alone() -> None:
    """Let a fairseq command print our errors for users without a traceback.

    ``fairseq-hydra-train`` prints tracebacks itself, and so does torch for processes that it
    spawned: there the sentence is the last line.
    """
    if command_name() and sys.excepthook is not _print_sentence:
        _print_sentence.before = sys.excepthook  # type: ignore[attr-defined]
        sys.excepthook = _print_sentence


def _print_sentence(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> Any:
    """Print only the sentence of an error for users; call the previous hook for other errors."""
    if not getattr(error, "for_users", False) or os.environ.get(TRACEBACK):
        return _print_sentence.before(kind, error, trace)  # type: ignore[attr-defined]
    sentence = " ".join(str(error).split())
    sys.stderr.write(f"{command_name()}: {sentence}\n")
    return None
