"""``vaswani score`` of files: which rows there are, what is refused, what is compared."""

import json
import re
import unicodedata
from itertools import chain, combinations
from pathlib import Path

import pytest
import sacrebleu

from tests.files import write
from tests.own_text import contents, sentence_of
from vaswani import cli
from vaswani.decoding.batch_decoder import Translated
from vaswani.decoding.generation import align_to_source
from vaswani.scoring import published

ROOT = Path(__file__).resolve().parents[2]
LINES = ["Das kostet 3,50 €, sagte er.", "Am 3. März 1987 war es kalt.", "Die E-Mail kam gestern."]
TOKENS = ["Das kostet 3,50 € , sagte er .", "Es war kalt .", "Die E-Mail kam"]
COMPOUND = [f"compound_split{end}" for end in ("", "_quotes", "_2018", "_2018_quotes")]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def command(hypotheses, references, *options):
    """Run ``vaswani score`` of lines beside lines, and return its exit code."""
    arguments = ["--hypotheses", str(write(Path("h"), *hypotheses))]
    if references is not None:
        arguments += ["--references", str(write(Path("r"), *references))]
    return cli.main(["score", *arguments, *options])


def score(hypotheses, references, *options):
    """Score lines beside lines, and return the report."""
    assert command(hypotheses, references, *options) == 0
    return json.loads(Path("h.score.json").read_text(encoding="utf-8"))


def test_equal_files_have_100_in_every_row(capsys):
    report = score(LINES, LINES, "--pair", "en-de")
    rows = ["bleu", "chrf", "bleu_tokenised", *COMPOUND]
    assert [*report][: len(rows)] == rows and {report[key]["score"] for key in rows} == {100.0}
    assert capsys.readouterr().out.startswith("sacreBLEU"), "the one to quote"
    assert report["pair"] == "en-de" and report["left_out"] == [] and "published" not in report


def test_several_references_are_scored_as_sacrebleu_does():
    """The last one alone was read; the order of the files does not matter."""
    further = ["Das kostet 3,50 €, meint er.", "Am 3. März 1987 fror es.", "Die E-Mail kam an."]
    hypotheses = ["Das kostet 3,50 €, meint er.", *LINES[1:]]
    write(Path("r2"), *further)
    report = score(hypotheses, LINES, "--references", "r2", "--pair", "en-de")
    bleu = sacrebleu.corpus_bleu(hypotheses, [LINES, further])
    chrf = sacrebleu.corpus_chrf(hypotheses, [LINES, further])
    expected = [round(bleu.score, 2), round(chrf.score, 2)]
    assert [report["bleu"]["score"], report["chrf"]["score"]] == expected
    assert expected[0] == 100 > sacrebleu.corpus_bleu(hypotheses, [LINES]).score
    assert "nrefs:2" in report["bleu"]["signature"]
    assert "nrefs:2" in report["bleu_tokenised"]["signature"]
    assert report["bleu_tokenised"]["score"] == 100
    assert not set(COMPOUND) & set(report) and "one reference" in report["left_out"][0]
    names = [Path(one["file"]).name for one in report["files"]["text"].values()]
    assert names == ["h", "r", "r2"]
    write(Path("other"), *LINES)
    compared = score(hypotheses, LINES, "--references", "r2", "--compare", "other")["comparison"]
    other = sacrebleu.corpus_bleu(LINES, [LINES, further]).score
    assert compared["metrics"]["bleu"]["other_score"] == round(other, 2)


def test_each_of_several_references_is_checked(capsys):
    write(Path("short"), *LINES[:2])
    write(Path("tokens"), *TOKENS)
    for name, words in (("short", "short has 2"), ("tokens", "tokens seems to be tokenised")):
        capsys.readouterr()
        assert command(LINES, LINES, "--references", name) == 1
        assert words in sentence_of(capsys)


def test_accents_apart_from_their_letters_are_no_other_words(capsys):
    """macOS writes them apart; sacreBLEU counts "café" as wrong then."""
    lines = [unicodedata.normalize("NFC", "Das Café ist schön geöffnet.")]
    apart = [unicodedata.normalize("NFD", line) for line in lines]
    for hypotheses, references, file in ((apart, lines, "h"), (lines, apart, "r")):
        report = score(hypotheses, references, "--pair", "en-de")
        keys = ("bleu", "chrf", "bleu_tokenised", *COMPOUND)
        assert {report[key]["score"] for key in keys} == {100.0}
        assert f"{file}: accents are separate characters in 1 line" in capsys.readouterr().err
    score(lines, lines)
    assert "accents" not in capsys.readouterr().err


def test_a_byte_order_mark_is_no_text():
    """Of either side; also in the middle, as after cat."""
    marked = [f"\ufeff{LINES[0]}", LINES[1], f"\ufeff{LINES[2]}"]
    for hypotheses, references in ((marked, LINES), (LINES, marked)):
        report = score(hypotheses, references, "--pair", "en-de")
        assert {report[key]["score"] for key in ("bleu", "chrf", "bleu_tokenised")} == {100.0}


