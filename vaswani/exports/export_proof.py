"""Compares translations of the same sentences by a packed model and by its export.

The sentences are translated with the model's own search settings, and greedily. A model that uses
the paper's length penalty (``gnmt``), which no target has, is exported with the nearest exponent of
fairseq's rule, and also compared by that rule, with which both must find the same.
"""

import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from vaswani.decoding.search import SearchOptions
from vaswani.errors import UserError
from vaswani.exports.export_text import Text


class Tolerance(NamedTuple):
    """How large the differences in a comparison may be."""

    #: least percentage of identical translations (but one may always differ)
    identical: Optional[float] = None
    #: between any two scores, which are log-probabilities by length^lenpen: no more than a tie
    score: Optional[float] = None
    #: between two BLEU scores
    bleu: Optional[float] = None


#: for float32: the rest are ties, decided by the last digit. (CTranslate2 excludes the end of
#: sentence before the first softmax, fairseq after it: scores differ by its probability there.)
SAME = Tolerance(identical=99.5, score=5e-3)
#: fairseq's norms have an ε of 1e-5
NEARLY = Tolerance(identical=99.0, score=1e-2)
#: another length penalty or number type
STORED = {
    "float16": Tolerance(bleu=0.2),
    "bfloat16": Tolerance(bleu=0.2),
    "int8": Tolerance(bleu=0.5),
}
OTHER_RULE = Tolerance(bleu=0.5)


@dataclass(frozen=True)
class Output:
    """A system's translations of the sentences."""

    texts: List[str]
    scores: List[float]
    #: in tokens, including the end of sentence
    lengths: List[int]
    #: which reached the maximum length without an end, if the system says so: CTranslate2 scores
    #: them without the end that fairseq adds
    cut: List[bool]
    seconds: float


@dataclass(frozen=True)
class Row:
    """One comparison."""

    search: str
    sentences: int
    identical: int
    #: the largest; None: the two kinds of score are not comparable
    score_difference: Optional[float]
    #: of ours and theirs; without references, only of theirs against ours
    bleu: Tuple[float, ...]
    speed: float
    tolerance: Tolerance

    @property
    def bleu_difference(self) -> float:
        """How much better theirs is; without references, how far it is from ours."""
        return self.bleu[-1] - (self.bleu[0] if len(self.bleu) == 2 else 100.0)

    def problem(self) -> Optional[str]:
        """What exceeds the tolerance, if anything."""
        limit, other = self.tolerance, self.sentences - self.identical
        if limit.identical and other > max(1.0, self.sentences * (1 - limit.identical / 100)):
            return (
                f"{other} of {self.sentences} translations differ, but at least "
                f"{limit.identical} % must be the same"
            )
        gap = self.score_difference
        if limit.score and gap is not None and not gap <= limit.score:
            return f"scores differ by {gap:.2g}, more than {limit.score:g}"
        if limit.bleu and not abs(self.bleu_difference) <= limit.bleu:
            return f"BLEU differs by {self.bleu_difference:+.2f}, more than {limit.bleu}"
        return None


def nearest_exponent(alpha: float, length: float) -> float:
    """The λ for which length^λ is nearest to the paper's ((5 + length) / 6)^α at a given length.

    It has the same slope there, dlog/dlog length.

    Args:
        alpha: ``--lenpen`` of ``gnmt``
        length: mean number of tokens, including the end of sentence
    """
    return alpha * length / (5 + length)


def translate_all(translator: Any, sentences: List[str], options: SearchOptions) -> Output:
    """Translate on one thread, in the batches of ``vaswani translate``."""
    from vaswani.decoding.translator import batches
    from vaswani.decoding.workers import one_thread

    sources = [translator.read(line) for line in sentences]
    search = translator.searcher(options)
    groups = batches(sources, translator.batch_tokens)
    found: Dict[int, Any] = {}
    with one_thread():
        search(translator.sample(sources, groups[0][:1]))  # one-time work
        start = time.perf_counter()
        for group in groups:
            found.update(zip(group, search(translator.sample(sources, group)), strict=True))
        seconds = time.perf_counter() - start
    results = [translator.result(s, found.get(n, []), options) for n, s in enumerate(sources)]
    best = [found[number][0] for number in range(len(sources))]
    return Output(
        [result.text for result in results],
        [float(one["score"]) for one in best],
        [len(one["tokens"]) for one in best],
        [bool(one.get("cut")) for one in best],
        seconds,
    )


