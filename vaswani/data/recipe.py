"""What a data recipe says: how text is selected, split and limited."""

from dataclasses import dataclass
from typing import Literal

from vaswani.data.pairs import Limits
from vaswani.data.text import SPLITS
from vaswani.data.text_recipe import BPE, SENTENCEPIECE, Name, TextRecipe

#: in the folder of prepared data: how everything else there was made
RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True)
class Recipe:
    """How an experiment's data is made; the fields are the keys of ``configs/data/*.yaml``."""

    source_lang: str
    target_lang: str
    #: prefixes of the files, LANG (and .gz or .xz) appended; with ``archives``, parts of the
    #: manifest, of which ``train`` may list several
    train: str | list[str] | None = None
    valid: str | None = None
    test: str | None = None
    #: the manifest the parts are in: ``configs/data/archives/NAME.yaml``
    archives: str | None = None
    #: the folder of prepared text whose codes and dictionary are used for these texts (``--like``)
    like: str | None = None
    #: every n-th training pair becomes the validation set, instead of ``valid``
    valid_every: int | None = None
    #: Moses' punctuation normalisation and removal of control characters: for "train" (and what is
    #: held out of it), "all" or "none"
    normalise: Literal["none", "train", "all"] = "none"
    #: the form of Unicode that text is brought to, in which é is one character (NFC); what earlier
    #: versions prepared lacks this key, and stays as it is
    unicode: Literal["none", "NFC"] = "none"
    #: the text is already tokenised
    tokenised: bool = False
    #: tokens, or the raw text for SentencePiece, are written in lower case
    lowercase: bool = False
    #: the sets are files of trees in Penn brackets, each of which makes both sides (6.3): words,
    #: which the BPE is for, and brackets
    trees: bool = False
    #: the brackets hold part-of-speech tags, instead of XX for each
    keep_tags: bool = False
    #: Moses' ``-a``: "well-known" becomes well @-@ known
    split_hyphens: bool = False
    #: ’ becomes ' in the test set before it is tokenised
    straight_test_apostrophes: bool = False
    #: limits of a training pair, in words or subwords of either side: see ``clean_after``
    min_words: int | None = None
    max_words: int | None = None
    #: highest ratio of longer to shorter side
    ratio: float | None = None
    #: where the limits apply: to words ("tok") or subwords ("bpe")
    clean_after: str = "tok"
    #: what splits words: "subword_nmt", Moses' tokens by BPE; "sentencepiece", raw text
    subword: Name = BPE
    #: size of the joint BPE (5.1); of SentencePiece's joint model, its number of pieces
    bpe: int = 10000
    #: what ``bpe`` counts: merges, or types (single characters and merges together)
    bpe_counts: str = "merges"
    #: no subword holds two digits: 2010 is 2@@ 0@@ 1@@ 0, as any other year
    split_digits: bool = False
    #: probability with which each merge of the training text's subwords is left out (BPE-dropout,
    #: Provilkov et al., 2020, arXiv:1910.13267)
    bpe_dropout: float | None = None
    #: how often the training text is there, each time split anew
    copies: int = 1
    #: how many of the most frequent types the dictionary keeps; all, if not given
    dictionary: int | None = None
    #: a trial: the first pairs of each training part, this many together
    limit: int | None = None
    #: the version of the rules for languages: what codes such as fra mean, and how text is restored
    #: from Moses' tokens; text of earlier versions lacks this key, and has the first
    text_rules: int = 1
    #: measured by ``vaswani prepare`` on validation text: how many of a hundred lines are restored
    #: from their tokens as they were, and the BLEU of all
    restored_lines: float | None = None
    restored_bleu: float | None = None
    #: expected counts, by ``text/train``, ``tok/train``, …: shown beside the counts
    expected: dict[str, int] | None = None

    @property
    def langs(self) -> tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> list[str]:
        """The existing sets; a user's own text may have no test set."""
        held_out = ["valid"] if self.valid_every else []
        return [n for n in SPLITS if n in held_out or getattr(self, n)]

    def parts(self, split: str) -> list[str]:
        """The prefixes or parts that make up a set, in order."""
        named = getattr(self, split)
        return [named] if isinstance(named, str) else list(named or [])

    def cleaned(self, split: str) -> bool:
        """Whether pairs may be left out of a set: of training text, and of what is held out."""
        return split == "train" or (split == "valid" and bool(self.valid_every))

    @property
    def text(self) -> TextRecipe:
        """How its text is processed, line by line."""
        without_moses = self.tokenised or self.subword == SENTENCEPIECE
        return TextRecipe(
            self.source_lang,
            self.target_lang,
            normalise=self.normalise,
            straight_apostrophes=self.straight_test_apostrophes,
            tokeniser="none" if without_moses else "moses",
            split_hyphens=self.split_hyphens,
            lowercase=self.lowercase,
            bpe=self.subword,
            unicode=self.unicode,
            text_rules=self.text_rules,
        )

    def limits(self, stage: str) -> dict[str, Limits]:
        """What the pairs of a set must satisfy after a stage ("tok" or "bpe"), if anything.

        With SentencePiece it applies to pieces: between spaces there may be a whole sentence.
        """
        limits = Limits(self.min_words, self.max_words, self.ratio)
        if self.subword == SENTENCEPIECE:
            limited = limits if stage == "bpe" else None
        elif stage == self.clean_after:
            limited = limits
        else:  # extremely long words are kept from the BPE in any case
            limited = Limits() if stage == "tok" else None
        return {split: limited for split in self.splits if limited and self.cleaned(split)}
