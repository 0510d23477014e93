"""Detokenisation of Moses' tokens, without the spaces that its own detokeniser leaves.

Moses' detokeniser leaves ``l’eau`` as ``l ’ eau``, ``7:45`` as ``7: 45``, ``http://`` as
``http: / /``, ``20°`` as ``20 °`` and ``“so”`` as ``“ so ”``. Here such tokens are joined to one
before the detokeniser sees them, and it leaves that token unchanged. A space is removed only where
text hardly ever has one; docs/scoring.md links to the counts. No other character is changed.

The rules have a version, which recipes and packed models name, so that each model's text is
restored as it was. ``version_1.py`` has the rules of French, Italian, English and German;
``version_2.py`` adds those of other languages, and ``languages.py`` has their codes.
"""

from collections.abc import Callable

from . import version_1, version_2
from .languages import language_of as language_of
from .version_1 import KEPT_SPACE, TextFunction

#: by version: makes the function that joins the tokens of a language for the detokeniser
JOINERS: dict[int, Callable[[str], TextFunction]] = {1: version_1.joiner, 2: version_2.joiner}
#: version that new recipes name
VERSION = max(JOINERS)


def restorer(
    detokeniser: Callable[[str], TextFunction], lang: str, version: int = VERSION
) -> TextFunction:
    """Return a function from a line of Moses' tokens to text.

    Args:
        detokeniser: returns Moses' detokeniser, from a line to a line, for a language's code
        lang: the language's code, such as ``fr``
        version: of the rules
    """
    join = JOINERS[version](lang)
    buggy = version > 1 and lang in version_2.DETOKENISED_BY_OTHER_RULES
    detokenise = detokeniser(version_2.NO_LANGUAGE if buggy else lang)

    def restore(line: str) -> str:
        return detokenise(join(" ".join(line.split()))).replace(KEPT_SPACE, " ")

    return restore