@pytest.mark.parametrize(("pair", "tokens"), [("en-de", 5), ("de-en", 6)])
def test_tokens_are_those_of_the_target_language(pair, tokens):
    """``ca.`` is an abbreviation to Moses' German tokeniser, two tokens to its English one."""
    lines = ["Es sind ca. 5 Leute"]
    text = score(lines, lines, "--pair", pair)["bleu_tokenised"]["text"]
    assert f"hyp_len = {tokens} " in text


def test_translations_and_references_have_their_sides():
    """Every row of BLEU: a translation of 5 of the 7 reference's words is right, and too short."""
    report = score(["a b c d e"], ["a b c d e f g"], "--pair", "en-de")
    for key in ("bleu_tokenised", *COMPOUND, "bleu"):
        assert report[key]["text"].split()[3] == "100.0/100.0/100.0/100.0", key
        assert "hyp_len = 5 ref_len = 7" in report[key]["text"], key


def test_translations_that_are_too_short_are_explained(capsys):
    """8 words of 10: exp(1 - 10 / 8) = 0.78; every n-gram right."""
    report = score(["a b c d", "f g h i"], ["a b c d e", "f g h i j"], "--pair", "en-de")
    assert report["bleu"]["brevity_penalty"] == 0.7788 and report["bleu"]["length_ratio"] == 0.8
    assert "--lenpen" in capsys.readouterr().err


def test_of_tokens_there_is_no_sacrebleu():
    lines = ["ein alter Mann , der lacht .", "zwei Hunde"]
    report = score(lines, lines, "--tokenised")
    assert "bleu" not in report and report["bleu_tokenised"]["score"] == 100.0
    split = ["ein 12 @-@ jähriger , der lacht ."]
    assert "compound_split" not in score(split, split, "--tokenised")


@pytest.mark.parametrize(
    ("hypotheses", "references", "options", "named"),
    [
        (["a"], ["a", "b"], [], "h has 1 lines"),
        (LINES, TOKENS, [], "r seems to be tokenised"),
        (["a", "b"], ["", "\u00a0"], [], "all 2 lines of r are blank"),
        (["a", "ge@@ hen"], ["a", "b"], [], "h, line 2"),
        (["a"], None, [], "--references"),
        (["a"], None, ["--test-set", "wmt14/ful", "--pair", "en-de"], "wmt14/ful"),
    ],
)
def test_unsuitable_files_are_not_scored(capsys, hypotheses, references, options, named):
    assert command(hypotheses, references, *options) == 1
    assert named in sentence_of(capsys) and not Path("h.score.json").exists()


@pytest.mark.parametrize("name", ["--hypotheses", "--references", "--compare"])
def test_a_folder_is_no_text(name, capsys):
    write(Path("h"), *LINES)
    files = {"--hypotheses": "h", "--references": "h", name: "."}
    words = [word for pair in files.items() for word in pair]
    assert cli.main(["score", *words, "--pair", "en-de"]) == 1
    assert "there is no file ." in sentence_of(capsys)


def test_scores_replace_scores_and_nothing_else(capsys):
    for name in ("h", "r"):
        write(Path(name), *LINES)
    write(Path("h.score.json"), '{"lines": 3}')
    before = contents(Path())
    for options in ([], ["--json", "./r"]):
        assert command(LINES, LINES, *options) == 1
        assert sentence_of(capsys) and contents(Path()) == before
    for _ in range(2):
        assert command(LINES, LINES, "--json", "new/scores.json") == 0


# ---- test sets --------------------------------------------------------------------------------


@pytest.fixture
def newstest(tmp_path, monkeypatch):
    """Write sacreBLEU's wmt14/full in short sentences, as its cache keeps the files."""
    from sacrebleu.dataset import DATASETS

    for known in ("wmt14/full", "wmt14"):
        monkeypatch.setattr(DATASETS[known], "_outdir", str(tmp_path / "sacrebleu"))
        monkeypatch.setattr(DATASETS[known], "_rawdir", str(tmp_path / "sacrebleu" / "raw"))
    lines = [f"s {n % 9} t u" for n in range(3003)]
    for name in DATASETS["wmt14/full"].fieldnames("en-de"):
        write(tmp_path / "sacrebleu" / f"wmt14_full.en-de.{name}", *lines)
    return lines


def test_a_test_set_of_sacrebleus_with_published_figures(newstest, capsys):
    of_the_set = ["--test-set", "wmt14/full", "--pair", "en-de"]
    report = score(newstest, None, *of_the_set)
    assert report["bleu"]["score"] == 100.0 and "test:wmt14/full" in report["bleu"]["signature"]
    paper = report["published"][0]
    assert (paper["system"], paper["base"], paper["big"]) == ("the paper", 27.3, 28.4), "Table 2"
    capsys.readouterr()
    assert command(newstest[1:], None, *of_the_set) == 1
    assert "3,002" in sentence_of(capsys)


