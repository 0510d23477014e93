"""``vaswani prepare``: several corpora, tables, what a text repeats, and forms of Unicode."""

import gzip
import unicodedata
from pathlib import Path

import pytest

from tests.files import write
from tests.own_text import LANGS, here, sentence_of
from vaswani import PreparedText, PrepareOptions, cli, prepare
from vaswani.common.errors import UserError
from vaswani.data import preparation
from vaswani.data.tokenisation import SourceText

OUT = Path("data/own")


def lines_of(*names: str) -> list[list[str]]:
    """Return the lines of files of the prepared text."""
    return [(OUT / name).read_text(encoding="utf-8").splitlines() for name in names]


def refused(capsys, *more: str) -> str:
    """Return the sentence with which prepare refuses these options, before it writes anything."""
    capsys.readouterr()
    assert cli.main(here(*more)) == 1 and not OUT.exists()
    return sentence_of(capsys)


def test_several_training_texts_are_joined_in_order(own, light, capsys):
    """The last one alone was taken, without a word."""
    write(own / "more.en", "One more house", "And another")
    write(own / "more.de", "Ein Haus mehr", "Und noch eins")
    assert cli.main(here("--train", "more", "--train", "train")) == 0
    first, second = lines_of("text/train.en", "text/train.de")
    assert (first[:2], second[:2]) == (
        ["One more house", "And another"],
        ["Ein Haus mehr", "Und noch eins"],
    )
    assert first[2:] == (own / "train.en").read_text(encoding="utf-8").splitlines()
    assert PreparedText(OUT).recipe().train == ["more", "train"]


def test_one_training_text_is_as_before(own, light):
    assert cli.main(here()) == 0
    assert PreparedText(OUT).recipe().train == "train"


def test_the_function_returns_the_folder_that_it_prepared(own, light):
    """Its readers find what the command's stages wrote, and the same again where all is done."""
    options = PrepareOptions(
        source_lang="en",
        target_lang="de",
        train=["train"],
        valid="valid",
        bpe=30,
        workers=1,
        out=str(OUT),
    )
    text = prepare(options)
    assert text == PreparedText(OUT) == prepare(options)
    recipe = text.recipe()
    assert (recipe.train, recipe.bpe) == ("train", 30)
    assert text.subword_model() == ("subword_nmt", OUT / "codes")
    assert text.sentences("valid", "de").read_text("utf-8") == (own / "valid.de").read_text("utf-8")
    text.check([OUT / "codes"])
    (OUT / "codes").write_text("other", encoding="utf-8")
    with pytest.raises(UserError, match="codes"):
        text.check([OUT / "codes"])


@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_has_both_sides(own, light, capsys, compressed):
    rows = [f"house number {n}\tHaus Nummer {n}" for n in range(30)]
    if compressed:
        (own / "corpus.tsv.gz").write_bytes(gzip.compress("\r\n".join(rows).encode()))
    else:
        write(own / "corpus.tsv", *rows)
    assert cli.main(here("--train", "corpus.tsv" + ".gz" * compressed)) == 0
    first, second = lines_of("text/train.en", "text/train.de")
    assert list(zip(first, second, strict=True)) == [tuple(row.split("\t")) for row in rows]


def test_a_table_of_three_columns_is_refused_with_its_line(own, capsys):
    write(own / "corpus.tsv", "a\tb", "a\tb\t0.9")
    assert cli.main(here("--train", "corpus.tsv")) == 1
    assert "corpus.tsv, line 2, has 3 columns instead of two" in sentence_of(capsys)


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("corpus.tmx", ["translation memory", "two columns", "own-text.md"]),
        ("train.en", ["give train for train.en"]),
        ("both.txt", ["PREFIX.en", "FILE.tsv"]),
    ],
)
def test_a_file_instead_of_a_prefix_is_told_what_is_read(own, capsys, name, hints):
    if not (own / name).exists():
        write(own / name, "<tmx/>")
    message = refused(capsys, "--train", name)
    assert all(hint in message for hint in (f"no file {name}.en", *hints))


def test_a_prefix_beside_a_table_of_that_name_is_told_of_the_table(own, capsys):
    write(own / "corpus.tsv", "a\tb")
    assert "give corpus.tsv" in refused(capsys, "--train", "corpus")


def test_one_table_is_enough_for_training_and_validation_text(own, light, capsys):
    """--valid-every: pairs n, 2n, … of the table are held out, and leave the training text."""
    rows = [f"house number {n}\tHaus Nummer {n}" for n in range(30)]
    write(own / "corpus.tsv", *rows)
    text = [*LANGS, "--train", "corpus.tsv", "--bpe", "30", "--workers", "1", "--out", str(OUT)]
    assert cli.main(["prepare", *text]) == 1
    assert "--valid-every" in sentence_of(capsys), "the way out of a missing validation text"
    assert cli.main(["prepare", *text, "--valid-every", "10"]) == 0
    held_out = list(zip(*lines_of("text/valid.en", "text/valid.de"), strict=True))
    assert held_out == [tuple(rows[n].split("\t")) for n in (9, 19, 29)]
    training = lines_of("text/train.en")[0]
    assert len(training) == 27 and not {pair[0] for pair in held_out} & set(training)
    assert PreparedText(OUT).recipe().valid_every == 10


