"""Scores: which rows there are, what is refused, what is compared; and the demo's own figures."""

import json
from pathlib import Path

import pytest

from benchmarks.demo_report import has_number, nearest, number_rows, numbers_right, share
from tests.files import write
from vaswani import cli
from vaswani.commands.generate import in_order
from vaswani.decoding.data_set import Translated
from vaswani.scoring import published

ROOT = Path(__file__).resolve().parents[2]
LINES = ["Das kostet 3,50 €, sagte er.", "Am 3. März 1987 war es kalt.", "Die E-Mail kam gestern."]
COMPOUND = [f"compound_split{end}" for end in ("", "_quotes", "_2018", "_2018_quotes")]


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Score lines beside lines: exit code, the JSON file, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(hypotheses, references, *options):
        arguments = ["--hypotheses", str(write(tmp_path / "h", *hypotheses))]
        if references is not None:
            arguments += ["--references", str(write(tmp_path / "r", *references))]
        code = cli.main(["score", *arguments, *options])
        path = tmp_path / "h.score.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        return (code, report, *capsys.readouterr())

    return run


def test_equal_files_have_100_in_every_row(score):
    code, report, out, _ = score(LINES, LINES, "--pair", "en-de")
    rows = ["bleu", "chrf", "bleu_tokenised", *COMPOUND]
    assert code == 0 and [*report][: len(rows)] == rows
    assert {report[key]["score"] for key in rows} == {100.0}
    assert out.startswith("sacreBLEU"), "the one to quote"
    assert out.count("\n") == len(rows) and "tok:13a" in out and out.count("100.00") >= len(rows)
    assert report["lines"] == 3 and report["pair"] == "en-de" and report["left_out"] == []
    assert len(report["files"]["text"]["hypotheses"]["sha256"]) == 64
    assert "published" not in report and "paper" not in out


def test_tokens_are_those_of_moses(score):
    """10 of 11 tokens: ``Er``, ``sagt``, ``,``, ``&quot;`` … and the last one wrong."""
    hypotheses, references = ['Er sagt, "ja, 3,5".', "Gut so"], ['Er sagt, "ja, 3,5".', "Gut da"]
    _, report, _, _ = score(hypotheses, references, "--pair", "en-de")
    # Er sagt , &quot; ja , 3,5 &quot; . | Gut so
    assert report["bleu_tokenised"]["text"].split()[3].startswith("90.9/88.9/100.0/")
    assert "hyp_len = 11 " in report["bleu_tokenised"]["text"]


def test_tokens_are_those_of_the_target_language(score):
    """``ca.`` is an abbreviation to Moses' German tokeniser, two tokens to its English one."""
    lines = ["Es sind ca. 5 Leute"]
    _, report, _, _ = score(lines, lines, "--pair", "en-de")
    assert "hyp_len = 5 " in report["bleu_tokenised"]["text"]
    _, report, _, _ = score(lines, lines, "--pair", "de-en")
    assert "hyp_len = 6 " in report["bleu_tokenised"]["text"]


def test_translations_and_references_have_their_sides(score):
    """Every row of BLEU: a translation of 5 of the 7 reference's words is right, and too short."""
    _, report, _, _ = score(["a b c d e"], ["a b c d e f g"], "--pair", "en-de")
    for key in ("bleu_tokenised", *COMPOUND, "bleu"):
        assert report[key]["text"].split()[3] == "100.0/100.0/100.0/100.0", key
        assert "hyp_len = 5 ref_len = 7" in report[key]["text"], key


def test_without_a_pair_the_reason_is_said(score):
    code, report, out, err = score(LINES, LINES)
    assert code == 0 and "bleu_tokenised" not in report and report["bleu"]["score"] == 100.0
    assert err.count("left out: ") == len(report["left_out"]) == 2 and "--pair" in err
    assert out.count("\n") == 2


def test_compounds_are_split_in_german_alone(score):
    _, report, out, err = score(LINES, LINES, "--pair", "en-fr")
    assert not [key for key in report if key.startswith("compound_split")]
    assert "compound-split" not in out + err and report["left_out"] == []


def test_translations_that_are_too_short_are_explained(score):
    """8 words of 10: exp(1 - 10 / 8) = 0.78; every n-gram right."""
    expected = ["a b c d e", "f g h i j"]
    _, report, _, err = score(["a b c d", "f g h i"], expected, "--pair", "en-de")
    assert report["bleu"]["brevity_penalty"] == 0.7788 and report["bleu"]["length_ratio"] == 0.8
    assert "have 80% of the references' length" in err and "turns 100.0 into 77.9" in err
    assert "--lenpen" in err
    assert "too short" not in score(expected, expected, "--pair", "en-de")[3]


