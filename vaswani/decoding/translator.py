"""A packed model in Python.

from vaswani import Translator

translator = Translator.from_pretrained("runs/demo_en_de/model")
for translation in translator.translate(["The house is big.", "It is old."]):
    print(translation.text, translation.score)
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common.errors import UserError
from vaswani.data.bpe import MARK
from vaswani.data.tokenisation import SourceText, TargetText
from vaswani.decoding.engine import Batch, Engine, Progress, TokenHypothesis, ignore
from vaswani.folders.exported_model import ExportedModel, read_model
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.recipe import SENTENCEPIECE
from vaswani.folders.search_options import TranslationOptions


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence from beam search."""

    text: str
    #: log-probability, divided by the length penalty
    score: float
    #: the words before they are joined to text, BPE undone; of SentencePiece, the pieces
    tokens: list[str]
    #: pairs (number in source_tokens, number in tokens), from 0; empty unless requested
    alignment: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Translation:
    """A sentence and its translations."""

    source: str
    #: best first; empty for a blank line, and for one that is too long
    hypotheses: list[Hypothesis]
    #: the source's words, as the tokeniser sees them; of SentencePiece, the pieces
    source_tokens: list[str]
    #: those of them that are wholly or partly unknown to the model
    unknown: list[str]
    #: more subwords than the model accepts: not translated
    too_long: bool = False

    @property
    def text(self) -> str:
        """The best translation; empty if there is none."""
        return self.hypotheses[0].text if self.hypotheses else ""

    @property
    def score(self) -> float | None:
        """The score of the best translation."""
        return self.hypotheses[0].score if self.hypotheses else None


class Word(NamedTuple):
    """A word in a sentence of subwords: its text, and the numbers of its subwords."""

    text: str
    first: int
    last: int


def words_of(subwords: Sequence[str], in_parts: bool = True) -> list[Word]:
    """Return the words that subwords form; the end of the sentence ends an unfinished word.

    Without ``in_parts`` every subword is a word, and a mark at its end belongs to it.
    """
    if not in_parts:
        return [Word(subword, number, number) for number, subword in enumerate(subwords)]
    words = []
    first = 0
    for number, subword in enumerate(subwords):
        if not subword.endswith(MARK.rstrip()) or number == len(subwords) - 1:
            joined = "".join(p.removesuffix(MARK.rstrip()) for p in subwords[first : number + 1])
            words.append(Word(joined, first, number))
            first = number + 1
    return words


class InputSentence(NamedTuple):
    """A sentence that is ready to be translated."""

    line: str
    subwords: list[str]
    words: list[Word]
    #: of the subwords and the end of sentence; None: nothing to translate
    ids: list[int] | None
    too_long: bool


