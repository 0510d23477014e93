"""Moses' normalisation, tokenisation and detokenisation, using sacremoses."""

import html
from typing import Any, Callable, Iterable

#: more letters than a word has on average in any language: in scripts without spaces between words,
#: and in others
LONGEST = {
    r"[\p{Han}\p{Hiragana}\p{Katakana}]": 4,
    r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]": 8,
}
LONGEST_ELSEWHERE = 15


def normaliser(lang: str) -> Callable[[str], str]:
    """Moses' normalize-punctuation, then remove-non-printing-char, as fairseq's scripts run them.

    ``perl_parity`` does what the Perl script does even where sacremoses would do better: the recipe
    that normalises is the one that reproduces fairseq's.
    """
    import regex
    from sacremoses import MosesPunctNormalizer

    moses = MosesPunctNormalizer(lang, perl_parity=True)
    control = regex.compile(r"\p{C}")
    return lambda line: str(control.sub(" ", moses.normalize(line)))


def tokeniser(lang: str, split_hyphens: bool = False) -> Callable[[str], str]:
    """A function from a sentence to its tokens joined by spaces (Moses rules, escapes included).

    ``split_hyphens`` is Moses' ``-a``: "well-known" becomes "well @-@ known".
    """
    from sacremoses import MosesTokenizer

    moses: Any = MosesTokenizer(lang)
    return lambda line: str(
        moses.tokenize(line, aggressive_dash_splits=split_hyphens, return_str=True)
    )


def lacks_rules(lang: str) -> bool:
    """Whether sacremoses has no abbreviations for a language, and uses the English ones."""
    from sacremoses.corpus import NonbreakingPrefixes

    return lang not in NonbreakingPrefixes().available_langs


def hardly_spaced(lines: Iterable[str]) -> bool:
    """Whether text has hardly any spaces: more letters from one to the next than words have."""
    import regex

    words = [word for line in lines for word in line.split()]
    text = "".join(words)
    mostly = (
        most for script, most in LONGEST.items() if 2 * len(regex.findall(script, text)) > len(text)
    )
    return len(text) > next(mostly, LONGEST_ELSEWHERE) * len(words)


def detokeniser(lang: str) -> Callable[[str], str]:
    """A detokeniser for one language, which joins punctuation to its neighbours again."""
    from sacremoses import MosesDetokenizer

    moses: Any = MosesDetokenizer(lang)
    return lambda line: str(moses.detokenize(line.split(), return_str=True))


def unescape(token: str) -> str:
    """A token without escapes: Moses writes ``'`` as ``&apos;`` and the like."""
    return html.unescape(token)
