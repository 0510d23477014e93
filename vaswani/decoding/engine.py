"""What searches for translations: batches of token ids and search options in, hypotheses out.

There are four engines: a packed model in plain torch (``torch_engine.py``), the generator that a
fairseq task builds, for runs (``fairseq_engine.py``), CTranslate2 (``ctranslate2_engine.py``), and
transformers' Marian (``marian_engine.py``), which only checks an export to Hugging Face.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Callable, Generator, List, NamedTuple, Optional

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


Search = Callable[..., Generator[BatchHypotheses, None, None]]
"""A search with fixed options: ``search(batches, progress)`` gives the hypotheses of each batch, in
their order; best by length, shortest first. ``progress`` is called with the number of sentences
translated since the last call."""


class Engine:
    """A model that is ready to search for translations."""

    #: what a thread holds from making a search to the end of it
    lock: AbstractContextManager[Any]
    #: the symbols of each side by their ids, as fairseq's Dictionary has them
    source: Any
    target: Any
    #: the most tokens that a source may have, with the end of sentence
    longest_source: int
    on_cpu: bool
    #: tokens per batch that suit the device
    batch_tokens: int

    #: a search with these options; UserError or ConfigError for one that is invalid, or that this
    #: engine lacks
    searcher: Callable[[SearchOptions], Search]


def ignore(sentences: int) -> None:
    """Progress that nobody wants to know about."""