@pytest.mark.parametrize("line", ["x", "x y z x y z x y z x y z", "a x"])
def test_a_model_that_has_hardly_learned_is_not_called_too_short(score, line):
    """Whatever the length of what it says."""
    references = ["a b c d e f g", "h i j k l m n"]
    _, report, _, err = score([line, line], references, "--pair", "en-de")
    assert report["bleu"]["score"] < 5
    assert f"BLEU {report['bleu']['score']:.2f}: the model has hardly learned" in err
    assert "too short" not in err


def test_blank_translations_are_worth_nothing(score):
    """A model that has hardly learned; of blank references nothing can be said."""
    code, report, _, err = score(["", " "], ["a b c d e f g", "h i"], "--pair", "en-de")
    assert code == 0 and "hardly learned" in err and report["without_output"] == [1, 2]
    assert {report[key]["score"] for key in ("bleu", "bleu_tokenised", "chrf")} == {0.0}


def test_of_tokens_there_is_no_sacrebleu(score):
    lines = ["ein alter Mann , der lacht .", "zwei Hunde"]
    code, report, _, err = score(lines, lines, "--tokenised")
    assert code == 0 and "bleu" not in report and "sacreBLEU: it needs untokenised text" in err
    assert report["bleu_tokenised"]["score"] == report["compound_split"]["score"] == 100.0
    split = ["ein 12 @-@ jähriger , der lacht ."]
    code, report, _, err = score(split, split, "--tokenised")
    assert code == 0 and "compound_split" not in report
    assert "line 1, holds '@-@': its hyphens are already split" in err


TOKENS = ["Das kostet 3,50 € , sagte er .", "Es war kalt .", "Die E-Mail kam"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "options", "message"),
    [
        (["a"], ["a", "b"], [], "h has 1 lines and "),
        ([], ["a"], [], "h is empty: there is nothing"),
        (["a"], [], [], "r is empty"),
        (LINES, TOKENS, [], "r seems to be tokenised (most of its lines"),
        (["a", "b"], ["a", "well @-@ known"], [], "seems to be tokenised (line 2 holds @-@)"),
        (["a"], ["a ##AT##-##AT## b"], [], "seems to be tokenised (line 1"),
        (["a", "well @-@ known"], ["a", "b"], [], "h, line 2, holds '@-@'"),
        (["a", "ge@@ hen"], ["a", "b"], [], "h, line 2, holds BPE's mark"),
        (["ge@@"], ["b"], ["--tokenised"], "h, line 1, holds BPE's mark"),
        (["a"], ["ge@@ hen"], [], "r, line 1, holds BPE's mark"),
        (["a"], ["a"], ["--pair", "german"], "--pair german is not a language pair"),
        (["a"], ["a"], ["--test-set", "wmt14/full"], "needs --pair too"),
        (["a"], ["a"], ["--test-set", "wmt14/full", "--pair", "en-de"], "has 3,003 sentences, but"),
        (["a"], None, [], "give a run, or --hypotheses with"),
        (["a"], None, ["--test-set", "wmt14/ful", "--pair", "en-de"], "mean 'wmt14/full'?"),
        (["a"], ["a"], ["--test-set", "wmt14/ful", "--pair", "en-de"], "mean 'wmt14/full'?"),
        (["a"], None, ["--test-set", "wmt14/full", "--pair", "en-sw"], "has no pair en-sw; it has"),
        (["a"], ["a"], ["--compare", "nowhere"], "no file nowhere"),
        (["a"], ["a"], ["run"], "not both: --hypotheses, --references"),
    ],
)
def test_what_cannot_be_scored(score, hypotheses, references, options, message):
    code, report, out, err = score(hypotheses, references, *options)
    assert (code, report, out) == (1, None, "")
    assert message in err and err.count("\n") == 1


def test_an_abbreviation_in_every_line_is_no_token(score):
    """A full stop after a space in some lines, as in " .NET", is text."""
    lines = ["Mit .NET und C#.", "Es geht ... weiter , so.", "Ja, ja.", "Nein.", "Doch."]
    assert score(lines, lines)[0] == 0


def test_sentences_without_output_are_named(score):
    """Lines 2 to 26; line 27 has nothing to say, and no translation of it is missing."""
    hypotheses, references = ["a b c d", *[""] * 26], [*["a b c d"] * 26, ""]
    code, report, _, err = score(hypotheses, references)
    assert code == 0 and report["without_output"] == list(range(2, 27))
    assert "25 of 27 sentences have no translation" in err
    assert err.split("lines ")[1].startswith("2, 3, 4") and ", 21 and 5 more" in err


def test_translations_in_tokens_are_warned_about(score):
    code, _, _, err = score(TOKENS, LINES)
    assert code == 0 and "looks tokenised, but its references do not" in err


