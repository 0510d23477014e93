"""How text is prepared: a recipe of whole data, and the part of it that a model needs again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple, TypeVar

from vaswani.common.errors import UserError
from vaswani.folders.data_bin import SPLITS
from vaswani_transformer.io import moses
from vaswani_transformer.io.typed import key_of, read_record

T = TypeVar("T")

#: what splits words, by fairseq's names (``--bpe``): byte pair encoding of Moses' tokens (5.1), or
#: SentencePiece, whose pieces are of raw text, in which a space is a character like others
Name = Literal["subword_nmt", "sentencepiece"]
BPE: Final = "subword_nmt"
SENTENCEPIECE: Final = "sentencepiece"


class SubwordModel(NamedTuple):
    """What is learned, in words; and how fairseq is told to undo it."""

    title: str
    #: fairseq's ``--remove-bpe``
    remove: str


SUBWORD_MODELS: dict[Name, SubwordModel] = {
    BPE: SubwordModel("BPE codes", "@@ "),
    SENTENCEPIECE: SubwordModel("SentencePiece model", SENTENCEPIECE),
}


@dataclass(frozen=True)
class TextRecipe:
    """How a model's text is prepared; the section ``text`` of config.json."""

    source_lang: str
    target_lang: str
    #: Moses' punctuation normalisation and removal of control characters: for "train" (not for
    #: text to translate), "all", or "none"
    normalise: Literal["none", "train", "all"] = "none"
    #: ’ becomes ' before tokenisation
    straight_apostrophes: bool = False
    #: "moses", or "none": another program did it, or SentencePiece takes raw text
    tokeniser: Literal["moses", "none"] = "moses"
    #: Moses' ``-a``: "well-known" becomes well @-@ known
    split_hyphens: bool = False
    #: the model knows only lower-case letters
    lowercase: bool = False
    #: "subword_nmt"; "sentencepiece", which takes raw text; or None: words are not split
    subword: Name | None = field(default=BPE, metadata={"key": "bpe"})
    #: the form of Unicode that text is brought to: "NFC", in which é is one character; or "none",
    #: as it is, and as earlier versions left it
    unicode: Literal["none", "NFC"] = "none"
    #: the version of the rules for languages: what codes mean, and how text is restored from tokens
    text_rules: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError for rules of a later version."""
        if self.text_rules not in moses.JOINERS:
            raise ValueError(
                f"text_rules is {self.text_rules!r}, but this version of vaswani-transformer "
                f"knows 1 to {moses.VERSION}"
            )

    @classmethod
    def from_json(cls, table: Mapping[str, object], where: str) -> "TextRecipe":
        """Read the section ``text``; raise UserError as in :func:`read_section`."""
        return read_section(cls, table, where)

    def to_json(self) -> dict[str, object]:
        """Return the section, complete."""
        return {key_of(item): getattr(self, item.name) for item in fields(self)}

    @property
    def langs(self) -> tuple[str, str]:
        """The languages of the source and of the target."""
        return self.source_lang, self.target_lang

    def language(self, code: str) -> str:
        """Return the language that a code means to the rules; in the first version, the code."""
        return code if self.text_rules == 1 else moses.language_of(code)


def read_section(kind: type[T], table: Mapping[str, object], where: str) -> T:
    """Return a section of a model's table as its dataclass.

    Raises:
        UserError: a key is unknown or missing, or a value is of another type, or cannot be.
    """
    try:
        return read_record(kind, table, where)
    except ValueError as error:
        problem = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise UserError(
            f"{problem}: the file is from another version, or was edited: pack the model again, or "
            "use the version that wrote it"
        ) from None


@dataclass(frozen=True)
class Recipe:
    """How the data of a training is made; the fields are the keys of ``configs/data/*.yaml``.

    Their allowed and least values are in data/read_recipe.py.
    """

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
        """The language of the source, then of the target."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> list[str]:
        """The existing sets; a user's own text may have no test set."""
        held_out = ["valid"] if self.valid_every else []
        return [n for n in SPLITS if n in held_out or getattr(self, n)]

    def parts(self, split: str) -> list[str]:
        """Return the prefixes or parts of a set, in order."""
        named = getattr(self, split)
        return [named] if isinstance(named, str) else list(named or [])

    def is_cleaned(self, split: str) -> bool:
        """Return whether pairs may be left out of a set: of training and held-out pairs."""
        return split == "train" or (split == "valid" and bool(self.valid_every))

    @property
    def text(self) -> TextRecipe:
        """The rules by which its text is processed, line by line."""
        without_moses = self.tokenised or self.subword == SENTENCEPIECE
        return TextRecipe(
            self.source_lang,
            self.target_lang,
            normalise=self.normalise,
            straight_apostrophes=self.straight_test_apostrophes,
            tokeniser="none" if without_moses else "moses",
            split_hyphens=self.split_hyphens,
            lowercase=self.lowercase,
            subword=self.subword,
            unicode=self.unicode,
            text_rules=self.text_rules,
        )
