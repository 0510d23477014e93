"""From raw text to what a model reads, and back: as ``vaswani prepare`` and ``generate`` do it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from vaswani.corpus import bpe, text, tokenise
from vaswani.corpus.sentences import normaliser
from vaswani.errors import UserError


@dataclass(frozen=True)
class TextRecipe:
    """How a model's text is prepared; the section ``text`` of config.json."""

    source_lang: str
    target_lang: str
    #: Moses' punctuation normalisation, and no control characters: of "train" (not of what is
    #: translated), of "all", or "none"
    normalise: str = "none"
    #: ’ becomes ' before tokenisation
    straight_apostrophes: bool = False
    #: "moses", or "none": the text is tokens already
    tokeniser: str = "moses"
    #: Moses' ``-a``: "well-known" is well @-@ known
    split_hyphens: bool = False
    #: the model knows small letters only
    lowercase: bool = False
    #: "subword_nmt", or None: words are not split
    bpe: Optional[str] = "subword_nmt"

    @property
    def langs(self) -> Tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    def table(self) -> Dict[str, Any]:
        """For config.json."""
        return asdict(self)


def recipe_of(table: Dict[str, Any], where: str) -> TextRecipe:
    """The recipe that a table of config.json has; UserError if it is none."""
    try:
        return TextRecipe(**table)
    except TypeError as error:
        raise UserError(f"{where}: section 'text' was altered ({error})") from None


class SourceText:
    """Raw sentences to subwords. Not for several threads at once.

    Args:
        recipe: how
        codes: the BPE codes, if there are any
    """

    def __init__(self, recipe: TextRecipe, codes: Optional[Path]) -> None:
        self.recipe = recipe
        lang = recipe.source_lang
        self.normalise = normaliser(lang) if recipe.normalise == "all" else None
        self.tokenise: Callable[[str], str] = str
        if recipe.tokeniser == "moses":
            self.tokenise = tokenise.tokeniser(lang, recipe.split_hyphens)
        self.split = bpe.splitter(codes) if codes else str

    def tokens(self, line: str) -> str:
        """The tokens of a sentence, joined by spaces; nothing for a blank one."""
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
        """Tokens split by the BPE, none of which is read as one of fairseq's symbols."""
        return bpe.spelt_out(self.split(tokens))[0]


def target_text(recipe: TextRecipe) -> Callable[[str], str]:
    """A function from tokens joined by spaces to text."""
    return tokenise.detokeniser(recipe.target_lang)