@pytest.fixture
def newstest(tmp_path, monkeypatch):
    """sacreBLEU's wmt14/full in small words: a cache of its files, as it keeps them."""
    from sacrebleu.dataset import DATASETS

    folder = tmp_path / "sacrebleu"
    folder.mkdir()
    for known in ("wmt14/full", "wmt14"):
        monkeypatch.setattr(DATASETS[known], "_outdir", str(folder))
        monkeypatch.setattr(DATASETS[known], "_rawdir", str(folder / "raw"))
    for name in DATASETS["wmt14/full"].fieldnames("en-de"):
        write(folder / f"wmt14_full.en-de.{name}", *(f"s {n % 9} t u" for n in range(3003)))
    return folder


def test_a_test_set_of_sacrebleus_with_published_figures(score, newstest):
    message = [f"s {n % 9} t u" for n in range(3003)]
    code, report, out, _ = score(message, None, "--test-set", "wmt14/full", "--pair", "en-de")
    assert code == 0 and report["bleu"]["score"] == 100.0
    assert "lang:en-de" in report["bleu"]["signature"]
    assert "test:wmt14/full" in report["bleu"]["signature"]
    paper = report["published"][0]
    assert (paper["system"], paper["base"], paper["big"]) == ("the paper", 27.3, 28.4), "Table 2"
    assert out.count("\n") == 7 + 2 + len(report["published"]) and "Table 2" in out
    code, _, _, err = score(message[1:], None, "--test-set", "wmt14/full", "--pair", "en-de")
    assert code == 1 and "3,002 lines and" in err and "3,003" in err


@pytest.mark.parametrize("error", [OSError("no route to host"), SystemExit(1)])
def test_a_test_set_that_cannot_be_had(score, newstest, monkeypatch, error):
    def download(*_, **__):
        raise error

    monkeypatch.setattr("sacrebleu.dataset.base.download_file", download)
    (newstest / "wmt14_full.en-de.ref").unlink()
    code, _, _, err = score(["a"], None, "--test-set", "wmt14/full", "--pair", "en-de")
    assert code == 1 and "could not give wmt14/full en-de" in err and err.count("\n") == 1


@pytest.mark.paper("table 2")
def test_published_figures_belong_to_one_test_set():
    """Table 2, Table 3, and nothing beside another set, another pair or a part of a set."""
    of = published.published
    assert [figure[1:3] for figure in of("wmt14/full", ("en", "fr"), 3003)[:2]] == [
        (38.1, 41.8),
        (38.1, 41.0),
    ]
    assert of("wmt13", ("en", "de"), 3000)[0][1:3] == (25.8, 26.4)
    others = [("wmt14/full", ("de", "en"), 3003), ("wmt14/full", ("en", "de"), 20)]
    others += [("wmt14", ("en", "de"), 2737), ("wmt15", ("en", "de"), 3003)]
    assert not any(of(*other) for other in [*others, (None, ("en", "de"), 3003)])


def test_the_document_has_the_same_figures():
    """docs/scoring.md repeats the table of vaswani/scoring/published.py."""
    document = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    for figures in published.FIGURES.values():
        for figure in figures:
            cells = ["" if cell is None else str(cell) for cell in figure]
            assert f"| {' | '.join(cells)} |" in document


def test_a_system_is_not_better_than_itself(score, tmp_path):
    same = write(tmp_path / "same", *LINES * 10)
    code, report, out, _ = score(LINES * 10, LINES * 10, "--compare", str(same))
    found = report["comparison"]
    assert code == 0 and [row["p"] for row in found["metrics"].values()] == [1.0, 1.0]
    assert (found["resamples"], found["seed"]) == (1000, "12345")
    assert (
        "1,000 resamples, seed 12345" in out
        and "seed:12345" in found["metrics"]["bleu"]["signature"]
    )


@pytest.mark.parametrize("options", [[], ["--tokenised"]])
def test_a_clearly_better_system(score, tmp_path, options):
    """Every line right against every line with its words turned round; and nearly alike."""
    references = [f"Der {n}. Satz hat sieben ganze Worte" for n in range(40)]
    worse = write(tmp_path / "worse", *(" ".join(line.split()[::-1]) for line in references))
    _, report, _, _ = score(references, references, "--compare", str(worse), *options)
    for row in report["comparison"]["metrics"].values():
        assert row["p"] < 0.05 and row["score"] > row["other_score"]
    # one word wrong in one line each: the order is chance
    hypotheses, other = (
        [line.replace("ganze", "andere") if n == at else line for n, line in enumerate(references)]
        for at in (3, 4)
    )
    alike = write(tmp_path / "alike", *other[:-1], "Der 39. Satz hat sieben ganze Wörter")
    _, report, _, _ = score(hypotheses, references, "--compare", str(alike), *options)
    assert all(row["p"] > 0.05 for row in report["comparison"]["metrics"].values())