@pytest.mark.parametrize("option", ["--source-lang", "--target-lang"])
def test_a_missing_language_is_asked_for_by_its_option(own, capsys, option):
    at = LANGS.index(option)
    left = [*LANGS[:at], *LANGS[at + 2 :]]
    text = [*left, "--train", "train", "--valid", "valid", "--out", str(OUT)]
    assert cli.main(["prepare", *text]) == 1
    assert f"is missing: give {option}" in sentence_of(capsys)


def test_what_a_text_repeats_is_counted(own, light, capsys):
    """Of the cleaned pairs; a validation text in the training text makes its scores worthless."""
    english = ["a house", "a house", "the same", "Tom &amp; Ann", "a tree", "x"]
    german = ["ein Haus", "ein Haus", "the same", "Tom und Ann", "ein Baum", "y &#39; z"]
    for lang, lines in (("en", english), ("de", german)):
        write(own / f"train.{lang}", *lines)
        write(own / f"valid.{lang}", lines[4], f"new in {lang}", f" {lines[0]} ")
        write(own / f"test.{lang}", f"new in {lang}", "")
    assert cli.main(here("--test", "test")) == 0
    message = capsys.readouterr().err
    for line in (
        "pairs of train that repeat an earlier one: 1",
        "pairs of train whose sides are equal: 1",
        "pairs of train with HTML entities, such as &amp;: 2",
        "pairs of valid that are in train: 1",
        "pairs of test that are in train: 0",
    ):
        assert f"  {line}\n" in message


def test_accents_apart_from_their_letters_are_the_same_words(own, light, capsys):
    """As macOS writes them; "café" became another word, and another translation."""
    composed, apart = (unicodedata.normalize(form, "The café") for form in ("NFC", "NFD"))
    assert composed != apart
    write(own / "train.en", *[composed, apart] * 20)
    assert cli.main(here()) == 0
    recipe = PreparedText(OUT).recipe()
    assert set(lines_of("text/train.en")[0]) == {composed}
    assert (recipe.unicode, recipe.text_rules) == ("NFC", 2)
    tokens = SourceText(recipe.text, None).tokens
    assert tokens(apart) == tokens(composed)


def test_text_of_an_earlier_recipe_is_left_as_it_is(own, light):
    """It names neither a form of Unicode nor a version of the rules."""
    apart = unicodedata.normalize("NFD", "The café")
    write(own / "train.en", *[apart] * 40)
    table = ["source_lang: en", "target_lang: de", "train: train", "valid: valid", "bpe: 30"]
    write(own / "mine.yaml", *table)
    assert cli.main(["prepare", "mine.yaml", "--out", str(OUT)]) == 0
    assert lines_of("text/train.en")[0] == [apart] * 40
    recipe = PreparedText(OUT).recipe()
    assert (recipe.unicode, recipe.text_rules) == ("none", 1)
    assert SourceText(recipe.text, None).clean(apart) == apart


def test_text_that_an_earlier_version_made_is_not_made_anew(own, light, monkeypatch, capsys):
    """The runs that were trained on it would be of other text. A new folder has the new rules."""
    with monkeypatch.context() as earlier:
        earlier.setattr(preparation, "NEW_TEXT", {})
        assert cli.main(here()) == 0
    capsys.readouterr()
    assert cli.main(here()) == 0
    assert "already prepared" in capsys.readouterr().err
    assert (PreparedText(OUT).recipe().unicode, PreparedText(OUT).recipe().text_rules) == (
        "none",
        1,
    )
    assert cli.main(here("--out", "new")) == 0
    assert PreparedText(Path("new")).recipe().text_rules == 2


def test_subwords_are_refused_as_raw_text_but_a_rare_mark_is_not(own, light, capsys):
    """They were split again, into other words."""
    lines = (own / "train.en").read_text(encoding="utf-8").splitlines()
    write(own / "train.en", "an old ho@@ use", *lines[1:])
    assert cli.main(here()) == 0
    write(own / "train.en", *["an old ho@@ use"] * len(lines))
    assert cli.main(here()) == 1
    assert "train.en, line 1: 'ho@@' ends in '@@', BPE's mark" in capsys.readouterr().err


def test_an_edited_recipe_is_believed_by_nobody(own, capsys):
    """``pack`` and ``--like`` read it as if ``prepare`` had written it."""
    assert cli.main(here()) == 0
    recipe = OUT / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("split_hyphens: false", "split_hyphens: true"))
    capsys.readouterr()
    assert cli.main(["prepare", "--like", str(OUT), "--test", "valid", "--out", "more"]) == 1
    assert "recipe.yaml has changed since 'vaswani prepare' wrote it" in sentence_of(capsys)


def test_trees_are_one_file(own, capsys):
    trees = ["--train", "a", "--train", "b", "--valid", "c"]
    assert cli.main(["prepare", "trees", *trees, "--out", "out"]) == 1
    assert "give one --train FILE" in sentence_of(capsys)


def test_a_language_code_of_three_letters_has_the_rules_of_its_language(own, light):
    (own / "train.de").rename(own / "train.deu")
    (own / "valid.de").rename(own / "valid.deu")
    options = [word if word != "de" else "deu" for word in LANGS]
    assert cli.main(["prepare", *options, *here()[5:]]) == 0
    assert PreparedText(OUT).recipe().text.language("deu") == "de"
