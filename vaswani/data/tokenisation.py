"""From raw text to the model's input and back: the same for ``prepare`` and ``translate``."""

import html
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vaswani.data import bpe
from vaswani.data.text import is_blank, safe_line
from vaswani.folders.recipe import SENTENCEPIECE, TextRecipe
from vaswani_transformer.io import moses

TextFunction = Callable[[str], str]
#: more letters than a word has on average in any language: in scripts without spaces between words,
#: and in others
LONGEST = {
    r"[\p{Han}\p{Hiragana}\p{Katakana}]": 4,
    r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]": 8,
}
LONGEST_ELSEWHERE = 15


def cleaner(recipe: TextRecipe, lang: str) -> TextFunction:
    """Return a function from a line to a safe sentence: normalised if asked, empty if it is
    blank.
    """
    normalise = normaliser(recipe.language(lang)) if recipe.normalise == "all" else str
    compose = to_nfc if recipe.unicode == "NFC" else str

    def clean(line: str) -> str:
        line = normalise(compose(line.rstrip("\r")))
        return "" if is_blank(line) else safe_line(line)

    return clean


def to_nfc(line: str) -> str:
    """Return a line in Unicode's form NFC: letters with their accents as one character, if there is
    one.

    macOS writes letters and accents apart (NFD): they look the same, and would be other words.
    """
    return unicodedata.normalize("NFC", line)


def tokeniser(recipe: TextRecipe, lang: str) -> TextFunction:
    """Return a function from a clean sentence to its tokens, joined by spaces, or to raw text."""
    by_moses = recipe.tokeniser == "moses"
    language = recipe.language(lang)
    split = moses_tokeniser(language, recipe.split_hyphens) if by_moses else str

    def tokens(line: str) -> str:
        line = split(line.replace("’", "'") if recipe.straight_apostrophes else line)
        return line.lower() if recipe.lowercase else line

    return tokens


def splitter(recipe: TextRecipe, codes: Path | None, dropout: float = 0.0) -> TextFunction:
    """Return a function from tokens, or raw text, to subwords; none is read as one of fairseq's
    symbols.

    Args:
        recipe: how the text is prepared
        codes: the BPE codes or SentencePiece's model, if any
        dropout: of the BPE's merges
    """
    if codes and recipe.subword == SENTENCEPIECE:
        from vaswani.data import pieces

        return pieces.splitter(codes)
    split = bpe.splitter(codes, dropout) if codes else str
    return lambda line: bpe.escaped_symbols(split(line))


class SourceText:
    """Splits raw sentences into subwords. Not thread-safe.

    Args:
        recipe: how to prepare the text
        codes: the BPE codes or SentencePiece's model, if any
    """

    def __init__(self, recipe: TextRecipe, codes: Path | None) -> None:
        self.clean = cleaner(recipe, recipe.source_lang)
        self.tokenise = tokeniser(recipe, recipe.source_lang)
        #: tokens, or raw text, to subwords
        self.subwords = splitter(recipe, codes)

    def tokens(self, line: str) -> str:
        """Return the tokens of a sentence, joined by spaces, or its raw text; empty for a blank
        one.
        """
        sentence = self.clean(line.replace("\n", " "))
        return self.tokenise(sentence) if sentence else ""


class TargetText:
    """Joins subwords to tokens, and tokens to text. Not thread-safe.

    The tokens are Moses'; with SentencePiece, they are its pieces.

    Args:
        recipe: how the text was prepared
        codes: SentencePiece's model, if the recipe has one
    """

    def __init__(self, recipe: TextRecipe, codes: Path | None) -> None:
        self.tokens: TextFunction = bpe.undo
        if recipe.subword == SENTENCEPIECE:
            from vaswani.data import pieces

            assert codes is not None, "its model is beside the recipe"
            self.tokens = str
            self.text = pieces.joiner(codes)
        else:
            self.text = detokeniser(recipe.language(recipe.target_lang), recipe.text_rules)


# ---- Moses, using sacremoses ------------------------------------------------------------------


def normaliser(lang: str) -> Callable[[str], str]:
    """Return Moses' normalize-punctuation, then remove-non-printing-char, as in fairseq's scripts.

    ``perl_parity`` makes sacremoses do what the Perl script does, even where sacremoses' own way is
    better: the recipe that normalises reproduces fairseq's.
    """
    import regex
    from sacremoses import MosesPunctNormalizer

    normalise = MosesPunctNormalizer(lang, perl_parity=True).normalize
    control = regex.compile(r"\p{C}")
    return lambda line: str(control.sub(" ", normalise(line)))


def moses_tokeniser(lang: str, split_hyphens: bool = False) -> Callable[[str], str]:
    """Return a function from a sentence to its tokens joined by spaces (Moses rules, escapes
    included).

    ``split_hyphens`` is Moses' ``-a``: "well-known" becomes "well @-@ known".
    """
    from sacremoses import MosesTokenizer

    tokenise: Any = MosesTokenizer(lang).tokenize
    return lambda line: str(tokenise(line, aggressive_dash_splits=split_hyphens, return_str=True))


def is_lowercase(words: list[str]) -> bool:
    """Return whether a dictionary has lower-case letters and no capitals."""
    return any(word != word.upper() for word in words) and all(w == w.lower() for w in words)


def hardly_spaced(lines: Iterable[str]) -> bool:
    """Return whether text has hardly any spaces: more letters from one to the next than words
    have.
    """
    import regex

    words = [word for line in lines for word in line.split()]
    text = "".join(words)
    mostly = (
        most for script, most in LONGEST.items() if 2 * len(regex.findall(script, text)) > len(text)
    )
    return len(text) > next(mostly, LONGEST_ELSEWHERE) * len(words)


def detokeniser(lang: str, version: int = moses.VERSION) -> TextFunction:
    """Return a detokeniser for one language, which joins punctuation to its neighbours again.

    Also what Moses' own leaves apart: :mod:`vaswani_transformer.io.moses`.

    Args:
        lang: the language's code
        version: of the rules
    """
    return moses.restorer(moses_detokeniser, lang, version)


def moses_detokeniser(lang: str) -> TextFunction:
    """Return Moses' own detokeniser for one language, from a line to a line."""
    from sacremoses import MosesDetokenizer

    detokenise: Any = MosesDetokenizer(lang).detokenize
    return lambda line: str(detokenise(line.split(), return_str=True))


def unescape(token: str) -> str:
    """Return a token without escapes: Moses writes ``'`` as ``&apos;`` and the like."""
    return html.unescape(token)
