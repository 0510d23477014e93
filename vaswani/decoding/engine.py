"""Engines search for translations: they get batches of token ids and give hypotheses.

There are three: a packed model in plain torch (``torch_engine.py``), the generator that a fairseq
task builds, for runs (``fairseq_engine.py``), and CTranslate2 (``ctranslate2_engine.py``). A
fourth, in ``vaswani/export/to_huggingface.py``, serves to compare an export with its model.

Log-probabilities and scores are in nats: logarithms to base e. ``generate`` prints them to base 2,
as fairseq does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from vaswani.folders.search_options import TranslationOptions


class Batch(NamedTuple):
    """Sentences that are translated together."""

    #: their places in the list, or the data set, that is translated
    places: list[int]
    #: the token ids of each, with the end of sentence; none where the engine has a data set
    ids: list[list[int]]


@dataclass(frozen=True)
class TokenHypothesis:
    """A hypothesis as token ids [T]."""

    #: the end of sentence may be left out
    tokens: list[int]
    #: log-probability in nats, divided by the length penalty
    score: float
    #: log-probability of each token [T] in nats; empty if the engine does not give it
    token_scores: list[float]
    #: for each token, the place of the source subword that it attends to most [T]; if requested
    attended: list[int] | None = None


BatchHypotheses = list[list[TokenHypothesis]]
"""The hypotheses of each sentence of a batch, best first."""


Progress = Callable[[int], object]
"""It is called with the number of sentences translated since its last call."""


class Dictionary(Protocol):
    """One side's symbols by their ids: what is used of fairseq's class of this name."""

    unk_word: str
    unk_index: int

    def __getitem__(self, number: int, /) -> str: ...
    def __len__(self) -> int: ...
    def index(self, sym: str) -> int:
        """Return the id of a symbol; for an unknown one, that of ``<unk>``."""

    def bos(self) -> int:
        """Return the id of the beginning of a sentence."""

    def eos(self) -> int:
        """Return the id of the end of a sentence."""


class Engine(ABC):
    """A model that is ready to search for translations."""

    #: a thread holds it while it searches
    lock: AbstractContextManager[object]
    source: Dictionary
    target: Dictionary
    #: the most tokens that a source, and a target, may have, with the end of sentence
    longest_source: int
    longest_target: int
    on_cpu: bool
    #: tokens per batch that suit the device
    batch_tokens: int

    @abstractmethod
    def prepare_search(self, options: TranslationOptions) -> TranslationOptions:
        """Prepare the search, and return the options that it will use.

        ``search`` does so too. Whoever searches again and again calls this first, so that a
        warning, of a beam larger than the vocabulary, is given once.

        Raises:
            UserError, ConfigError: an option that is invalid, or that this engine does not have.
        """

    @abstractmethod
    def search(
        self, batches: Sequence[Batch], options: TranslationOptions, progress: Progress
    ) -> Generator[BatchHypotheses, None, None]:
        """Return the hypotheses of each batch, in the order of the batches.

        It is quickest if they are sorted by length, the shortest first.
        """

    @abstractmethod
    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """Return the log-probability in nats of each subword of a translation, and of its end.

        Args:
            batch: the sentences
            targets: a translation of each, as subwords without an end
        """


def ignore(sentences: int) -> None:
    """Ignore the reported number of sentences."""


def most_tokens(options: TranslationOptions, source: int, longest: int) -> int:
    """Return the most tokens that a translation may have, its end included.

    Args:
        options: of the search
        source: tokens of the longest source in the batch, its end included
        longest: the most tokens that the decoder takes
    """
    return min(int(options.max_len_a * source + options.max_len_b), longest - 1) + 1
