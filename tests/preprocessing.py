"""``vaswani prepare`` with fairseq-preprocess in this process: to start one takes seconds."""

from pathlib import Path
from typing import Any, List

import pytest

from tests.stock import fresh_process


class Preprocess:
    """Stands for ``subprocess.Popen`` in ``vaswani.data.binarise``."""

    returncode = 0

    def __init__(self, command: List[str], **_: Any) -> None:
        from fairseq import options
        from fairseq_cli import preprocess

        arguments = command[command.index("fairseq_cli.preprocess") + 1 :]
        self.folder = Path(arguments[arguments.index("--destdir") + 1])
        with fresh_process():
            preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
        for handler in list(preprocess.logger.handlers):  # its log
            preprocess.logger.removeHandler(handler)
            handler.close()

    def wait(self) -> int:
        """It has ended."""
        return 0

    def poll(self) -> int:
        """It has ended."""
        return 0

    def communicate(self) -> None:
        """Nothing is left to read."""


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``prepare`` binarise here."""
    monkeypatch.setattr("vaswani.data.binarise.subprocess.Popen", Preprocess)
