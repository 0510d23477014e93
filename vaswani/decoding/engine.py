"""What searches for translations: batches of token ids and search options in, hypotheses out.

There are four engines: a packed model in plain torch (``torch_engine.py``), the generator that a
fairseq task builds, for runs (``fairseq_engine.py``), CTranslate2 (``ctranslate2_engine.py``), and
transformers' Marian (``marian_engine.py``), which only checks an export to Hugging Face.
"""

from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    ContextManager,
    Generator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
)

from vaswani.model_folder.search_options import SearchOptions


class Batch(NamedTuple):
    """Sentences that are translated together."""

    #: their places in the list that is translated; the seed of sampling depends on them
    places: List[int]
    #: the token ids of each, with the end of sentence
    ids: List[List[int]]


@dataclass(frozen=True)
class TokenHypothesis:
    """A hypothesis as token ids [T]."""

    #: the end of sentence may be left out
    tokens: List[int]
    #: log-probability, divided by the length penalty
    score: float
    #: log-probability of each token [T]; empty if the engine does not give it
    token_scores: List[float]
    #: for each token, the place of the source subword that it attends to most [T]; if requested
    attended: Optional[List[int]] = None


BatchHypotheses = List[List[TokenHypothesis]]
"""The hypotheses of each sentence of a batch, best first."""


class Search(Protocol):
    """A search with fixed options."""

    def __call__(
        self, batches: Sequence[Any], progress: Callable[[int], Any] = ...
    ) -> Generator[BatchHypotheses, None, None]:
        """The hypotheses of each batch, in the order of the batches.

        Args:
            batches: best by length, shortest first
            progress: called with the number of sentences translated since the last call
        """


class Vocabulary(Protocol):
    """One side's symbols by their ids: what is needed here of fairseq's Dictionary."""

    unk_word: str
    unk_index: int

    def __getitem__(self, number: int) -> str: ...

    def __len__(self) -> int: ...

    def index(self, sym: str) -> int:
        """The id of a symbol; for an unknown one, that of ``<unk>``."""

    def eos(self) -> int:
        """The id of the end of sentence."""

    def bos(self) -> int:
        """The id of the beginning of sentence."""


class Engine(Protocol):
    """A model that is ready to search for translations."""

    @property
    def lock(self) -> ContextManager[Any]:
        """What a thread holds from making a search to the end of it."""

    @property
    def source(self) -> Vocabulary:
        """The symbols of the source."""

    @property
    def target(self) -> Vocabulary:
        """The symbols of the target."""

    @property
    def longest_source(self) -> int:
        """The most tokens that a source may have, with the end of sentence."""

    @property
    def on_cpu(self) -> bool:
        """Whether the model is on a CPU."""

    @property
    def batch_tokens(self) -> int:
        """Tokens per batch that suit the device."""

    def searcher(self, options: SearchOptions) -> Search:
        """A search with these options.

        Raises:
            UserError, ConfigError: an option that is invalid, or that this engine lacks.
        """


def ignore(sentences: int) -> None:
    """Progress that nobody wants to know about."""
