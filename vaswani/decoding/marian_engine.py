"""Searches with transformers' Marian, in a process of another Python.

An export to Hugging Face is thus checked where it will be used: transformers need not be installed
beside fairseq, and the process imports nothing of this project.
"""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Generator, List, Sequence

from vaswani.common.errors import UserError
from vaswani.decoding.engine import Batch, BatchHypotheses, Search, TokenHypothesis, ignore
from vaswani.model_folder.search_options import CPU_BATCH, SearchOptions

PROCESS = Path(__file__).with_name("marian_process.py")
ADVICE = (
    ": name with --python one in whose environment 'pip install torch transformers sentencepiece' "
    "has been run, without torchaudio"
)
#: a hypothesis has no score here: nothing asks for it
NO_SCORE = float("nan")


def most_tokens(options: SearchOptions, source: int, longest: int) -> int:
    """The most tokens of a translation, with its end: ``max_new_tokens``.

    Args:
        options: of the search
        source: tokens of the longest source in the batch, with its end
        longest: the most that the decoder takes
    """
    return min(int(options.max_len_a * source + options.max_len_b), longest - 1) + 1


class MarianEngine:
    """A model on a CPU, in a process that ends when the ``with`` block does.

    Args:
        python: a Python that has transformers
        folder: an export; its generation_config.json says how to search, except for the beam and
            the maximum length
        source, target: fairseq's dictionaries
        longest: tokens of source and target at most

    Raises:
        UserError: there is no such Python, it cannot import transformers, or it ends.
    """

    on_cpu, batch_tokens = True, CPU_BATCH

    def __init__(
        self, python: str, folder: Path, source: Any, target: Any, longest: Sequence[int]
    ) -> None:
        self.lock = contextlib.nullcontext()
        self.python = python
        self.source, self.target = source, target
        self.longest_source, self.longest_target = longest
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        # no network: the folder has everything
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        try:
            self.process = subprocess.Popen(
                # -I: neither PYTHONPATH nor the script's folder, which has names of other modules
                [python, "-I", str(PROCESS), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=environment,
                encoding="utf-8",
            )
        except OSError as error:
            raise UserError(f"--python {python} cannot be run ({error.strerror})") from None
        try:
            started = self.answer(ADVICE)
        except BaseException:
            self.close()
            raise
        self.versions: Dict[str, str] = started["versions"]
        self.has_tokenizer: bool = started["has_tokenizer"]

    def __enter__(self) -> "MarianEngine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def ask(self, name: str, **arguments: Any) -> Any:
        """What a function of ``marian_process.py`` returns; UserError if the process ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says why
            self.process.stdin.write(json.dumps([name, arguments]) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self, advice: str = "") -> Any:
        """The next answer of the process; UserError, with advice, if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode("utf-8", "replace").split("\n")
        last = next((text for text in reversed(said) if text.strip()), "it ended")
        raise UserError(f"Marian cannot be run by {self.python} ({last.strip()}){advice}")

    def searcher(self, options: SearchOptions) -> Search:
        """As :meth:`Engine.searcher`."""

        def search(
            batches: Sequence[Batch], progress: Callable[[int], Any] = ignore
        ) -> Generator[BatchHypotheses, None, None]:
            for batch in batches:
                source = max(map(len, batch.ids))
                limit = most_tokens(options, source, self.longest_target)
                beam = {"num_beams": options.beam, "num_return_sequences": options.nbest}
                found = self.ask("generate", sources=batch.ids, max_new_tokens=limit, **beam)
                progress(len(found))
                yield [[TokenHypothesis(ids, NO_SCORE, []) for ids in best] for best in found]

        return search

    def log_probabilities(self, batch: Batch, targets: List[List[str]]) -> List[List[float]]:
        """For each sentence, the log-probability of each subword of its translation and its end.

        Args:
            batch: the sources
            targets: subwords of their translations, without an end
        """
        ids = [[*map(self.target.index, target), self.target.eos()] for target in targets]
        found: List[List[float]] = self.ask("log_probabilities", sources=batch.ids, targets=ids)
        return found