def test_the_other_system_must_have_as_many_lines(score, tmp_path):
    other = write(tmp_path / "other", *LINES[:2])
    code, report, _, err = score(LINES, LINES, "--compare", str(other))
    assert (code, report) == (1, None) and "other has 2 lines and" in err


def test_the_numbers_go_where_they_are_asked_to(score, tmp_path):
    code, report, _, err = score(LINES, LINES, "--json", str(tmp_path / "a" / "b.json"))
    assert code == 0 and report is None and "b.json" in err
    assert json.loads((tmp_path / "a" / "b.json").read_text(encoding="utf-8"))["lines"] == 3


def test_translations_come_back_in_order_and_none_is_lost():
    """Batches come in any order; 2 is blank, 3 was too long."""
    found = [(1, "x y", "b@@ c d"), (0, "x", "a"), (2, "", "noise"), (4, "x", "e@@")]
    assert in_order([Translated(*one) for one in found], 5) == (["a", "bc d", "", "", "e"], [4])


def test_nearest_is_the_largest_dice_coefficient():
    """2·2/(3+3) for the first and third, 2·3/(3+4) for the second; the first of equals."""
    known = ["the red house", "the blue house stands", "the blue car"]
    assert nearest(["the blue house", "entirely unknown"], known) == [1, 0]


def test_numbers_are_counted_each(tmp_path):
    table = write(tmp_path / "v.tsv", "sentence\tvalue\ttext", "1\tn:7\tsieben", "1\tn:8\tacht")
    rows = number_rows(write(table, *table.read_text().splitlines(), "2\tn:47\t47"))
    assert rows == [(0, "sieben"), (0, "acht"), (1, "47")]
    assert numbers_right(rows, ["sieben oder neun", "147"]) == 33.3
    assert share([True, True, True, False]) == 75.0


def test_a_number_counts_only_when_it_is_whole():
    assert has_number("47", "Es sind 47 Kinder.") and has_number("47", "Zimmer 47.")
    for text in ("147 Kinder", "47,5 Liter", "1.047 Kinder", "1 047 enfants", "47 500 enfants"):
        assert not has_number("47", text)
    assert not has_number("deux cent trois", "mille deux cent trois livres")
    assert not has_number("deux cent", "deux cent trois livres")
    assert has_number("deux cent trois", "avec deux cent trois amis")
    assert not has_number("siebenundvierzig", "dreihundertsiebenundvierzig Kinder")


# ---- text without spaces ------------------------------------------------------------------------

CHINESE = ["今天天气很好。", "我们去公园，好吗？"]


@pytest.mark.parametrize(
    "pair, lines, tokens",
    [
        ("en-zh", CHINESE, "zh"),
        ("en-cmn", CHINESE, "zh"),
        ("en-ja", ["今日は天気です。"], "char"),
        ("en-ko", ["오늘은 날씨가 좋아요."], "char"),
        ("en-th", ["วันนี้อากาศดี"], "char"),
        ("en-xx", CHINESE, "char"),  # by its letters
        ("en-de", ["DasHausistgroß.", "DerHundschläft,dieKatzeauch."], "char"),  # by its spaces
        (None, CHINESE, "char"),
        ("en-de", LINES, "13a"),
    ],
)
def test_nothing_without_spaces_is_scored_as_words(pair, lines, tokens, score, monkeypatch):
    """Where the packages for Japanese and Korean are missing, characters; the signature says so."""
    for module in ("ja", "ko"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{module}_mecab.MeCab", None)
    almost = [lines[0][:-1], *lines[1:]]
    code, report, _, error = score(almost, lines, *(["--pair", pair] if pair else []))
    assert code == 0 and f"|tok:{tokens}|" in report["bleu"]["signature"]
    assert 0 < report["chrf"]["score"] < 100
    spaced = tokens == "13a" or pair == "en-ko"
    assert ("bleu_tokenised" in report) == spaced
    if pair not in ("en-ja", "en-ko"):
        assert "-mecab" not in error
    else:
        assert f"'pip install sacrebleu[{pair[3:]}]' installs it; its row counts char" in error


def test_characters_are_counted_as_sacrebleu_counts_them(score):
    import sacrebleu

    hypotheses = ["今天天气好。", CHINESE[1]]
    _, report, _, _ = score(hypotheses, CHINESE, "--pair", "en-zh")
    expected = sacrebleu.corpus_bleu(hypotheses, [CHINESE], tokenize="zh")
    assert report["bleu"]["score"] == round(expected.score, 2) > 0
