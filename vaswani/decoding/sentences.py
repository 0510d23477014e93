"""Splits a line of text into sentences, and joins their translations.

A model that was trained on single sentences drops some of a line of several: that of
``models/tatoeba_en_de`` answers four with two.
"""

import re
from collections.abc import Sequence

from vaswani.data.text import safe_line
from vaswani.data.tokenisation import hardly_spaced

#: what ``--split-sentences`` may be: no line, every line of several sentences, or only those that
#: are longer than nearly all lines of the training text
NEVER, ALWAYS, AUTO = MODES = ("never", "always", "auto")
#: the word before a full stop at the end of a part
_LAST_WORD = re.compile(r"([\w.-]+)\.\s*$")


class SentenceSplitter:
    """Splits text by the rules of sentencex, but not after an abbreviation that Moses knows.

    Moses' tokeniser, too, leaves the full stop at ``M.`` (French) and ``19.`` (German): sentencex
    takes ``M. Dupont`` and ``Im 19. Jahrhundert`` for two sentences.

    Args:
        lang: the text's language; one that is unknown is split by general rules
    """

    def __init__(self, lang: str) -> None:
        from sacremoses.corpus import NonbreakingPrefixes
        from sentencex import segment

        self.lang = re.split("[-_]", lang.lower())[0]
        self.segment = segment
        self.abbreviations = set(NonbreakingPrefixes().words(self.lang))

    def __call__(self, line: str) -> list[str]:
        """Return the sentences of a line, each with the spaces after it; joined, they are it."""
        sentences: list[str] = []
        for part in self.segment(self.lang, line):
            word = _LAST_WORD.search(sentences[-1]) if sentences else None
            if not part.strip() or (word and word[1] in self.abbreviations):
                part = sentences.pop() + part if sentences else part
            sentences.append(part)
        return sentences if "".join(sentences) == line else [line]


def join(translations: Sequence[str], sentences: Sequence[str]) -> str:
    """Return the translations of a line's sentences as one line, with the spaces that it had.

    A language with spaces gets one where the line had none, as after a Chinese sentence.

    Args:
        translations: one for each sentence; may be empty
        sentences: each with the spaces after it
    """
    default = "" if hardly_spaced(translations) else " "
    line = ""
    for translation, sentence in zip(translations, sentences, strict=True):
        if translation:
            spaces = sentence[len(sentence.rstrip()) :]
            line += translation + (safe_line(spaces) or default)
    return line.rstrip()
