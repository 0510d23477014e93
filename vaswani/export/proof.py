"""The proof of an export: its model says what the packed model says, and it translates as well.

The two are proved apart, since a search turns the last digit of a score into another translation:

- the model: both give the packed model's translations the same log-probabilities, token by token;
- the search: nearly all translations are identical; with references, BLEU of both is given.

The sentences are translated with the model's own search settings, and greedily. A model that uses
the paper's length penalty (``gnmt``), which no target has, is exported with the nearest exponent of
fairseq's rule, with which both are compared as above. By how much BLEU differs from that of
``gnmt`` is only said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics import BLEU

from vaswani.common.errors import UserError
from vaswani.common.progress import stage_bar
from vaswani.decoding.process_engine import one_thread
from vaswani.decoding.translator import Translator, batches_of
from vaswani.export.comparison import (
    LEAST_IDENTICAL,
    TOLERANCES,
    ModelComparison,
    SearchComparison,
    TokenizerComparison,
)
from vaswani.export.text import ProofText
from vaswani.folders.search_options import CPU_BATCH, TranslationOptions
from vaswani.scoring.bleu import has_spaces, tokens_for


@dataclass(frozen=True)
class SystemOutput:
    """A system's translations of the sentences."""

    texts: list[str]
    #: without the end of sentence
    subwords: list[list[str]]


def nearest_exponent(alpha: float, length: float) -> float:
    """Return the λ for which length^λ is nearest to the paper's ((5 + length) / 6)^α.

    It has the same slope there, dlog/dlog length.

    Args:
        alpha: ``--lenpen`` of ``gnmt``
        length: mean number of tokens, including the end of sentence
    """
    return alpha * length / (5 + length)


def translate_all(
    translator: Translator, sentences: list[str], options: TranslationOptions, who: str
) -> SystemOutput:
    """Translate on one thread, in batches that are the same for every translator.

    Args:
        translator: of the packed model, or of the export
        sentences: raw text
        options: of the search
        who: translates, for the progress bar
    """
    sources = [translator.read(line) for line in sentences]
    title = f"{who}, {search_name(options)}"
    with one_thread(), stage_bar(title, len(sources), "sentences") as bar:
        options_here = options.changed(max_tokens=CPU_BATCH)
        hypotheses = translator.search(sources, options_here, bar.update)
    results = [
        translator.translation(source, best, options)
        for source, best in zip(sources, hypotheses, strict=True)
    ]
    words = translator.engine.target
    return SystemOutput(
        [result.text for result in results],
        [[words[t] for t in best.tokens if t != words.eos()] for best, *_ in hypotheses],
    )


def log_probabilities(
    translator: Translator, sentences: Sequence[str], targets: Sequence[list[str]]
) -> list[list[float]]:
    """Return the log-probability of each subword of each translation, and of its end.

    Args:
        translator: of a packed model, or of an export
        sentences: raw text; none is blank or too long
        targets: a translation of each, as subwords without an end
    """
    sources = [translator.read(line) for line in sentences]
    log_probs: list[list[float]] = [[] for _ in sources]
    with one_thread(), stage_bar("log-probabilities", len(sources), "sentences") as bar:
        for batch in batches_of(sources, CPU_BATCH):
            of_batch = [targets[place] for place in batch.places]
            rows = translator.engine.log_probabilities(batch, of_batch)
            for place, row in zip(batch.places, rows, strict=True):
                log_probs[place] = row
            bar.update(len(batch.places))
    return log_probs


