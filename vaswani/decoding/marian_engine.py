"""Searches with transformers' Marian, in a process of another Python.

An export to Hugging Face is thus checked where it will be used: transformers need not be installed
beside fairseq, and the process imports nothing of this project.
"""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.decoding.engine import Batch, BatchHypotheses, Engine, Search, TokenHypothesis, ignore
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


class MarianEngine(Engine):
    """A model on a CPU, which :meth:`ask` asks everything at once; its answers are given out later.

    Args:
        python: a Python that has transformers
        folder: an export; its generation_config.json says how to search, except for the beam and
            the maximum length
        source, target: fairseq's dictionaries
        longest: tokens of source and target at most
    """

    on_cpu, batch_tokens = True, CPU_BATCH

    def __init__(
        self, python: str, folder: Path, source: Any, target: Any, longest: Sequence[int]
    ) -> None:
        self.lock = contextlib.nullcontext()
        self.python, self.folder = python, folder
        self.source, self.target = source, target
        self.longest_source, self.longest_target = longest

    def ask(
        self,
        batches: Sequence[Batch],
        targets: Sequence[list[int]],
        searches: Sequence[SearchOptions],
        lines: Sequence[str],
    ) -> None:
        """Have the process answer, once.

        Args:
            batches: sentences to translate
            targets: a translation of each sentence by its place: to give a probability, and to
                write as text
            searches: to translate with, each with a beam of its own
            lines: for the tokenizer to read

        Raises:
            UserError: it cannot import transformers, or it fails.
            OSError: there is no such Python.
        """
        given = [
            {"sources": batch.ids, "targets": [targets[place] for place in batch.places]}
            for batch in batches
        ]
        asked = [[self.search_of(batch, options) for batch in batches] for options in searches]
        answers = self.answers(batches=given, searches=asked, lines=lines, texts=targets)
        places = [place for batch in batches for place in batch.places]

        def by_place(per_batch: list[list[Any]]) -> dict[int, Any]:
            return dict(zip(places, sum(per_batch, []), strict=True))

        self.versions: dict[str, str] = answers["versions"]
        #: of the tokenizer; None: the folder has none
        self.read: Any = answers.get("read")
        self.written: Any = answers.get("written")
        self.scores = by_place(answers["log_probabilities"])
        found = {
            options.beam: answer
            for options, answer in zip(searches, answers["searches"], strict=True)
        }
        self.found = {beam: by_place(answer["found"]) for beam, answer in found.items()}
        self.seconds = {beam: float(answer["seconds"]) for beam, answer in found.items()}

    def search_of(self, batch: Batch, options: SearchOptions) -> dict[str, Any]:
        """A search for a batch's translations, in transformers' words."""
        limit = most_tokens(options, max(map(len, batch.ids)), self.longest_target)
        return {"sources": batch.ids, "num_beams": options.beam, "max_new_tokens": limit}

    def answers(self, **questions: Any) -> dict[str, Any]:
        """What the process writes when it has read the questions."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("questions.json", "answers.json")]
            files[0].write_text(json.dumps(questions), encoding="utf-8")
            # -I: neither PYTHONPATH nor the script's folder, which has names of other modules
            command = [self.python, "-I", str(PROCESS), str(self.folder), *map(str, files)]
            environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # the folder has everything
            done = subprocess.run(command, env=environment, capture_output=True)
            if files[1].is_file() and not done.returncode:
                answers: dict[str, Any] = json.loads(files[1].read_text(encoding="utf-8"))
                return answers
        said = done.stderr.decode("utf-8", "replace").split("\n")
        last = next((text for text in reversed(said) if text.strip()), "it ended")
        raise UserError(f"Marian cannot be run by {self.python} ({last.strip()}){ADVICE}")

    def searcher(self, options: SearchOptions) -> Search:
        """As :meth:`Engine.searcher`, of what was asked."""

        def search(
            batches: Sequence[Batch], progress: Callable[[int], Any] = ignore
        ) -> Generator[BatchHypotheses, None, None]:
            for batch in batches:
                rows = [self.found[options.beam][place] for place in batch.places]
                yield [[TokenHypothesis(ids, NO_SCORE, [])] for ids in rows]

        return search

    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """As :meth:`Engine.log_probabilities`, of what was asked."""
        return [self.scores[place] for place in batch.places]
