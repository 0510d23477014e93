"""``vaswani prepare --like``: other text with the codes, dictionary and recipe of before."""

import json
import sys

import pytest
import yaml

from tests import archives
from tests.preloaded import python
from vaswani import cli
from vaswani.common.files import sha256_of
from vaswani.data import steps

LANGS = ["--source-lang", "en", "--target-lang", "de"]
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]


def prepare(*argv: str) -> int:
    return cli.main(["prepare", *argv, "--workers", "1"])


@pytest.fixture
def more(own, monkeypatch):
    """data/own, prepared but for fairseq's part, a dictionary in its place; and text to come."""

    def folder(job, options, out):
        out.mkdir()
        like = job.like.dictionary.read_text() if job.like else "a@@ 1\n"
        for lang in job.recipe.langs:
            (out / f"dict.{lang}.txt").write_text(like)

    monkeypatch.setattr(steps, "make_data_bin", folder)
    assert prepare(*OWN, "--max-words", "50", "--out", "data/own") == 0
    for lang in ("en", "de"):
        lines = archives.sentences(lang, 12, 7)
        (own / f"more.{lang}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return own


def test_a_second_test_set_through_fairseq(own, capsys, monkeypatch):
    """With the first text's numbers for its words, by fairseq's own preprocess."""
    monkeypatch.setattr(sys, "executable", python())
    assert prepare(*OWN, "--out", "data/own") == 0
    for lang in ("en", "de"):
        first = (own / f"valid.{lang}").read_text(encoding="utf-8").splitlines()[3:6]
        (own / f"more.{lang}").write_text("\n".join([*first, ""]), encoding="utf-8")
    assert prepare("--like", "data/own", "--test", "more", "--out", "data/more") == 0
    before, after = own / "data/own", own / "data/more"
    assert sha256_of(before / "codes") == sha256_of(after / "codes")
    for lang in ("en", "de"):
        dictionary = f"data-bin/dict.{lang}.txt"
        assert sha256_of(before / dictionary) == sha256_of(after / dictionary)
        subwords = (before / f"bpe/valid.{lang}").read_bytes().splitlines()[3:6]
        assert (after / f"bpe/test.{lang}").read_bytes().splitlines() == subwords
        words = (after / f"data-bin/test.en-de.{lang}.bin").read_bytes()
        assert words in (before / f"data-bin/valid.en-de.{lang}.bin").read_bytes()
    assert sorted(path.name for path in (after / "data-bin").glob("*.idx")) == [
        "test.en-de.de.idx",
        "test.en-de.en.idx",
    ]
    recipe = yaml.safe_load((after / "recipe.yaml").read_text())
    assert recipe["like"] == "data/own" and recipe["test"] == "more" and recipe["train"] is None
    capsys.readouterr()
    assert prepare("--like", "data/own", "--test", "more", "--out", "data/more") == 0
    assert "already prepared" in capsys.readouterr().err


def test_the_recipe_is_that_of_before(more):
    assert prepare("--like", "data/own/data-bin", "--train", "more", "--out", "data/more") == 0
    recipe = yaml.safe_load((more / "data/more/recipe.yaml").read_text())
    assert (recipe["bpe"], recipe["max_words"], recipe["valid"]) == (30, 50, None)
    assert prepare("--like", "data/more", "--test", "more", "--out", "data/third") == 0
    assert sha256_of(more / "data/third/codes") == sha256_of(more / "data/own/codes")


def test_an_experiment_on_ones_own_text_finds_how_it_was_made(more, capsys):
    """By what was left in its folder; with the codes of other text, where it has them."""
    assert prepare("--like", "data/own", "--test", "more", "--out", "data/more") == 0
    for name in ("own", "more"):
        (more / f"{name}.yaml").write_text(f"task: {{data: data/{name}/data-bin}}\n")
        capsys.readouterr()
        assert prepare(name) == 0
        assert f"data/{name}: already prepared" in capsys.readouterr().err


def run_of(folder, dictionary_hash):
    """A run that was trained on data/own, as far as ``--like`` looks."""
    run = folder / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("task: {data: data/own/data-bin}\n")
    hashes = {f"dict.{lang}.txt": dictionary_hash for lang in ("en", "de")}
    (run / "env.json").write_text(json.dumps({"data": {"sha256": hashes}}))


def test_a_run_stands_for_what_it_was_trained_on(more):
    run_of(more, sha256_of(more / "data/own/data-bin/dict.en.txt"))
    assert prepare("--like", "mine", "--test", "more", "--out", "data/more") == 0
    assert sha256_of(more / "data/more/codes") == sha256_of(more / "data/own/codes")


def test_other_codes_redo_what_depends_on_them(more, capsys):
    like = ["--like", "data/own", "--test", "more", "--out", "data/more"]
    assert prepare(*like) == 0
    assert prepare(*OWN, "--bpe", "20", "--out", "data/own") == 0
    capsys.readouterr()
    assert prepare(*like) == 0
    made = [line for line in capsys.readouterr().err.splitlines() if ": made" in line]
    names = [line.split(": made")[0].rpartition("/")[2] for line in made]
    assert names == ["codes", "bpe", "data-bin"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--like", "data/own", "--out", "data/more"], "give --train, --valid or --test"),
        (["--like", "data/own", "--test", "more"], "give --out DIR, and no recipe name"),
        (["demo_en_de", "--like", "data/own", "--out", "x"], "no recipe name"),
        (["--like", "data/own", "--test", "more", "--bpe", "9", "--out", "x"], "exclude --like"),
        (["--like", "nowhere", "--test", "more", "--out", "x"], "there is no run 'nowhere'"),
        (["--like", "data/own", "--test", "more", "--out", "data/own"], "is in data/own/codes"),
        (
            ["--like", "data/own", "--target-lang", "fr", "--test", "more", "--out", "x"],
            "has no codes for en-fr",
        ),
        (["--like", "bare", "--test", "more", "--out", "x"], "no BPE codes beside its data-bin"),
        (["--like", "mine", "--test", "more", "--out", "x"], "is no longer the dictionary"),
    ],
)
def test_what_is_refused_is_one_sentence(more, capsys, argv, message):
    (more / "bare").mkdir()
    (more / "bare" / "dict.en.txt").touch()
    run_of(more, "of another one")
    capsys.readouterr()
    assert prepare(*argv) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]
    assert not (more / "x").exists()