class Proof:
    """A comparison of a packed model and its export.

    Translates with the packed model's search settings, and computes the exponent for the export.

    Args:
        text: the text to translate; its lines that are blank, or too long for the model, are left
            out
        quantization: the export's quantization
        translator: the packed model's

    Raises:
        UserError: nothing is left of the text.
    """

    def __init__(self, text: ProofText, quantization: str | None, translator: Translator) -> None:
        self.translator = translator
        stored_as = quantization or "float32"
        self.tolerance = TOLERANCES[stored_as]
        self.least_identical = LEAST_IDENTICAL[stored_as]
        self.packed_outputs: dict[TranslationOptions, SystemOutput] = {}
        self.rows: list[SearchComparison] = []
        self.tokenizer: TokenizerComparison | None = None
        #: sacreBLEU's, if there are references
        self.metric: BLEU | None = None
        numbered = enumerate(text.source)
        self.text = text.only([n for n, line in numbered if translator.read(line).ids is not None])
        if not self.text.source:
            raise UserError(
                f"{text.name} has no sentence within the model's length limit: give another file "
                "with --text"
            )
        self.packed_search = translator.options.changed(nbest=1)
        lengths = [len(subwords) + 1 for subwords in self.output(self.packed_search).subwords]
        self.length = sum(lengths) / len(lengths)
        lenpen = self.packed_search.lenpen
        if self.packed_search.length_penalty == "gnmt":
            lenpen = round(nearest_exponent(lenpen, self.length), 3)
        self.exported_search = self.packed_search.changed(length_penalty="fairseq", lenpen=lenpen)

    def output(self, options: TranslationOptions) -> SystemOutput:
        """Return the packed model's translations."""
        if options not in self.packed_outputs:
            self.packed_outputs[options] = translate_all(
                self.translator, self.text.source, options, "packed model"
            )
        return self.packed_outputs[options]

    def generation(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the section of the export's record on decoding."""
        return {
            **packed,
            "length_penalty": self.exported_search.length_penalty,
            "lenpen": self.exported_search.lenpen,
        }

    def compare(self, exported: Translator) -> None:
        """Compare with the export's translator, which searches with its own options."""
        beams = list(dict.fromkeys([1, self.exported_search.beam]))
        searches = [exported.options.changed(beam=beam, nbest=1) for beam in beams]
        tokenizer = getattr(exported.engine, "tokenizer", None)
        if tokenizer:
            self.tokenizer = self.compare_tokenizer(tokenizer)
        self.model = self.compare_models(exported)
        for beam, search in zip(beams, searches, strict=True):
            options = self.exported_search.changed(beam=beam)
            output = translate_all(exported, self.text.source, search, "export")
            self.rows.append(self.row(options, output, search_name(options), self.least_identical))
        if self.packed_search != self.exported_search:
            self.rows.append(self.row(self.packed_search, output, self.other_rule(), None))

    def other_rule(self) -> str:
        """Return the export's rule in place of the paper's length penalty."""
        lenpen = self.exported_search.lenpen
        return f"{search_name(self.packed_search)}: there {lenpen:g}, by fairseq's rule"

    def compare_models(self, exported: Translator) -> ModelComparison:
        """Compare both models' log-probabilities of the packed model's translations."""
        targets = self.output(self.exported_search).subwords
        log_probs = [
            sum(log_probabilities(translator, self.text.source, targets), [])
            for translator in (self.translator, exported)
        ]
        gaps = [abs(a - b) for a, b in zip(*log_probs, strict=True)]
        squares = math.fsum(gap * gap for gap in gaps)
        rms = math.sqrt(squares / len(gaps))
        return ModelComparison(len(gaps), rms, max(gaps), self.tolerance)

    def compare_tokenizer(self, tokenizer: Any) -> TokenizerComparison:
        """Compare how transformers' tokenizer reads sentences, and how it writes translations."""
        lines = self.text.source
        output = self.output(self.exported_search)
        lowercase = self.translator.folder.recipe.lowercase  # which the export's tokenizer is not
        vocabulary = self.translator.engine.target
        end = vocabulary.eos()
        targets = [[*map(vocabulary.index, subwords), end] for subwords in output.subwords]
        written = tokenizer.batch_decode(targets, skip_special_tokens=True)
        return TokenizerComparison(
            len(lines),
            sum(
                self.translator.read(line).ids
                == tokenizer(line.lower() if lowercase else line)["input_ids"]
                for line in lines
            ),
            sum(a == b for a, b in zip(output.texts, written, strict=True)),
        )

    def row(
        self,
        options: TranslationOptions,
        exported: SystemOutput,
        name: str,
        least_identical: float | None,
    ) -> SearchComparison:
        """Compare one search of the packed model with the same search of the export.

        Args:
            options: of the packed model's search
            exported: what the export made of the text
            name: of the comparison
            least_identical: the least share; None: the export searches by another length penalty
        """
        packed = self.output(options)
        identical = sum(a == b for a, b in zip(packed.texts, exported.texts, strict=True))
        bleu = None
        reference = self.text.reference
        if reference is not None:
            self.metric = bleu_of(self.translator.folder.recipe.target_lang, reference)
            bleu = [
                self.metric.corpus_score(output.texts, [reference]).score
                for output in (packed, exported)
            ]
        return SearchComparison(name, len(packed.texts), identical, least_identical, bleu)

    # ---- what is said ---------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """Return the comparisons, one on each line."""
        model, tokenizer = self.model, self.tokenizer
        lines = [
            f"{len(self.text.source):,} sentences of {self.text.name}, on a CPU:",
            f"log-probabilities of {model.tokens:,} tokens differ by {model.root_mean_square:.1e} "
            f"(root mean square; at most {model.tolerance:g}), the largest by {model.largest:.1e}",
        ]
        if tokenizer:
            same = f"{tokenizer.read:,} and writes {tokenizer.written:,}"
            lines.append(f"the tokenizer reads {same} alike")
        lines += [row.line() for row in self.rows]
        return lines + ([f"BLEU: {self.metric.get_signature()}"] if self.metric else [])

    def print_and_check(self, target: str) -> None:
        """Print the lines; raise UserError if a difference exceeds its tolerance."""
        print("\n".join(self.lines()), flush=True)
        problems = {"the model": self.model.problem()}
        if self.tokenizer:
            problems["the tokenizer"] = self.tokenizer.problem()
        problems.update((row.search, row.problem()) for row in self.rows)
        for name, problem in problems.items():
            if problem:
                raise UserError(
                    f"the export to {target} fails its verification: {name}: {problem}; nothing "
                    "was written. To see whether the cause is this text, give more lines "
                    "(--lines N; 0: all) or another text (--text FILE, --reference FILE)"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the comparison in the form of vaswani.json."""
        return {
            "text": self.text.name,
            "mean_length": round(self.length, 2),
            "model": asdict(self.model),
            **({"tokenizer": asdict(self.tokenizer)} if self.tokenizer else {}),
            "rows": [asdict(row) for row in self.rows],
        }


def search_name(options: TranslationOptions) -> str:
    """Describe a search in words."""
    if options.beam == 1:
        return "greedy"
    rule = "gnmt " if options.length_penalty == "gnmt" else ""
    return f"beam {options.beam}, lenpen {rule}{options.lenpen:g}"


def bleu_of(lang: str, references: list[str]) -> BLEU:
    """Return sacreBLEU's BLEU, with the tokeniser that ``vaswani score`` uses for this language."""
    tokens, _ = tokens_for(lang, has_spaces(lang, references))
    return BLEU(tokenize=tokens, force=True)
