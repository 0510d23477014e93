"""A packed model in Python.

from vaswani import Translator

translator = Translator.from_pretrained("runs/demo_en_de/model")
for translation in translator.translate(["The house is big.", "It is old."]):
    print(translation.text, translation.score)
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from vaswani.common.errors import UserError
from vaswani.data.bpe import undo
from vaswani.decoding import hypotheses
from vaswani.decoding.hypotheses import Found, Word
from vaswani.decoding.search import SearchOptions, search_options, seeded
from vaswani.model_folder.folder import CODES, ModelFolder, is_export, read_model
from vaswani.model_folder.search_options import CPU_BATCH, GPU_BATCH
from vaswani.model_folder.text_recipe import SourceText, target_text


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence that beam search found."""

    text: str
    #: log-probability, divided by the length penalty
    score: float
    #: the words before they are joined to text, BPE undone
    tokens: List[str]
    #: pairs (number in source_tokens, number in tokens), from 0; empty unless requested
    alignment: List[Tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Translation:
    """A sentence and its translations."""

    source: str
    #: best first; empty for a blank line, and for one that is too long
    hypotheses: List[Hypothesis]
    #: the source's words, as the tokeniser sees them
    source_tokens: List[str]
    #: those of them that are wholly or partly unknown to the model
    unknown: List[str]
    #: more subwords than the model accepts: not translated
    too_long: bool = False

    @property
    def text(self) -> str:
        """The best translation; empty if there is none."""
        return self.hypotheses[0].text if self.hypotheses else ""

    @property
    def score(self) -> Optional[float]:
        """The score of the best translation."""
        return self.hypotheses[0].score if self.hypotheses else None


class Source(NamedTuple):
    """A sentence that is ready to be translated."""

    line: str
    subwords: List[str]
    words: List[Word]
    #: numbers of the subwords and the end of sentence, int64 [S]; None: nothing to translate
    numbers: Any
    too_long: bool


class Translator:
    """A model that translates text.

    Thread-safe: calls from several threads wait for each other. Several sentences in one call are
    faster than one sentence per call.

    Args:
        folder: read by :func:`vaswani.model_folder.folder.read_folder`
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one

    Attributes:
        options: how to search, unless a call says otherwise
    """

    def __init__(
        self, folder: ModelFolder, precision: str = "fp32", device: Optional[str] = None
    ) -> None:
        from vaswani.model_folder.packed_model import build

        self.options = search_options(folder.config["generation"], str(folder.path))
        self.task, self.model = build(folder, precision, device)
        self.prepare_text(folder)

    def prepare_text(self, folder: ModelFolder) -> None:
        """Set up what is needed to read and write text as the folder says."""
        recipe = folder.recipe
        self.folder = folder
        self.source_text = SourceText(recipe, folder.path / CODES if recipe.bpe else None)
        self.to_text = target_text(recipe)
        self.lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls, path: Union[str, Path], precision: str = "fp32", device: Optional[str] = None
    ) -> "Translator":
        """The model in a folder that ``vaswani pack`` made, or ``vaswani export --to ctranslate2``.

        Raises:
            vaswani.common.errors.UserError: it is not such a folder, or was altered.
        """
        folder = read_model(Path(path))
        if is_export(folder):
            from vaswani.decoding.ctranslate2_translator import CTranslate2Translator

            return CTranslate2Translator(folder, precision, device)
        return cls(folder, precision, device)

    def translate(self, sentences: Sequence[str], **options: Any) -> List[Translation]:
        """Translate sentences, one translation for each, in their order.

        Args:
            sentences: raw text; a line feed in one is read as a space
            options: fields of :class:`vaswani.decoding.search.SearchOptions` that override those
                in ``self.options``, such as ``beam=5``, ``nbest=5``, ``print_alignment=True``

        Raises:
            TypeError: an unknown option or one of another type, or anything but a list of strings.
            UserError, ConfigError: an option's value that cannot work; both are ValueErrors.
        """
        chosen, lines = self.options.changed(**options), listed(sentences)
        with self.lock:
            sources = [self.read(line) for line in lines]
            search = self.searcher(chosen)
            found: Dict[int, List[Any]] = {}
            for numbers in batches(sources, chosen.max_tokens or self.batch_tokens):
                results = search(self.sample(sources, numbers))
                found.update(zip(numbers, results, strict=True))
            return [self.result(s, found.get(n, []), chosen) for n, s in enumerate(sources)]

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Translator cannot be pickled or copied: pass on the name of its folder, and call "
            "Translator.from_pretrained there"
        )

    # ---- the steps, for those who search elsewhere ---------------------------------------------

    @property
    def batch_tokens(self) -> int:
        """Tokens per batch that suit the device."""
        return CPU_BATCH if self.on_cpu else GPU_BATCH

    @property
    def on_cpu(self) -> bool:
        """Whether the model is on a CPU."""
        return next(self.model.parameters()).device.type == "cpu"

    def read(self, line: str) -> Source:
        """Convert raw text to the model's input."""
        subwords = self.source_text.subwords(self.source_text.tokens(line)).split()
        too_long = len(subwords) + 1 > self.task.cfg.max_source_positions
        numbers = self.numbered(subwords) if subwords and not too_long else None
        return Source(line, subwords, hypotheses.words_of(subwords), numbers, too_long)

    def numbered(self, subwords: List[str]) -> Any:
        """The numbers of the subwords and the end of sentence, int64 [S]."""
        dictionary = self.task.source_dictionary
        return dictionary.encode_line(
            " ".join(subwords), add_if_not_exist=False, append_eos=True
        ).long()

    def sample(self, sources: Sequence[Source], numbers: Sequence[int]) -> Dict[str, Any]:
        """A batch in fairseq's form."""
        import torch
        from fairseq.data.data_utils import collate_tokens

        device = next(self.model.parameters()).device
        rows = [sources[number].numbers for number in numbers]
        pad = self.task.source_dictionary.pad()
        return {
            "id": torch.tensor(numbers),
            "net_input": {
                "src_tokens": collate_tokens(rows, pad, left_pad=True).to(device),
                "src_lengths": torch.tensor([len(row) for row in rows], device=device),
            },
        }

    def searcher(self, options: SearchOptions) -> Callable[[Dict[str, Any]], Found]:
        """A function from a batch to the hypotheses of its sentences.

        Raises:
            UserError, ConfigError: an invalid option.
        """
        import torch

        generation = options.generation(len(self.task.target_dictionary))
        self.task.cfg.length_penalty = options.length_penalty
        generator = self.task.build_generator([self.model], generation)
        attending = options.print_alignment or options.replace_unk

        def search(sample: Dict[str, Any]) -> Found:
            with seeded(options, sample), torch.no_grad():
                try:
                    found: Found = self.task.inference_step(generator, [self.model], sample)
                except FloatingPointError as error:  # ours, and written for the user
                    raise UserError(f"{self.folder.path}: {error}") from None
                if attending:
                    hypotheses.add_attention(self.model, sample, found)
                return found

        return search

    def result(self, source: Source, found: List[Any], options: SearchOptions) -> Translation:
        """The hypotheses of a sentence as text."""
        dictionary = self.task.source_dictionary
        words = source.words
        unknown = [
            word.text
            for word in words
            if dictionary.unk_index
            in [
                dictionary.index(subword) for subword in source.subwords[word.first : word.last + 1]
            ]
        ]
        return Translation(
            source.line,
            [self.hypothesis(source, one, options) for one in found[: options.nbest]],
            [word.text for word in words],
            unknown,
            source.too_long,
        )

    def hypothesis(
        self, source: Source, found: Dict[str, Any], options: SearchOptions
    ) -> Hypothesis:
        """One hypothesis as text."""
        dictionary = self.task.target_dictionary
        ends = (dictionary.eos(), dictionary.bos())
        tokens = found["tokens"].tolist()
        kept = [place for place, token in enumerate(tokens) if token not in ends]
        subwords = [dictionary[tokens[place]] for place in kept]
        pairs: List[Tuple[int, int]] = []
        if "source" in found:
            looked_at = [found["source"].tolist()[place] for place in kept]
            if options.replace_unk:
                subwords, looked_at = hypotheses.replace_unknown(
                    subwords, looked_at, source.words, dictionary.unk_word
                )
            if options.print_alignment:
                words = hypotheses.words_of(subwords)
                pairs = hypotheses.aligned_words(source.words, words, looked_at)
        line = undo(" ".join(subwords))
        return Hypothesis(self.to_text(line), float(found["score"]), line.split(), pairs)


def listed(sentences: Any) -> List[str]:
    """The sentences given to ``translate``; TypeError if they are not strings."""
    if isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable):
        kind = "a string" if isinstance(sentences, str) else type(sentences).__name__
        raise TypeError(f"translate takes a list of sentences, not {kind}: translate([text])")
    found = list(sentences)
    for number, sentence in enumerate(found, 1):
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {number} is {type(sentence).__name__}, but must be str")
    return found


def batches(sources: Sequence[Source], max_tokens: int) -> List[List[int]]:
    """The numbers of the sentences to translate together, grouped by similar length.

    A batch holds at most ``max_tokens``, padding included, or one sentence.
    """
    there = [number for number, source in enumerate(sources) if source.numbers is not None]
    there.sort(key=lambda number: len(sources[number].numbers))
    made: List[List[int]] = []
    for number in there:
        if made and (len(made[-1]) + 1) * len(sources[number].numbers) <= max_tokens:
            made[-1].append(number)
        else:
            made.append([number])
    return made
