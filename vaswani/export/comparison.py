"""What a model and its export are compared by, and the tolerances of it."""

from dataclasses import dataclass

#: of log-probabilities (the root mean square of their differences), by how parameters are stored:
#: ten times what one rounding, or one sum, is wrong by, relative to its size; the logits of a
#: Transformer are of the order of 10. In float32 both have the same parameters and add in another
#: order: 2^-24 in sums of 2,048 products, in the 36 sublayers and norms of a base model, is
#: 2^-24 · √2048 · 36 = 1e-4. (fairseq's ε of 1e-5 in its LayerNorms, where this plugin's is 1e-6,
#: is 5e-6 of a variance of 1.) The others round the parameters: by 2^-11, by 2^-8; in int8, with a
#: maximum of 3.5 standard deviations, by 3.5 / 127 / √12 = 8e-3, and the activations too, together
#: 1e-2.
TOLERANCES = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 4e-2, "int8": 0.1}
#: the least share of identical translations, by the same: a search may take either of two words
#: that are equally likely within rounding. Of a model that has learned little, and of a trained one
#: on text unlike its own, 99, 99, 93 and 79 % were; with lenpen -5 in place of 0.6, 75 %
LEAST_IDENTICAL = {"float32": 0.9, "float16": 0.9, "bfloat16": 0.75, "int8": 0.6}
#: the share of sentences that a tokenizer may read differently (but one always may)
OTHERWISE = 0.01


@dataclass(frozen=True)
class ModelComparison:
    """The comparison of the models: log-probabilities of the packed model's translations."""

    #: with the ends of sentences
    tokens: int
    #: of the differences, over tokens
    root_mean_square: float
    largest: float
    tolerance: float

    def problem(self) -> str | None:
        """Return which difference exceeds the tolerance, or None."""
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

    def problem(self) -> str | None:
        """Return a sentence if many texts differ, or None.

        A few may differ by characters that no text should hold.
        """
        for verb, same in (("reads", self.read), ("writes", self.written)):
            if self.sentences - same > max(1.0, self.sentences * OTHERWISE):
                return f"it {verb} only {same:,} of {self.sentences:,} as the packed model does"
        return None


@dataclass(frozen=True)
class SearchComparison:
    """The comparison of two searches, by their translations of the same sentences."""

    search: str
    sentences: int
    identical: int
    #: the least share of identical ones; None: the export searches by another length penalty, and
    #: nothing is refused
    least_identical: float | None
    #: of the packed model and the export; None: there are no references
    bleu: list[float] | None

    def line(self) -> str:
        """Return the comparison as a line to read."""
        bleu = f"; BLEU {self.bleu[0]:.2f}, exported {self.bleu[1]:.2f}" if self.bleu else ""
        share = self.identical / self.sentences
        return (
            f"{self.search}: {self.identical:,} of {self.sentences:,} translations are identical "
            f"({share:.1%}){bleu}"
        )

    def problem(self) -> str | None:
        """Return a sentence if more differ than rounding explains, or None; one always may."""
        if self.least_identical is None:
            return None
        different = self.sentences - self.identical
        if different <= max(1.0, self.sentences * (1 - self.least_identical)):
            return None
        return (
            f"only {self.identical:,} of {self.sentences:,} translations are identical, less than "
            f"{self.least_identical:.0%}"
        )
