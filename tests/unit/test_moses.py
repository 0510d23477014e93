"""Text → Moses' tokens → text: what its detokeniser alone leaves apart is joined again."""

from argparse import Namespace
from functools import cache
from pathlib import Path

import pytest
from fairseq.data import Dictionary

from tests.properties import given, some
from transformer_plugin.config import VaswaniTranslationConfig
from transformer_plugin.valid_bleu import Line, ValidBleu, restorer_of
from vaswani.data.tokenisation import TargetText, detokeniser, moses_tokeniser, tokeniser
from vaswani.folders.recipe import TextRecipe
from vaswani.scoring import bleu
from vaswani_transformer.io import moses

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
#: of version 2: one's own sentences, for each rule of the languages
OTHER_LANGUAGES = {
    "ca": ["L'home d'ací s'ha adormit.", "Parla de l'1 d'octubre i d'«art».", "Dona'm l’aigua!"],
    "tr": ["Ankara'da 1990'da %34'e çıktı.", "Türkiye'nin “başkenti” Ankara'dır.", 'gel," dedi.'],
    "uk": ["Сім'я об’єднана, м'який п'ять.", "«Так», — сказав він.", "слова іншого»."],
    "be": ["Сям'я і аб'ект."],
    "ar": ["أهلا، كيف حالك؟ نعم؛ 14٪.", "وصل الولد، ثم ذهب."],
    "ur": ["یہ گھر ہے۔ کیا وہ آیا؟ ہاں، آیا۔"],
    "fa": ["او می‌گوید: «کتاب‌ها خوب‌اند».", "بله، ۲٫۸ متر است؛ نه؟"],
    "hi": ["यह घर है। क्या वह आया? हाँ।", 'उसने कहा: "नहीं।"'],
    "bn": ["এটা ঘর। সে এল।"],
    "am": ["ቤት ነው። አለ፣ ሄደ፤ መጣ።"],
    "hy": ["Տուն է։ Ասաց՝ այո։"],
    "cs": ["V roku 2035 to je 40 % ze 832.", "„Ano,“ řekl.", "Dnes je 832. den."],
    "fi": ["EU:n ja NATO:ssa, NoMa:n 20:een.", "Se on 14 % ”kaikesta”.", "ostoksia.”"],
    "sv": ["EU:s och USA:s 5 % är ’så’ bra.", "Han sade: ”Ja, det är så.”"],
    "ko": ["그는 “네”라고 말했다.", "림(Rim)은 40%의 집이다."],
    "pl": ["Powiedział „tak”, więc… Morrisey'a."],
    "ru": ["«Да», — сказал он. O’Нил, 2:0.", "Это “так”."],
    "nl": ["Martin's huis is open,’ zei hij."],
    "es": ["El 40 % de «todo» es así.", "Sainsbury's y M&S, @nombre #otro C++."],
    "sk": ["Povedal: „Áno.“ To je 40 %."],
    "de": ["Das ist „so“-genannt. Es war die +26."],
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
def round_trip(lang: str, text: str, version: int = moses.VERSION) -> str:
    return detokenisers(lang, version)(tokenisers(lang)(text))


tokenisers, detokenisers = cache(moses_tokeniser), cache(detokeniser)


@pytest.mark.parametrize("version", moses.JOINERS)
@pytest.mark.parametrize("lang", SENTENCES)
def test_sentences_are_restored(lang: str, version: int) -> None:
    sentences = SENTENCES[lang]
    assert [round_trip(lang, sentence, version) for sentence in sentences] == sentences


@pytest.mark.parametrize("lang", OTHER_LANGUAGES)
def test_sentences_of_other_languages_are_restored(lang: str) -> None:
    sentences = OTHER_LANGUAGES[lang]
    assert [round_trip(lang, sentence) for sentence in sentences] == sentences


def test_the_first_rules_restore_what_they_restored() -> None:
    """A model that was packed before there was a version translates as it did."""
    before = {
        "ca": ("l'home", "l 'home"),
        "tr": ("1990'da", "1990 'da"),
        "cs": ("V roku 2035 je 832.", "V roku2035 je832."),
        "ar": ("نعم، لا", "نعم ، لا"),
        "fa": ("می‌گوید", "می ‌ گوید"),
        "fra": ("l'eau", "l 'eau"),
    }
    restored = {lang: round_trip(lang, text, 1) for lang, (text, _) in before.items()}
    assert restored == {lang: text for lang, (_, text) in before.items()}
    older = TargetText(TextRecipe("en", "ca"), None)
    assert older.text("l &apos; home") == "l 'home"
    assert TargetText(TextRecipe("en", "ca", text_rules=2), None).text("l &apos; home") == "l'home"


@pytest.mark.parametrize(
    ("code", "language"),
    [("fra", "fr"), ("fr_FR", "fr"), ("FR", "fr"), ("zh_CN", "zh"), ("en_simple", "en")]
    + [("de", "de"), ("arb", "ar"), ("xyz", "xyz")],
)
def test_codes_of_three_letters_or_with_a_country_mean_a_language(code: str, language: str) -> None:
    """Text of ``fra`` lost the rules of French, both ways."""
    assert moses.language_of(code) == language
    assert bleu.base(code) == language
    text = "L’eau de l’étang n’est pas d'ici."
    recipe = TextRecipe("en", code, text_rules=2)
    tokens = tokeniser(recipe, code)(text)
    assert tokens == moses_tokeniser(language)(text)
    if language == "fr":
        assert TargetText(recipe, None).text(tokens) == text


@pytest.mark.parametrize("lang", PARTS)
@given(data=some.data())
def test_a_sentence_of_such_parts_is_restored(lang: str, data: some.DataObject) -> None:
    parts = some.lists(some.sampled_from(PARTS[lang].split("|")), min_size=1, max_size=8)
    sentence = data.draw(some.sampled_from([" ", ", "])).join(data.draw(parts)) + "."
    assert round_trip(lang, sentence) == sentence


@given(line=some.text("ab ’‘“”„\"'«»‚()[].,:;!?/°′1250h@_-–é$€%،।…#+&", max_size=40))
def test_nothing_but_spaces_changes(line: str) -> None:
    """Whatever a model writes, a broken quotation or address too."""
    for lang in (*PARTS, "ca", "cs", "fa", "fi", "hi", "ko", "sv", "tr"):
        for version in moses.JOINERS:
            assert "".join(round_trip(lang, line, version).split()) == "".join(line.split())


def test_spaces_that_text_has_stay() -> None:
    lines = ["In 2019 (2) he left.", "a – b", "He met 5 of 6 (not 7).", "a « b"]
    assert [round_trip("en", line) for line in lines] == lines
    lines = ["2 + 26", "C # 5", "det är 5 % så", "den 'snälla' mannen", "a … b"]
    assert [round_trip("sv", line) for line in lines] == lines


def test_a_validation_restores_text_likewise() -> None:
    """With fairseq's name for Moses; other names are fairseq's alone."""
    cfg = Namespace(eval_bleu_detok="moses", eval_bleu_detok_args=None, data="nowhere")
    assert restorer_of(cfg, "fr")("l ’ eau d&apos; Anne , à 7 : 45") == "l’eau d'Anne, à 7:45"
    assert restorer_of(cfg, "en")("It doesn &apos;t .") == "It doesn't."
    space = Namespace(eval_bleu_detok="space", eval_bleu_detok_args=None, data="nowhere")
    assert restorer_of(space, "fr")("l ’ eau") == "l ’ eau"


@pytest.mark.parametrize("rules", [None, 1, 2])
def test_a_validation_follows_the_recipe_of_its_text(tmp_path: Path, rules: int | None) -> None:
    """A training that began with an earlier version goes on with its rules."""
    named = f"text_rules: {rules}\n" if rules else ""
    (tmp_path / "recipe.yaml").write_text(f"source_lang: en\ntarget_lang: cs\n{named}")
    data = str(tmp_path / "data-bin")
    cfg = Namespace(eval_bleu_detok="moses", eval_bleu_detok_args=None, data=data)
    expected = "V roku 2035 je 832." if rules == 2 else "V roku2035 je832."
    assert restorer_of(cfg, "cs")("V roku 2035 je 832 .") == expected


def test_a_validation_shows_both_sides_as_text() -> None:
    """The source was shown as tokens, with &apos; for an apostrophe."""
    english, french = "It does@@ n &apos;t .", "L&apos; e@@ au ."
    words = Dictionary()
    for word in f"{english} {french}".split():
        words.add_symbol(word)
    cfg = VaswaniTranslationConfig(source_lang="en", target_lang="fr", data="nowhere")
    cfg.eval_bleu_detok = "moses"
    cfg.eval_bleu_remove_bpe = "@@ "
    cfg.eval_bleu_tokens = "13a"
    task = Namespace(cfg=cfg, source_dictionary=words, target_dictionary=words)
    source, target = (words.encode_line(side, add_if_not_exist=False) for side in (english, french))
    line = ValidBleu(task).line(source, target, target)
    assert line == Line("It doesn't.", "L'eau.", "L'eau.")