@pytest.mark.paper("table 2")
def test_published_figures_belong_to_one_test_set():
    """Table 2, Table 3, and nothing beside another set, another pair or a part of a set."""
    of = published.published_figures
    assert of("wmt14/full", ("en", "fr"), 3003)[0][1:3] == (38.1, 41.8)
    assert of("wmt13", ("en", "de"), 3000)[0][1:3] == (25.8, 26.4)
    others = [("wmt14/full", ("de", "en"), 3003), ("wmt14/full", ("en", "de"), 20)]
    others += [("wmt14", ("en", "de"), 2737), (None, ("en", "de"), 3003)]
    assert not any(of(*other) for other in others)


def test_the_documents_figures_are_published_ones():
    """docs/scoring.md repeats rows of vaswani/scoring/published.py: the paper's among them."""
    document = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    rows = set()
    for figures in published.FIGURES.values():
        for figure in figures:
            cells = ["" if cell is None else str(cell) for cell in figure]
            rows.add(f"| {' | '.join(cells)} |")
    tables = document.partition("## What others report")[2].partition("\n## ")[0]
    shown = set(re.findall(r"^\| (?!system).*\d.* \|$", tables, re.MULTILINE))
    assert len(shown) >= 10 and shown <= rows
    assert {row for row in rows if row.startswith("| the paper")} <= shown


# ---- two systems ------------------------------------------------------------------------------


def p_values(hypotheses, references, other, *options):
    """Return the p of the difference, by measure."""
    write(Path("other"), *other)
    found = score(hypotheses, references, "--compare", "other", *options)["comparison"]
    return [row["p"] for row in found["metrics"].values()]


def test_a_system_is_not_better_than_itself():
    assert p_values(LINES * 10, LINES * 10, LINES * 10) == [1.0, 1.0]


def test_only_a_clearly_better_system_is_better():
    """Every line right against every line with its words turned round; and nearly alike."""
    references = [f"Der {n}. Satz hat sieben ganze Worte" for n in range(40)]
    turned = [" ".join(line.split()[::-1]) for line in references]
    assert all(p < 0.05 for p in p_values(references, references, turned))
    first, second = references.copy(), references.copy()
    first[3] = second[4] = "Der 3. Satz hat sieben andere Worte"  # chance decides the order
    assert all(p > 0.05 for p in p_values(first, references, second))


def test_p_counts_differences_in_both_directions():
    """As counted over all 2⁸ exchanges of the eight sentences in which the systems differ."""
    references = [" ".join(f"w{n}{word}" for word in range(5 + n)) for n in range(20)]
    first, second = references.copy(), references.copy()
    mistakes = [(first, [1, 4, 9]), (second, [2, 3, 6, 11, 14])]
    for system, lines in mistakes:
        for line in lines:
            system[line] = system[line].replace(f"w{line}2", "wrong")
    differing = [line for line, ours in enumerate(first) if ours != second[line]]

    def difference(exchanged):
        """Return |BLEU of the first - of the second| once these sentences are exchanged."""
        systems = [first.copy(), second.copy()]
        for line in exchanged:
            systems[0][line], systems[1][line] = second[line], first[line]
        ours, others = (sacrebleu.corpus_bleu(system, [references]).score for system in systems)
        return abs(ours - others)

    observed = difference([])
    subsets = chain.from_iterable(combinations(differing, n) for n in range(9))
    more_extreme = sum(difference(subset) > observed + 1e-9 for subset in subsets)
    assert 0.2 < more_extreme / 256 < 0.8
    bleu_p, _ = p_values(first, references, second)
    # 10,000 trials: four standard deviations; the few subsets that tie by rounding
    assert bleu_p == pytest.approx(more_extreme / 256, abs=0.03)


# ---- text without spaces ----------------------------------------------------------------------

CHINESE = ["今天天气很好。", "我们去公园，好吗？"]


@pytest.mark.parametrize(
    ("pair", "lines", "tokens"),
    [
        ("en-zh", CHINESE, "zh"),
        ("en-ja", ["今日は天気です。"], "char"),
        ("en-xx", CHINESE, "char"),  # by its letters
        ("en-de", ["DasHausistgroß.", "DerHundschläft,dieKatzeauch."], "char"),  # by its spaces
        ("en-de", LINES, "13a"),
    ],
)
def test_nothing_without_spaces_is_scored_as_words(pair, lines, tokens, monkeypatch):
    """Where the packages for Japanese are missing, characters; the signature says so."""
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    report = score([lines[0][:-1], *lines[1:]], lines, "--pair", pair)
    assert f"|tok:{tokens}|" in report["bleu"]["signature"] and 0 < report["chrf"]["score"] < 100
    assert ("bleu_tokenised" in report) == (tokens == "13a")


# ---- what other commands count ----------------------------------------------------------------


def test_translations_come_back_in_order_and_none_is_lost():
    """Batches come in any order; 2 is blank, 3 was too long."""
    found = [(1, "x y", "b@@ c d"), (0, "x", "a"), (2, "", "noise"), (4, "x", "e@@")]
    assert align_to_source([Translated(*one) for one in found], 5) == (
        ["a", "bc d", "", "", "e"],
        [4],
    )
