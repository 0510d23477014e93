"""What the user is told when a process that fairseq spawned has failed."""

import pytest
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.config import ConfigError, PluginError
from vaswani.cli import problem_of
from vaswani.common.errors import UserError
from vaswani.training.launch import error_of_process

TRACEBACK = "\n-- Process 1 terminated with the following error:\nTraceback …:\n  File …\n"


def raised(last_line: str) -> Exception:
    """Return torch's error for a process whose traceback ends with this line."""
    return error_of_process(ProcessRaisedException(f"{TRACEBACK}{last_line}\n", 1, 1))


@pytest.mark.parametrize("kind", [UserError, ConfigError, CheckpointError])
def test_our_sentences_stay_sentences(kind):
    """The traceback names a class by its module, wherever it stands."""
    error = raised(f"{kind.__module__}.{kind.__qualname__}: the disk is upside down")
    assert isinstance(error, UserError if kind is UserError else PluginError)
    assert problem_of(error) == str(error) == "the disk is upside down"


def test_a_full_gpu_is_one_sentence():
    error = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.")
    assert "smaller batches need less): torch.OutOfMemoryError: CUDA" in str(problem_of(error))


def test_a_bug_keeps_its_traceback():
    error = raised("ZeroDivisionError: division by zero")
    assert "Traceback" in str(error) and problem_of(error) is None


def test_a_killed_process_is_named():
    error = error_of_process(ProcessExitedException("process 1 was killed", 1, 1, -9))
    assert "lost a process (process 1 was killed)" in str(error)
