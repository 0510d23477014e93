"""What a model and its export are compared by, and the tolerances of it."""

from dataclasses import dataclass

#: of log-probabilities (the root mean square of their differences) and of mean scores, by how
#: parameters are stored: ten times what one rounding, or one sum, is wrong by, relative to its
#: size; the logits of a Transformer are of the order of 10. In float32 both have the same
#: parameters and add in another order: 2^-24 in sums of 2,048 products, in the 36 sublayers and
#: norms of a base model, is 2^-24 · √2048 · 36 = 1e-4. (fairseq's ε of 1e-5 in its LayerNorms,
#: where this plugin's is 1e-6, is 5e-6 of a variance of 1.) The others round the parameters: by
#: 2^-11, by 2^-8; in int8, with a maximum of 3.5 standard deviations, by 3.5 / 127 / √12 = 8e-3,
#: and the activations too, together 1e-2.
TOLERANCES = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 4e-2, "int8": 0.1}
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

    def problem(self) -> str | None:
        """Whether many differ; characters that no text should hold may be read otherwise."""
        for verb, same in (("reads", self.read), ("writes", self.written)):
            if self.sentences - same > max(1.0, self.sentences * OTHERWISE):
                return f"it {verb} only {same:,} of {self.sentences:,} as the packed model does"
        return None


@dataclass(frozen=True)
class SearchComparison:
    """The comparison of two searches, by the packed model's scores of both translations.

    A score is the log-probability divided by the length penalty of the packed model's search. Those
    that differ are ``better`` or ``worse`` if theirs differ by more than the tolerance.
    """

    search: str
    sentences: int
    identical: int
    better: int
    worse: int
    #: how much higher the export's scores are: the mean over the sentences, without the worst one
    score_difference: float
    #: of that; None: the export searches by another length penalty, and nothing is refused
    tolerance: float | None
    #: of the packed model and the export; None: there are no references
    bleu: list[float] | None
    speed: float

    def line(self) -> str:
        """The comparison, to be read."""
        bleu = f"; BLEU {self.bleu[0]:.2f}, exported {self.bleu[1]:.2f}" if self.bleu else ""
        return (
            f"{self.search}: {self.identical:,} of {self.sentences:,} translations are identical, "
            f"{self.better:,} better, {self.worse:,} worse{bleu}; {self.speed:.2f} times as fast"
        )

    def problem(self) -> str | None:
        """What exceeds the tolerance, if anything."""
        if self.tolerance is None or self.score_difference >= -self.tolerance:
            return None
        return (
            f"{self.worse:,} of {self.sentences:,} translations are worse by the packed model's "
            f"own scores; on average they differ by {self.score_difference:.2g}, below "
            f"-{self.tolerance:g}"
        )
