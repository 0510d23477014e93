"""A model exported to CTranslate2, with the ``Translator`` interface of a packed model.

Neither torch nor fairseq is needed or imported.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

from vaswani.common.errors import UserError
from vaswani.decoding.ctranslate2_options import check, threads
from vaswani.decoding.hypotheses import Found
from vaswani.decoding.search import SearchOptions, search_options
from vaswani.decoding.translator import Source, Translation, Translator, batches, listed
from vaswani.model_folder.ctranslate2_spec import import_ctranslate2
from vaswani.model_folder.folder import MODEL, ModelFolder
from vaswani.model_folder.search_options import EXPORT_CPU_BATCH, GPU_BATCH


class Words:
    """One side's symbols by their numbers: the part of fairseq's dictionary that is needed."""

    unk_word = "<unk>"

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = symbols
        self.numbers = {symbol: number for number, symbol in enumerate(symbols)}
        self.unk_index = self.numbers[self.unk_word]

    def __getitem__(self, number: int) -> str:
        return self.symbols[number]

    def __len__(self) -> int:
        return len(self.symbols)

    def index(self, symbol: str) -> int:
        """The number of a symbol; for an unknown one, that of ``<unk>``."""
        return self.numbers.get(symbol, self.unk_index)

    def eos(self) -> int:
        """The number of the end of sentence."""
        return self.numbers["</s>"]

    def bos(self) -> int:
        """The number of the beginning of sentence."""
        return self.numbers["<s>"]


class CTranslate2Translator(Translator):
    """A model in CTranslate2 that translates text.

    Thread-safe; ``workers`` threads translate at a time.

    Args:
        folder: read by :func:`vaswani.model_folder.folder.read_export`
        precision: ``fp32``; the export has set the stored type, and CTranslate2 computes with it
            if the device can
        device: ``cpu``, ``cuda`` or ``cuda:1``; by default a GPU if there is one
        workers: threads on a CPU, each of which translates a batch (default: one per core)

    Raises:
        UserError: CTranslate2 is missing or cannot load the model; no such device or precision.
    """

    def __init__(
        self,
        folder: ModelFolder,
        precision: str = "fp32",
        device: Optional[str] = None,
        workers: Optional[int] = None,
    ) -> None:
        if precision != "fp32":
            raise UserError(
                f"--precision {precision} is for packed models: how {folder.path} computes was "
                "chosen by 'vaswani export --quantization'"
            )
        self.prepare_text(folder)
        limits = folder.config["limits"]
        source, target = vocabularies(folder)
        self.task = SimpleNamespace(
            source_dictionary=source,
            target_dictionary=target,
            cfg=SimpleNamespace(max_source_positions=limits["source"]),
        )
        self.max_target = limits["target"]
        self.options = search_options(folder.config["generation"], str(folder.path))
        self.workers = threads(workers)
        self.model = load(folder, device, self.workers)

    @property
    def on_cpu(self) -> bool:
        """Whether the model is on a CPU."""
        return bool(self.model.device == "cpu")

    @property
    def batch_tokens(self) -> int:
        """Tokens per batch that suit the device."""
        return EXPORT_CPU_BATCH if self.on_cpu else GPU_BATCH

    def translate(self, sentences: Sequence[str], **options: Any) -> List[Translation]:
        """As :meth:`Translator.translate`, but in several threads at a time."""
        chosen, lines = self.options.changed(**options), listed(sentences)
        with self.lock:
            sources = [self.read(line) for line in lines]
        groups = batches(sources, chosen.max_tokens or self.batch_tokens)
        found = self.find(sources, groups, chosen)
        with self.lock:
            return [self.result(s, found.get(n, []), chosen) for n, s in enumerate(sources)]

    def numbered(self, subwords: List[str]) -> Any:
        """The subwords themselves and the end of sentence, which count for the batch size."""
        return [*subwords, "</s>"]

    def sample(self, sources: Sequence[Source], numbers: Sequence[int]) -> Dict[str, Any]:
        """A batch of subwords."""
        return {"subwords": [sources[number].subwords for number in numbers]}

    def searcher(self, options: SearchOptions) -> Callable[[Dict[str, Any]], Found]:
        """As :meth:`vaswani.decoding.translator.Translator.searcher`."""
        start = self.starter(options)
        return lambda sample: start(sample)()

    def find(
        self,
        sources: Sequence[Source],
        groups: Sequence[Sequence[int]],
        options: SearchOptions,
        progress: Callable[[int], Any] = lambda _: None,
    ) -> Dict[int, List[Dict[str, Any]]]:
        """The hypotheses for the sentences of some batches, which are translated in parallel.

        Args:
            sources: what was read
            groups: the batches, as indexes into the sources
            options: of the search
            progress: called with the number of sentences translated since the last call
        """
        start = self.starter(options)
        # longest first, so that no thread idles at the end
        running = [(group, start(self.sample(sources, group))) for group in reversed(groups)]
        found: Dict[int, List[Dict[str, Any]]] = {}
        for group, wait in running:
            found.update(zip(group, wait(), strict=True))
            progress(len(group))
        return found

    def starter(self, options: SearchOptions) -> Callable[[Dict[str, Any]], Callable[[], Found]]:
        """A function that starts translating a batch and returns one that waits for the result.

        Raises:
            UserError: an option that is invalid, or that CTranslate2 lacks.
        """
        import numpy

        check(options, len(self.task.target_dictionary))
        attending = options.print_alignment or options.replace_unk
        words = self.task.target_dictionary

        def hypotheses_of(result: Any, bound: int) -> List[Dict[str, Any]]:
            return [
                {
                    "tokens": numpy.array(
                        [words.index(subword) for subword in subwords], dtype=int
                    ),
                    "score": score,
                    "subwords": subwords,
                    "cut": len(subwords) >= bound,
                }
                for subwords, score in zip(result.hypotheses, result.scores, strict=True)
            ]

        def start(sample: Dict[str, Any]) -> Callable[[], Found]:
            subwords = sample["subwords"]
            longest = max(len(one) for one in subwords) + 1
            bound = min(int(options.max_len_a * longest + options.max_len_b), self.max_target - 1)
            results = self.model.translate_batch(
                subwords,
                asynchronous=True,
                beam_size=options.beam,
                num_hypotheses=options.nbest,
                length_penalty=options.lenpen,
                no_repeat_ngram_size=options.no_repeat_ngram_size,
                max_input_length=0,
                max_decoding_length=bound,
                min_decoding_length=options.min_len,
                return_scores=True,
            )

            def wait() -> Found:
                found = [hypotheses_of(result.result(), bound) for result in results]
                if attending:
                    self.add_attention(subwords, found)
                return found

            return wait

        return start

    def add_attention(self, subwords: List[List[str]], found: Found) -> None:
        """Give each hypothesis ``source``: for each of its tokens, the subword most looked at.

        Uses a separate pass over the given words: in beam search, CTranslate2 4.8 gives the first
        word the attention of another hypothesis.

        Args:
            subwords: of the sources
            found: changed in place
        """
        import numpy

        rows = [(row, one) for row, best in enumerate(found) for one in best if one["subwords"]]
        if not rows:
            return
        results = self.model.translate_batch(
            [subwords[row] for row, _ in rows],
            target_prefix=[one["subwords"] for _, one in rows],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(len(one["subwords"]) for _, one in rows),
            return_attention=True,
        )
        for (_, one), result in zip(rows, results, strict=True):
            attention = numpy.array(result.attention[0][: len(one["subwords"])])
            one["source"] = attention.argmax(1)


def load(folder: ModelFolder, device: Optional[str], workers: int) -> Any:
    """CTranslate2's translator; UserError if it is missing or cannot load the model."""
    ctranslate2 = import_ctranslate2()
    if device is None:
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    kind, _, number = device.partition(":")
    try:
        return ctranslate2.Translator(
            str(folder.path),
            device=kind,
            device_index=int(number or 0),
            inter_threads=workers if kind == "cpu" else 1,
            intra_threads=1 if kind == "cpu" else 0,
        )
    except (RuntimeError, ValueError) as error:
        problem = str(error).splitlines()[0]
        raise UserError(f"{folder.path / MODEL}: CTranslate2 cannot load it ({problem})") from None


def vocabularies(folder: ModelFolder) -> List[Words]:
    """The vocabularies of source and target."""
    found = []
    for side in ("source", "target"):
        paths = [folder.path / f"{name}_vocabulary.json" for name in (side, "shared")]
        path = next((path for path in paths if path.name in folder.sums), None)
        if path is None:
            raise UserError(f"{folder.path} is incomplete: {paths[0].name} is missing")
        symbols = read_json_list(path)
        if not {"<s>", "</s>", "<unk>"} <= set(symbols):
            raise UserError(f"{path} was altered or damaged: it is not a list of words")
        found.append(Words(symbols))
    return found


def read_json_list(path: Path) -> List[str]:
    """The strings in a JSON list; none if it is no such list."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return []
    return content if isinstance(content, list) and all(type(w) is str for w in content) else []
