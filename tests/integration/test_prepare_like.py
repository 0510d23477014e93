"""``vaswani prepare --like``: other text with the codes, dictionary and recipe of before."""

import json

import pytest
import yaml

from tests import archives
from tests.files import write
from tests.own_text import HERE, here, sentence_of
from vaswani import cli
from vaswani.common.files import sha256_of
from vaswani.data import pipeline


def prepare(*argv: str) -> int:
    return cli.main(["prepare", *argv, "--workers", "1"])


@pytest.fixture
def more(own, monkeypatch):
    """Prepare data/own with a stand-in for fairseq's part, and write more text."""

    def folder(job, out):
        out.mkdir()
        words = job.read["dictionary"].read_text() if job.recipe.like else "a@@ 1\n"
        for lang in job.recipe.langs:
            (out / f"dict.{lang}.txt").write_text(words)
        return {}

    monkeypatch.setattr(pipeline, "make_data_bin", folder)
    assert cli.main(here("--max-words", "50")) == 0
    for lang in ("en", "de"):
        write(own / f"more.{lang}", *archives.sentences(lang, 12, 7))
    return own


def test_a_second_test_set_has_the_numbers_of_the_first_text(own):
    assert cli.main(HERE) == 0
    for lang in ("en", "de"):
        first = (own / f"valid.{lang}").read_text(encoding="utf-8").splitlines()[3:6]
        write(own / f"more.{lang}", *first)
    assert prepare("--like", "data/own", "--test", "more", "--out", "data/more") == 0
    before, after = own / "data/own", own / "data/more"
    assert sha256_of(before / "codes") == sha256_of(after / "codes")
    for lang in ("en", "de"):
        dictionary = f"data-bin/dict.{lang}.txt"
        assert sha256_of(before / dictionary) == sha256_of(after / dictionary)
        words = (after / f"data-bin/test.en-de.{lang}.bin").read_bytes()
        assert words in (before / f"data-bin/valid.en-de.{lang}.bin").read_bytes()
    assert {path.name for path in (after / "data-bin").glob("*.idx")} == {
        f"test.en-de.{lang}.idx" for lang in ("en", "de")
    }


def test_the_recipe_is_that_of_before(more):
    assert prepare("--like", "data/own/data-bin", "--train", "more", "--out", "data/more") == 0
    recipe = yaml.safe_load((more / "data/more/recipe.yaml").read_text())
    assert (recipe["bpe"], recipe["max_words"], recipe["valid"]) == (30, 50, None)
    assert prepare("--like", "data/more", "--test", "more", "--out", "data/third") == 0
    assert sha256_of(more / "data/third/codes") == sha256_of(more / "data/own/codes")


@pytest.mark.parametrize(
    ("like", "start"),
    [("mine", " --from mine"), ("runs/mine", " --from runs/mine"), ("data/own", "")],
)
def test_the_next_command_starts_from_the_run_whose_codes_were_used(more, capsys, like, start):
    """Without ``--from`` a new model was trained, on a few sentences."""
    run_of(more, sha256_of(more / "data/own/data-bin/dict.en.txt"))
    capsys.readouterr()
    assert prepare("--like", like, "--train", "more", "--out", "data/law") == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"next: vaswani new law --data data/law{start}"


def run_of(folder, dictionary_hash):
    """Write the files that ``--like`` reads of a run on data/own."""
    run = folder / "runs" / "mine"
    write(run / "config.yaml", "task: {data: data/own/data-bin}")
    hashes = {f"dict.{lang}.txt": dictionary_hash for lang in ("en", "de")}
    write(run / "env.json", json.dumps({"data": {"sha256": hashes}}))


def test_a_run_stands_for_what_it_was_trained_on(more):
    run_of(more, sha256_of(more / "data/own/data-bin/dict.en.txt"))
    assert prepare("--like", "mine", "--test", "more", "--out", "data/more") == 0
    assert sha256_of(more / "data/more/codes") == sha256_of(more / "data/own/codes")


def test_a_packed_model_gives_codes_and_recipe_unless_it_was_altered(more, capsys):
    """Nor if a key of its config.json is unknown."""
    folder = more / "packed"
    files = [write(folder / "bpecodes", (more / "data/own/codes").read_text())]
    files += [write(folder / f"dict.{lang}.txt", "a@@ 1") for lang in ("en", "de")]
    text = {"source_lang": "en", "target_lang": "de", "split_hyphens": True}
    files.append(write(folder / "config.json", json.dumps({"text": text})))
    write(folder / "SHA256SUMS", *(f"{sha256_of(path)}  {path.name}" for path in files))
    like = ["--like", "packed", "--test", "more", "--out", "data/more"]
    assert prepare(*like) == 0
    assert sha256_of(more / "data/more/codes") == sha256_of(files[0])
    assert yaml.safe_load((more / "data/more/recipe.yaml").read_text())["split_hyphens"]
    assert prepare("--like", "packed", "--train", "more", "--out", "data/law") == 0
    assert "next: vaswani new law --data data/law --from packed\n" in capsys.readouterr().err
    for name, content, named in (
        ("dict.en.txt", "b@@ 1", "dict.en.txt was altered"),
        ("config.json", json.dumps({"text": {**text, "alphabet": "runes"}}), "'alphabet'"),
    ):
        write(folder / name, content)
        capsys.readouterr()
        assert prepare(*like) == 1
        assert named in sentence_of(capsys)


@pytest.mark.parametrize("like", ["packed", "data/own"])
def test_text_like_that_of_a_model_in_lower_case_is_lowered(more, like):
    """Its capitals were unknown words. The dictionary of data/own has no capitals, too."""
    folder = more / "packed"
    files = [write(folder / "bpecodes", (more / "data/own/codes").read_text())]
    files += [write(folder / f"dict.{lang}.txt", "a@@ 1") for lang in ("en", "de")]
    text = {"source_lang": "en", "target_lang": "de", "lowercase": True, "unicode": "NFC"}
    files.append(write(folder / "config.json", json.dumps({"text": text})))
    write(folder / "SHA256SUMS", *(f"{sha256_of(path)}  {path.name}" for path in files))
    write(more / "more.en", "The House", "A Dog")
    write(more / "more.de", "Das Haus", "Ein Hund")
    assert prepare("--like", like, "--test", "more", "--out", "data/more") == 0
    for lang, words in (("en", ["the house", "a dog"]), ("de", ["das haus", "ein hund"])):
        lines = (more / f"data/more/tok/test.{lang}").read_text(encoding="utf-8").splitlines()
        assert lines == words
    assert "The House" in (more / "data/more/text/test.en").read_text(encoding="utf-8")
    recipe = yaml.safe_load((more / "data/more/recipe.yaml").read_text())
    assert (recipe["lowercase"], recipe["unicode"]) == (True, "NFC")
    assert recipe["text_rules"] == (1 if like == "packed" else 2)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--like", "data/own", "--out", "data/more"], "--test"),
        (["--like", "data/own", "--test", "more", "--bpe", "9", "--out", "x"], "--bpe"),
        (["--like", "bare", "--test", "more", "--out", "x"], "bare"),
        (["--like", "mine", "--test", "more", "--out", "x"], "runs/mine"),
    ],
)
def test_like_something_unsuitable_is_refused(more, capsys, argv, named):
    """``bare`` has no codes; the run ``mine`` had another dictionary."""
    write(more / "bare" / "dict.en.txt")
    run_of(more, "of another one")
    capsys.readouterr()
    assert prepare(*argv) == 1
    assert named in sentence_of(capsys) and not (more / "x").exists()
