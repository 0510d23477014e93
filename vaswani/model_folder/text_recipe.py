"""From raw text to the model's input and back, as in ``vaswani prepare`` and ``generate``."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Literal, Optional, Tuple

from vaswani.data import bpe, pieces, text, tokenise
from vaswani.data.sentences import normaliser
from vaswani.data.subwords import BPE, SENTENCEPIECE, Name


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
    #: "moses", or "none": the text is already tokenised
    tokeniser: Literal["moses", "none"] = "moses"
    #: Moses' ``-a``: "well-known" becomes well @-@ known
    split_hyphens: bool = False
    #: the model knows only lower-case letters
    lowercase: bool = False
    #: "subword_nmt"; "sentencepiece", which takes raw text; or None: words are not split
    bpe: Optional[Name] = BPE

    @property
    def langs(self) -> Tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    def table(self) -> Dict[str, Any]:
        """For config.json."""
        return asdict(self)


class SourceText:
    """Splits raw sentences into subwords. Not thread-safe.

    Args:
        recipe: how to prepare the text
        codes: the BPE codes or SentencePiece's model, if any
    """

    def __init__(self, recipe: TextRecipe, codes: Optional[Path]) -> None:
        self.recipe = recipe
        lang = recipe.source_lang
        self.normalise = normaliser(lang) if recipe.normalise == "all" else None
        self.tokenise: Callable[[str], str] = str
        if recipe.tokeniser == "moses":
            self.tokenise = tokenise.tokeniser(lang, recipe.split_hyphens)
        self.split: Callable[[str], str] = str
        if codes:
            of_pieces = recipe.bpe == SENTENCEPIECE
            self.split = pieces.splitter(codes) if of_pieces else bpe.splitter(codes)

    def tokens(self, line: str) -> str:
        """The tokens of a sentence, joined by spaces, or its raw text; empty for a blank one."""
        line = line.replace("\n", " ").rstrip("\r")
        if self.normalise:
            line = self.normalise(line)
        if text.is_blank(line):
            return ""
        line = text.safe_line(line)
        if self.recipe.straight_apostrophes:
            line = line.replace("’", "'")
        line = self.tokenise(line)
        return line.lower() if self.recipe.lowercase else line

    def subwords(self, tokens: str) -> str:
        """Tokens, or raw text, split so that nothing is read as one of fairseq's symbols."""
        return bpe.spell_out_symbols(self.split(tokens))[0]


class TargetText:
    """Joins subwords to tokens, and tokens to text. Not thread-safe.

    The tokens are Moses'; with SentencePiece, they are its pieces.

    Args:
        recipe: how the text was prepared
        codes: SentencePiece's model, if the recipe has one
    """

    def __init__(self, recipe: TextRecipe, codes: Optional[Path]) -> None:
        self.tokens: Callable[[str], str] = bpe.undo
        if recipe.bpe == SENTENCEPIECE:
            assert codes is not None, "its model is beside the recipe"
            self.tokens, self.text = str, pieces.joiner(codes)
        else:
            self.text = tokenise.detokeniser(recipe.target_lang)