class Translator:
    """A model that translates text.

    Thread-safe: calls from several threads wait for each other. Several sentences in one call are
    faster than one sentence per call.

    Args:
        folder: read by :func:`vaswani.folders.exported_model.read_model`
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one
        engine: what searches, instead of the folder's model
        user_dir: defines the model, if it is a variant of the paper's

    Attributes:
        options: how to search, unless a call says otherwise
        engine: what searches
    """

    def __init__(
        self,
        folder: ModelFolder | ExportedModel,
        precision: str = "fp32",
        device: str | None = None,
        engine: Engine | None = None,
        user_dir: str | None = None,
    ) -> None:
        self.folder = folder
        self.options = folder.search_options
        self.engine = engine or engine_for(folder, precision, device, user_dir=user_dir)
        self.source_text = SourceText(folder.recipe, folder.subword_model)
        self.target_text = TargetText(folder.recipe, folder.subword_model)
        self.lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        precision: str = "fp32",
        device: str | None = None,
        user_dir: str | None = None,
    ) -> "Translator":
        """Return the model in a folder that ``vaswani pack`` made, or ``vaswani export --to
        ctranslate2``.

        Raises:
            vaswani.common.errors.UserError: it is not such a folder, or was altered.
            OSError: a file is missing.
        """
        return cls(read_model(Path(path)), precision, device, user_dir=user_dir)

    def translate(
        self, sentences: Sequence[str], progress: Progress = ignore, **options: Any
    ) -> list[Translation]:
        """Translate sentences, one translation for each, in their order.

        Args:
            sentences: raw text; a line feed in one is read as a space
            progress: called with the number of sentences translated since its last call
            options: fields of :class:`vaswani.folders.search_options.TranslationOptions` that
                override those in ``self.options``, such as ``beam=5``, ``nbest=5``,
                ``print_alignment=True``

        Raises:
            TypeError: an unknown option or one of another type; a string, or an item that is none.
            UserError, ConfigError: an option's value that cannot work; both are ValueErrors.
        """
        if isinstance(sentences, str):  # which is iterable, too
            raise TypeError("translate takes a list of sentences, not a string: translate([text])")
        sentences = list(sentences)
        for number, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise TypeError(f"sentences[{number}] is {sentence!r}, not a string")
        chosen = self.options.changed(**options)
        with self.lock:
            sentences_read = [self.read(line) for line in sentences]
        return self.translate_sentences(sentences_read, progress, chosen)

    def translate_sentences(
        self,
        sentences: Sequence[InputSentence],
        progress: Progress = ignore,
        options: TranslationOptions | None = None,
    ) -> list[Translation]:
        """Translate sentences that were read, one translation for each, in their order.

        Args:
            sentences: of :meth:`read`
            progress: called with the number of sentences translated since its last call
            options: how to search (default: ``self.options``)
        """
        chosen = options or self.options
        with self.engine.lock:
            results = self.search(sentences, chosen, progress)
        with self.lock:
            pairs = zip(sentences, results, strict=True)
            return [self.translation(sentence, best, chosen) for sentence, best in pairs]

    # ---- the steps, for those who search elsewhere ---------------------------------------------

    def read(self, line: str, side: str = "source") -> InputSentence:
        """Convert raw text to the model's input, or, for ``side`` "target", to the decoder's."""
        text = self.source_text
        vocabulary = self.engine.source
        longest = self.engine.longest_source
        if side == "target":
            recipe = self.folder.recipe
            as_source = replace(recipe, source_lang=recipe.target_lang)
            text = SourceText(as_source, self.folder.subword_model)
            vocabulary, longest = self.engine.target, self.engine.longest_target
        subwords = text.subwords(text.tokens(line)).split()
        too_long = len(subwords) + 1 > longest
        ids = None
        if subwords and not too_long:
            ids = [*map(vocabulary.index, subwords), vocabulary.eos()]
        return InputSentence(line, subwords, self.words(subwords), ids, too_long)

    def words(self, subwords: Sequence[str]) -> list[Word]:
        """Return the words that subwords form.

        For SentencePiece they are the pieces, since a sentence may have no spaces.
        """
        return words_of(subwords, in_parts=self.folder.recipe.subword != SENTENCEPIECE)

    def search(
        self,
        sentences: Sequence[InputSentence],
        options: TranslationOptions,
        progress: Progress = ignore,
    ) -> list[list[TokenHypothesis]]:
        """Return the hypotheses of each sentence, best first; none for a sentence without words."""
        options = self.engine.prepare_search(options)
        batches = batches_of(sentences, options.max_tokens or self.engine.batch_tokens)
        hypotheses: list[list[TokenHypothesis]] = [[] for _ in sentences]
        results_by_batch = self.engine.search(batches, options, progress)
        for batch, results in zip(batches, results_by_batch, strict=True):
            for place, best in zip(batch.places, results, strict=True):
                hypotheses[place] = best
        return hypotheses

    def translation(
        self,
        sentence: InputSentence,
        hypotheses: list[TokenHypothesis],
        options: TranslationOptions,
    ) -> Translation:
        """Convert the hypotheses of a sentence to text."""
        source = self.engine.source
        unknown = [
            word.text
            for word in sentence.words
            if source.unk_index in map(source.index, sentence.subwords[word.first : word.last + 1])
        ]
        return Translation(
            sentence.line,
            [
                self.hypothesis(sentence, hypothesis, options)
                for hypothesis in hypotheses[: options.nbest]
            ],
            [word.text for word in sentence.words],
            unknown,
            sentence.too_long,
        )

    def hypothesis(
        self, sentence: InputSentence, result: TokenHypothesis, options: TranslationOptions
    ) -> Hypothesis:
        """Convert one hypothesis to text."""
        target = self.engine.target
        ends = (target.eos(), target.bos())
        places = [place for place, token in enumerate(result.tokens) if token not in ends]
        subwords = [target[result.tokens[place]] for place in places]
        pairs: list[tuple[int, int]] = []
        if result.attended is not None:
            attended = [result.attended[place] for place in places]
            if options.replace_unk:
                subwords, attended = replace_unknown(
                    subwords, attended, sentence.words, target.unk_word
                )
            if options.print_alignment:
                pairs = aligned_words(sentence.words, self.words(subwords), attended)
        line = self.target_text.tokens(" ".join(subwords))
        return Hypothesis(self.target_text.text(line), result.score, line.split(), pairs)


