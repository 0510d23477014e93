"""What a process of fairseq's commands gets from our task; a program that imports it gets nothing.

An exception hook and the allocator's settings are the whole process's. In ``fairseq-train`` and the
like they are ours to change; in a notebook or a service they are not.
"""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from vaswani_transformer.fast import malloc

TRACEBACK = "VASWANI_TRACEBACK"
"""The environment variable with which a refusal has its traceback, too; as for ``vaswani``."""


def command_name() -> str:
    """``fairseq-train`` or another of fairseq's commands that this process is; "" if it is none."""
    program = Path(sys.argv[0])
    if program.parent.name == "fairseq_cli":  # python -m fairseq_cli.train
        return f"fairseq-{program.stem}"
    return program.stem if program.name.startswith("fairseq-") else ""


def keep_freed_memory() -> None:
    """Let the allocator of a command keep what is freed, for our models: see fast/malloc.py."""
    if command_name():
        malloc.keep_freed_memory()


def print_refusals_alone() -> None:
    """Let a command end with the sentence of one of our errors, without the traceback.

    ``fairseq-hydra-train`` prints tracebacks itself, and so does torch for processes that it
    spawned: there the sentence is the last line.
    """
    if command_name() and sys.excepthook is not _print_sentence:
        _print_sentence.before = sys.excepthook  # type: ignore[attr-defined]
        sys.excepthook = _print_sentence


def _print_sentence(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> Any:
    """As the hook before; of an error that a user can put right, the sentence alone."""
    if not getattr(error, "for_users", False) or os.environ.get(TRACEBACK):
        return _print_sentence.before(kind, error, trace)  # type: ignore[attr-defined]
    sentence = " ".join(str(error).split())
    sys.stderr.write(f"{command_name()}: {sentence}\n")
    return None
