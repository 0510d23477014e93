"""A line is split into its sentences, and their translations are joined with its spaces."""

import pytest

from vaswani.decoding.sentences import SentenceSplitter, join

LINES = {
    "en": [
        ["Dr. Smith lives in the U.S. ", "He is 50. ", '"Is it late?" she asked.  ', "Yes!"],
        ["It costs $3.50, i.e. more than on Jan. 3."],
        ["nothing to split"],
    ],
    "de": [
        ["Im 19. Jahrhundert lebte Dr. Müller z.B. in Berlin. ", "Wirklich? ", "Ja."],
        ["Er kam am 3. Oktober um 8 Uhr!\t", "Ludwig XIV. war König."],
    ],
    "fr": [
        ["M. Dupont habite à Paris. ", "« Vraiment ? » dit-elle. ", "Voir l'art. 12 de la loi."],
        ["Il arrive ce soir. ", "Oui !"],
    ],
    "zh": [["你好。", "你好吗？", "我很好。"]],
    "de_DE": [["Der 1. Versuch war gut. ", "Der 2. auch."]],
    "unknown": [["It is late. ", "Good night."]],
}


@pytest.mark.parametrize("lang", LINES)
def test_abbreviations_and_ordinals_do_not_end_a_sentence(lang: str) -> None:
    split = SentenceSplitter(lang)
    for sentences in LINES[lang]:
        assert split("".join(sentences)) == sentences


@pytest.mark.parametrize("line", ["", " ", "…", ". . .", "  Hello.  ", "A.B.C. D", "\u2028x. Y. "])
def test_no_character_of_a_line_is_lost(line: str) -> None:
    assert "".join(SentenceSplitter("en")(line)) == line


@pytest.mark.parametrize(
    ("translations", "sentences", "line"),
    [
        (["Eins.", "Zwei.", "Drei."], ["One. ", "Two.  ", "Three."], "Eins. Zwei.  Drei."),
        (["Hello.", "How are you?"], ["你好。", "你好吗？"], "Hello. How are you?"),
        (["你好。", "你好吗？我很好。"], ["你好。", "你好嗎？我很好。"], "你好。你好吗？我很好。"),
        (["Eins.", "", "Drei."], ["One. ", "? ", "Three. "], "Eins. Drei."),
        (["Eins.", "Zwei."], ["One.\u2028", "Two."], "Eins. Zwei."),
    ],
    ids=["spaces", "none before", "none after", "nothing between", "line separator"],
)
def test_translations_are_joined_as_the_sentences_were(
    translations: list[str], sentences: list[str], line: str
) -> None:
    assert join(translations, sentences) == line