def engine_for(
    folder: ModelFolder | ExportedModel,
    precision: str = "fp32",
    device: str | None = None,
    workers: int | None = None,
    in_processes: bool = False,
    user_dir: str | None = None,
) -> Engine:
    """Return the engine for the model in a folder.

    Args:
        folder: of a packed model, or of an export
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one
        workers: processes on a CPU, or threads of CTranslate2 (default: one per core)
        in_processes: whether a packed model's search may fork; otherwise this process searches
        user_dir: defines the model, if it is a variant of the paper's

    Raises:
        UserError: no such precision, or a file of another version.
    """
    if isinstance(folder, ExportedModel):
        from vaswani.decoding.ctranslate2_engine import CTranslate2Engine

        if precision != "fp32":
            raise UserError(
                f"--precision {precision} works only with packed models, and 'vaswani export "
                f"--quantization' has set the precision of {folder.path}: leave out --precision"
            )
        return CTranslate2Engine(folder, device, workers)
    from vaswani.decoding.process_engine import search_processes
    from vaswani.decoding.torch_engine import TorchEngine

    engine = TorchEngine(folder, precision, device, user_dir)
    if in_processes:
        engine.processes = search_processes(workers, engine.on_cpu)
    return engine


def batches_of(sentences: Sequence[InputSentence], max_tokens: int) -> list[Batch]:
    """Return the sentences to translate together, grouped by similar length, shortest first.

    A batch holds at most ``max_tokens``, padding included, or one sentence.
    """
    translatable = [
        (n, sentence.ids) for n, sentence in enumerate(sentences) if sentence.ids is not None
    ]
    translatable.sort(key=lambda pair: len(pair[1]))
    batches: list[Batch] = []
    for place, ids in translatable:
        if not batches or (len(batches[-1].ids) + 1) * len(ids) > max_tokens:
            batches.append(Batch([], []))
        batches[-1].places.append(place)
        batches[-1].ids.append(ids)
    return batches


# ---- words and what they attend to ------------------------------------------------------------


def aligned_words(
    source: Sequence[Word], target: Sequence[Word], attended: Sequence[int]
) -> list[tuple[int, int]]:
    """Return pairs (source word, target word), from 0, whose subwords are linked by attention.

    Args:
        source: the source's words
        target: the hypothesis's words
        attended: for each subword of the hypothesis, a subword of the source
    """
    word_of: dict[int, int] = {}
    for number, word in enumerate(source):
        for subword in range(word.first, word.last + 1):
            word_of[subword] = number
    pairs = []
    for number, word in enumerate(target):
        of_word = attended[word.first : word.last + 1]
        for place in sorted({word_of[subword] for subword in of_word}):
            pairs.append((place, number))
    return pairs


def replace_unknown(
    subwords: Sequence[str], attended: Sequence[int], source: Sequence[Word], unknown: str
) -> tuple[list[str], list[int]]:
    """Return a hypothesis in which unknown words are replaced by copies of source words.

    Several unknown subwords in a row that attend to the same word become one copy of it.

    Args:
        subwords: of the hypothesis
        attended: for each subword, a subword of the source
        source: the source's words
        unknown: the dictionary's symbol

    Returns:
        The subwords, and what they attend to.
    """
    word_of: dict[int, Word] = {}
    for word in source:
        for place in range(word.first, word.last + 1):
            word_of[place] = word
    replaced: list[str] = []
    replaced_attended: list[int] = []
    copied = None
    for subword, place in zip(subwords, attended, strict=True):
        original = word_of.get(place) if subword == unknown else None
        if original is None or original is not copied:
            replaced.append(original.text if original else subword)
            replaced_attended.append(place)
        copied = original
    return replaced, replaced_attended
