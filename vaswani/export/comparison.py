"""What a model and its export are compared by, and the tolerances of it."""

from dataclasses import dataclass
from typing import NamedTuple, Optional, Tuple


class Tolerance(NamedTuple):
    """How large the differences may be."""

    #: root mean square, over tokens, of the difference between two log-probabilities
    log_prob: float
    #: between two BLEU scores; on fewer than 100 / bleu sentences, what one sentence can make
    bleu: float


#: by how parameters are stored: ten times what one rounding, or one sum, is wrong by, relative to
#: its size; the logits of a Transformer are of the order of 10. In float32 both have the same
#: parameters and add in another order: 2^-24 in sums of 2,048 products, in the 36 sublayers and
#: norms of a base model, is 2^-24 · √2048 · 36 = 1e-4. (fairseq's ε of 1e-5 in its LayerNorms,
#: where this plugin's is 1e-6, is 5e-6 of a variance of 1.) The others round the parameters: by
#: 2^-11, by 2^-8; in int8, with a maximum of 3.5 standard deviations, by 3.5 / 127 / √12 = 8e-3,
#: and the activations too, together 1e-2.
TOLERANCES = {
    "float32": Tolerance(1e-3, 0.2),
    "float16": Tolerance(5e-3, 0.2),
    "bfloat16": Tolerance(4e-2, 0.2),
    "int8": Tolerance(0.1, 0.5),
}
#: of BLEU, where the search has another length penalty
OTHER_RULE = 0.5
#: without references: the share of translations that may be worse (but one always may)
WORSE = 0.01


@dataclass(frozen=True)
class ModelComparison:
    """The comparison of the models: log-probabilities of the packed model's translations."""

    #: with the ends of sentences
    tokens: int
    #: of the differences, over tokens
    root_mean_square: float
    largest: float
    tolerance: float

    def problem(self) -> Optional[str]:
        """What exceeds the tolerance, if anything."""
        if self.root_mean_square <= self.tolerance:
            return None
        return (
            f"log-probabilities of the same tokens differ by {self.root_mean_square:.2g} (root "
            f"mean square), more than {self.tolerance:g}"
        )


@dataclass(frozen=True)
class TokenizerComparison:
    """The comparison of the packed model's text processing and the export's tokenizer."""

    sentences: int
    #: sentences that are the same tokens
    read: int
    #: translations of them that are the same text
    written: int

    def problem(self) -> Optional[str]:
        """Whether many differ; characters that no text should hold may be read otherwise."""
        for verb, same in (("reads", self.read), ("writes", self.written)):
            if self.sentences - same > max(1.0, self.sentences * WORSE):
                return f"it {verb} only {same:,} of {self.sentences:,} as the packed model does"
        return None


@dataclass(frozen=True)
class SearchComparison:
    """The comparison of two searches.

    Of the translations that differ, the packed model scores some of the export's as better or worse
    by more than the tolerance; some were cut at the maximum length; the rest are ties.
    """

    search: str
    sentences: int
    identical: int
    better: int
    worse: int
    cut: int
    #: of the packed model and the export; None: there are no references
    bleu: Optional[Tuple[float, float]]
    speed: float
    #: of BLEU
    tolerance: float

    @property
    def bleu_difference(self) -> Optional[float]:
        """How much better the export's is."""
        return None if self.bleu is None else self.bleu[1] - self.bleu[0]

    def problem(self) -> Optional[str]:
        """What exceeds the tolerance, if anything; without references, whether many are worse."""
        gap, most = self.bleu_difference, max(self.tolerance, 100 / self.sentences)
        if gap is not None and not abs(gap) <= most:
            return f"BLEU differs by {gap:+.2f}, more than {most:.2g}"
        if gap is None and self.worse > max(1.0, self.sentences * WORSE):
            return (
                f"{self.worse} of {self.sentences} translations are worse by the packed model's "
                f"scores, more than {WORSE:.0%} (with --reference FILE, BLEU decides instead)"
            )
        return None
