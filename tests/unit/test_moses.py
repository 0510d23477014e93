"""Text → Moses' tokens → text: what its detokeniser alone leaves apart is joined again."""

from argparse import Namespace
from functools import cache

import pytest
from fairseq.data import Dictionary

from tests.properties import given, some
from transformer_plugin.config import VaswaniTranslationConfig
from transformer_plugin.valid_bleu import Line, ValidBleu, restorer_of
from vaswani.data.text_recipe import detokeniser, moses_tokeniser

#: Canadian and French law, everyday text, times, addresses, degrees, quotations
SENTENCES = {
    "fr": [
        "L’eau de l’étang n’est pas froide aujourd’hui.",
        "Il faut qu’on s’arrête jusqu’à 10 heures, lorsqu’elle arrive.",
        "L’alinéa 5(1)h) et les sous-alinéas 14c)(i) et b)(v) ne s’appliquent pas à l’art. 7(2).",
        "La main-d’œuvre d’Anne coûte 250 000 $ ou 30 € par jour.",
        "Il parle de l’« option » d’achat ; c’est tout.",
        "Il fait 20 °C à 45°30′10″ de latitude, au n° 12.",
        "Elle a dit : « Voilà l’“idée” ! »",
        "Le ‘mot’ suivant est l’‘exercice’ d’hier.",
        "C’est le fruit d’11 années, d’1 litre par jour.",
        'Est-ce l\'"équipe" de Luc ?',
        "Rendez-vous à 7:45 sur http://www.example.org/a/b.html?page=2.",
        "Pour l′application de l′annexe, voir 1/2 et/ou 90 km/h.",
        "(C’est “vrai ?”) Et “faux : jamais”.",
    ],
    "it": ["Dell’anno scorso, un po’ di pane e l’“amico” dell’11 maggio."],
    "en": [
        "It’s the workers’ rights, don’t you think? We’ll see if they’re right.",
        "She said, “The bakers’ union didn’t vote.” Then it ended.",
        "He wrote ‘yes’ on O’Neil’s form in the ’90s.",
        "The ‘workers’ rights’ act isn’t James’s.",
        "“‘Yes,’ he said,” she wrote. “It’s ‘new’.”",
        "See sections 5(1)(h) and 6, paragraph 3(a) and C.01.001(2).",
        "The term “vessel” has the meaning of “ship”, “boat” or “canoe”.",
        "Open http://www.example.org/a/b.html?c=d&e=f#g, or https://example.org/ (me@example.org).",
        "It was 20°C at 7:45, 30° at 10:30:15, and 40°C.",
        "In the summer of ’69 we were goin’ home at 5 o’clock, ma’am.",
        '(“So it is.”) He asked “why?” and "when?"',
        "I read 1/2 of file_name_x and/or drove 5 km/h, 1990–1995.",
        '"Stop," he said. "Go on!"',
        'and so it went on", he said.',
        "He paid $5 (and €7) in 2019 (2).",
    ],
    "de": [
        "Wie geht’s? Das war's. Hab’ ich’s nicht gesagt? So ’ne Frau.",
        "Um 7:45 Uhr waren es 20 °C. Das kostet 5 € pro Tag (10 $).",
        "„Gehst du?“ – „Ja, gern.“ Er sagt: »Nein« und ‚vielleicht‘.",
        "Johannes’ Auto und das Pauli'sche Gesetz.",
        'wie wir es sehen".',
        "Das ist „(gut)“ und/oder 10 km/h, sagt „Faust”.",
        "Siehe http://www.example.org/~a/b_c und www.example.org/d.",
        "“Schön”, sagt sie. Ich hab’s.",
    ],
    "es": ["¿Dijo «sí»? ¡No!"],
    "sv": ["Han sade ”ja” och gick."],
}
#: in any order and number they make a sentence
PARTS = {
    "fr": "l’eau|qu’il|aujourd’hui|la main-d’œuvre|la maison|à 7:45|20 °C|45°30′10″|5(1)h)|14c)(i)|"
    "“l’idée”|« oui »|et/ou|http://example.org/a/b?c=d|moi@example.org|30 € par jour|n° 5",
    "en": "it’s|don’t|the workers’ rights|O’Neil|the ’90s|a house|at 7:45|20°C|45°30′10″|5(1)(h)|"
    "“it isn’t”|‘yes’|and/or|https://example.org/a?b=c&d=e|me@example.org|$30 a day|1990–1995",
    "de": "geht’s|war's|das Haus|um 7:45|20 °C|45°30′10″|„hab’s“|»nein«|‚vielleicht‘|und/oder|"
    "http://www.example.org/~a|ich@example.org|30 € pro Tag|50 km/h|Johannes’ Auto",
}


@cache
def round_trip(lang: str, text: str) -> str:
    return detokenisers(lang)(tokenisers(lang)(text))


tokenisers, detokenisers = cache(moses_tokeniser), cache(detokeniser)


@pytest.mark.parametrize("lang", SENTENCES)
def test_sentences_are_restored(lang: str) -> None:
    assert [round_trip(lang, sentence) for sentence in SENTENCES[lang]] == SENTENCES[lang]


@pytest.mark.parametrize("lang", PARTS)
@given(data=some.data())
def test_a_sentence_of_such_parts_is_restored(lang: str, data: some.DataObject) -> None:
    parts = some.lists(some.sampled_from(PARTS[lang].split("|")), min_size=1, max_size=8)
    sentence = data.draw(some.sampled_from([" ", ", "])).join(data.draw(parts)) + "."
    assert round_trip(lang, sentence) == sentence


@given(line=some.text("ab ’‘“”„\"'«»‚()[].,:;!?/°′1250h@_-–é$€%", max_size=40))
def test_nothing_but_spaces_changes(line: str) -> None:
    """Whatever a model writes, a broken quotation or address too."""
    for lang in PARTS:
        assert "".join(round_trip(lang, line).split()) == "".join(line.split())


def test_spaces_that_text_has_stay() -> None:
    lines = ["In 2019 (2) he left.", "a – b", "He met 5 of 6 (not 7).", "a « b"]
    assert [round_trip("en", line) for line in lines] == lines


def test_a_validation_restores_text_likewise() -> None:
    """With fairseq's name for Moses; other names are fairseq's alone."""
    moses = Namespace(eval_bleu_detok="moses", eval_bleu_detok_args=None)
    assert restorer_of(moses, "fr")("l ’ eau d&apos; Anne , à 7 : 45") == "l’eau d'Anne, à 7:45"
    assert restorer_of(moses, "en")("It doesn &apos;t .") == "It doesn't."
    space = Namespace(eval_bleu_detok="space", eval_bleu_detok_args=None)
    assert restorer_of(space, "fr")("l ’ eau") == "l ’ eau"


def test_a_validation_shows_both_sides_as_text() -> None:
    """The source was shown as tokens, with &apos; for an apostrophe."""
    english, french = "It does@@ n &apos;t .", "L&apos; e@@ au ."
    words = Dictionary()
    for word in f"{english} {french}".split():
        words.add_symbol(word)
    cfg = VaswaniTranslationConfig(source_lang="en", target_lang="fr", data="nowhere")
    cfg.eval_bleu_detok, cfg.eval_bleu_remove_bpe, cfg.eval_bleu_tokens = "moses", "@@ ", "13a"
    task = Namespace(cfg=cfg, source_dictionary=words, target_dictionary=words)
    source, target = (words.encode_line(side, add_if_not_exist=False) for side in (english, french))
    line = ValidBleu(task).line(source, target, target)
    assert line == Line("It doesn't.", "L'eau.", "L'eau.")
