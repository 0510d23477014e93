"""A line of text as sentences: split before translation, and joined and judged after it.

A model that was trained on single sentences drops some of a line of several: that of
``models/tatoeba_en_de`` answers four with two.

What ``vaswani translate`` warns of on stderr and what ``--json`` prints for each line are read from
the same record, :class:`TranslatedLine`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vaswani.common.files import Table
from vaswani.data.text import safe_line
from vaswani.data.tokenisation import hardly_spaced
from vaswani.decoding.translator import Translation

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
        """Split a line into sentences, each with the spaces after it; joined, they are the line."""
        sentences: list[str] = []
        for part in self.segment(self.lang, line):
            word = _LAST_WORD.search(sentences[-1]) if sentences else None
            if not part.strip() or (word and word[1] in self.abbreviations):
                part = sentences.pop() + part if sentences else part
            sentences.append(part)
        return sentences if "".join(sentences) == line else [line]


def join(translations: Sequence[str], sentences: Sequence[str]) -> str:
    """Join the translations of a line's sentences to one line, with the spaces of the source.

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


@dataclass(frozen=True)
class TranslatedLine:
    """A line of the input and its translation.

    Several translations are those of a line that was split into its sentences.
    """

    #: one for each part of the line that was translated by itself
    translations: list[Translation]
    #: the source of each, with the spaces that follow it
    texts: list[str]
    #: how many sentences the line has
    sentences: int
    #: whether a part is longer than 99 % of the training lines
    unusually_long: bool

    @property
    def split(self) -> bool:
        """Whether each sentence of the line was translated by itself."""
        return len(self.translations) > 1

    @property
    def too_long(self) -> bool:
        """Whether a part has more subwords than the model accepts: the line is not translated."""
        return any(translation.too_long for translation in self.translations)

    @property
    def text(self) -> str:
        """The best translation; empty for a blank line, and for one that is too long."""
        if self.too_long:
            return ""
        if not self.split:
            return self.translations[0].text
        return join([translation.text for translation in self.translations], self.texts)

    @property
    def score(self) -> float | None:
        """The score of the translation; of a line that was split, the lowest of its sentences'."""
        if self.too_long:
            return None
        scores = [translation.score for translation in self.translations]
        return min((score for score in scores if score is not None), default=None)

    @property
    def unknown(self) -> list[str]:
        """The words of the line that are wholly or partly unknown to the model."""
        return [word for translation in self.translations for word in translation.unknown]


def as_json(line: TranslatedLine, nbest: int, with_alignment: bool) -> str:
    """Return a line as one JSON object, in one line of text.

    Args:
        line: the line and its translation
        nbest: how many hypotheses to list; 1: only the best, as ``text`` and ``score``
        with_alignment: list the hypotheses with their words and alignments, and the source's words
    """
    record: Table = {
        "text": line.text,
        "score": round_score(line.score),
        "too_long": line.too_long,
        "unusually_long": line.unusually_long,
        "sentences": line.sentences,
        "split": line.split,
        "unknown": line.unknown,
    }
    if with_alignment:
        record["source_tokens"] = line.translations[0].source_tokens
    if nbest > 1 or with_alignment:
        record["hypotheses"] = hypotheses(line.translations[0], nbest, with_alignment)
    return json.dumps(record, ensure_ascii=False)


def hypotheses(translation: Translation, nbest: int, with_alignment: bool) -> list[Table]:
    """Return the hypotheses of a line that was translated as one sentence, best first."""
    records = []
    for hypothesis in translation.hypotheses[:nbest]:
        record: Table = {"text": hypothesis.text, "score": round_score(hypothesis.score)}
        if with_alignment:
            record["tokens"] = hypothesis.tokens
            record["alignment"] = hypothesis.alignment
        records.append(record)
    return records


def round_score(score: float | None) -> float | None:
    """Round a score to the four decimal places that ``--scores`` prints."""
    return None if score is None else round(score, 4)