class Proof:
    """A comparison of translations.

    Args:
        text: the text to translate
        target: the export's target
        quantization: the export's quantization
    """

    def __init__(self, text: Text, target: str, quantization: Optional[str]) -> None:
        self.text, self.target, self.quantization = text, target, quantization
        self.ours: Dict[SearchOptions, Output] = {}
        self.rows: List[Row] = []

    def translate_ours(self, translator: Any) -> None:
        """Translate with the packed model's search settings; finds the exponent for the export.

        Raises:
            UserError: a line is longer than the model accepts, or there is nothing to compare.
        """
        self.translator = translator
        taken = [translator.read(line).numbers is not None for line in self.text.source]
        if not any(taken):
            raise UserError(f"{self.text.name} holds no sentence that the model takes")
        self.text = Text(
            self.text.name,
            [line for line, ok in zip(self.text.source, taken, strict=True) if ok],
            None
            if self.text.reference is None
            else [line for line, ok in zip(self.text.reference, taken, strict=True) if ok],
        )
        self.asked = translator.options.changed(nbest=1)
        lengths = self.output(self.asked).lengths
        self.length = sum(lengths) / len(lengths)
        if self.asked.length_penalty == "gnmt":
            nearest = round(nearest_exponent(self.asked.lenpen, self.length), 3)
            self.plain = self.asked.changed(length_penalty="fairseq", lenpen=nearest)
        else:
            self.plain = self.asked

    def output(self, options: SearchOptions) -> Output:
        """What the packed model finds."""
        if options not in self.ours:
            self.ours[options] = translate_all(self.translator, self.text.source, options)
        return self.ours[options]

    def generation(self, packed: Dict[str, Any]) -> Dict[str, Any]:
        """The section of the export that says how to decode."""
        return {
            **packed,
            "length_penalty": self.plain.length_penalty,
            "lenpen": self.plain.lenpen,
        }

    def compare(self, theirs: Any) -> None:
        """Compare with the export, which ``theirs`` translates with."""
        usual = SAME if self.target == "ctranslate2" or self.same_norms() else NEARLY
        usual = STORED[self.quantization] if self.quantization else usual
        greedy = self.plain.changed(beam=1)
        for options in dict.fromkeys([greedy, self.plain]):
            found = translate_all(theirs, self.text.source, options)
            self.rows.append(self.row(said(options), self.output(options), found, usual))
        if self.asked != self.plain:
            name = f"{said(self.asked)}: there {self.plain.lenpen:g}, by fairseq's rule"
            self.rows.append(self.row(name, self.output(self.asked), found, OTHER_RULE))

    def same_norms(self) -> bool:
        """Whether the model's norms use fairseq's ε."""
        return bool(self.translator.folder.config["architecture"]["layer_norm_eps"] == 1e-5)

    def row(self, name: str, ours: Output, theirs: Output, tolerance: Tolerance) -> Row:
        """One comparison."""
        pairs = list(zip(ours.texts, theirs.texts, strict=True))
        gaps = [abs(a - b) for a, b in zip(ours.scores, theirs.scores, strict=True)]
        gaps = [gap for gap, cut in zip(gaps, theirs.cut, strict=True) if not cut] or [0.0]
        same = [a == b for a, b in pairs]
        reference = self.text.reference
        if reference is None:
            scores: Tuple[float, ...] = (bleu(theirs.texts, ours.texts),)
        else:
            scores = (bleu(ours.texts, reference), bleu(theirs.texts, reference))
        speed = ours.seconds / theirs.seconds
        gap = None if tolerance is OTHER_RULE else max(gaps)
        return Row(name, len(pairs), sum(same), gap, scores, speed, tolerance)

    # ---- what is said ---------------------------------------------------------------------------

    def lines(self) -> List[str]:
        """The table."""
        bleus = ["BLEU packed", "exported"] if self.text.reference else ["BLEU against packed"]
        table = [["search", "identical", "", "scores differ by", *bleus, "difference", "speed"]]
        for row in self.rows:
            share = 100 * row.identical / row.sentences
            gap = "–" if row.score_difference is None else f"{row.score_difference:.1e}"
            table.append(
                [
                    row.search,
                    f"{row.identical:,} of {row.sentences:,}",
                    f"{share:.2f} %",
                    gap,
                    *(f"{score:.2f}" for score in row.bleu),
                    f"{row.bleu_difference:+.2f}",
                    f"{row.speed:.2f}x",
                ]
            )
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [
            f"{len(self.text.source):,} sentences of {self.text.name}, one thread each, on a CPU:",
            *(
                "  ".join(
                    cell.rjust(width) if place else cell.ljust(width)
                    for place, (cell, width) in enumerate(zip(line, widths, strict=True))
                )
                for line in table
            ),
        ]

    def tell(self) -> None:
        """Print the table; UserError if anything exceeds its tolerance."""
        print("\n".join(self.lines()))
        sys.stdout.flush()
        for row in self.rows:
            problem = row.problem()
            if problem:
                raise UserError(
                    f"the export to {self.target} fails its proof: {row.search}: {problem}; "
                    "nothing was written"
                )

    def table(self) -> Dict[str, Any]:
        """For vaswani.json."""
        return {
            "text": self.text.name,
            "mean_length": round(self.length, 2),
            "rows": [
                {
                    **asdict(row),
                    "tolerance": row.tolerance._asdict(),
                    "bleu_difference": round(row.bleu_difference, 4),
                }
                for row in self.rows
            ],
        }


def said(options: SearchOptions) -> str:
    """A search in words."""
    if options.beam == 1:
        return "greedy"
    rule = "gnmt " if options.length_penalty == "gnmt" else ""
    return f"beam {options.beam}, lenpen {rule}{options.lenpen:g}"


def bleu(hypotheses: List[str], references: List[str]) -> float:
    """sacreBLEU's score with its default settings."""
    from sacrebleu.metrics import BLEU

    return float(BLEU(force=True).corpus_score(hypotheses, [references]).score)
