"""WMT14 from nothing to data-bin, from a server on this machine that offers it in small."""

from pathlib import Path

import pytest

from tests import archives
from vaswani import cli
from vaswani.data.read_data_bin import read_index
from vaswani.data.read_recipe import find_recipe

#: pairs in each training archive
COUNT = 280


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    www = tmp_path_factory.mktemp("www")
    archives.offer(www, COUNT)
    with archives.Server(www) as server:
        yield server


@pytest.fixture(scope="module")
def manifest(server, tmp_path_factory) -> str:
    """Write the manifest with the server's addresses."""
    path = tmp_path_factory.mktemp("manifest") / "manifest.yaml"
    return str(archives.manifest(server.www, server.base, path))


@pytest.fixture(scope="module")
def english_german(manifest, tmp_path_factory) -> Path:
    """Prepare the paper's English-German data from nothing, and return the folder."""
    folder = tmp_path_factory.mktemp("en-de")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert cli.main(["prepare", "wmt14_en_de", "--manifest", manifest, "--workers", "1"]) == 0
    return folder


def lines(path: Path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_every_pair_of_the_papers_data_is_in_its_place(english_german):
    folder = english_german / "data" / "wmt14_en_de"
    for split, part in (("test", "newstest2014"), ("valid", "newstest2013")):
        for lang in ("en", "de"):
            expected = archives.sentences(lang, 20, sum(map(ord, part)))
            assert lines(folder / "text" / f"{split}.{lang}") == expected, "raw, as written"
    for lang in ("en", "de"):
        expected = [
            line
            for part in ("europarl-v7", "commoncrawl", "news-commentary-v9")
            for line in archives.sentences(lang, COUNT, sum(map(ord, part)))
        ]
        assert lines(folder / "text" / f"train.{lang}") == expected
        for split, count in (("train", 3 * COUNT), ("valid", 20), ("test", 20)):
            assert (
                len(read_index(str(folder / "data-bin" / f"{split}.en-de.{lang}")).sizes) == count
            )
    assert ", isn ’ t it ?" in lines(folder / "tok" / "train.en")[0], "Moses' tokens"
    first, second = (folder / "data-bin" / f"dict.{lang}.txt" for lang in ("en", "de"))
    assert first.read_bytes() == second.read_bytes(), "joint (3.4)"


def test_a_second_preparation_fetches_and_makes_nothing(
    english_german, manifest, server, monkeypatch, capsys
):
    monkeypatch.chdir(english_german)
    server.requested.clear()
    assert cli.main(["prepare", "wmt14_en_de", "--manifest", manifest]) == 0
    assert ": made (" not in capsys.readouterr().err and not server.requested


def test_the_recipe_of_fairseqs_script(tmp_path, manifest, light, monkeypatch):
    """Dev out of train, hyphens split, train normalised and test not, cleaned after the BPE."""
    name = "wmt14_en_de_fairseq"
    every = 100
    monkeypatch.chdir(tmp_path)
    assert cli.main(["prepare", name, "--manifest", manifest, "--workers", "1"]) == 0
    out = tmp_path / "data" / name
    source = [
        line.replace("’", "'")
        for part in find_recipe(name)[0].parts("train")
        for line in archives.sentences("en", COUNT, sum(map(ord, part)))
    ]
    assert lines(out / "text" / "valid.en") == source[every - 1 :: every]
    assert len(lines(out / "text" / "train.en")) == len(source) - len(source) // every
    assert "’" not in (out / "text" / "train.en").read_text(encoding="utf-8"), "normalised"
    assert "’" in (out / "text" / "test.en").read_text(encoding="utf-8"), "as written"
    assert "isn &apos;t" in lines(out / "tok" / "test.en")[0], "its apostrophes are straight"
    assert "well @-@ known" in lines(out / "tok" / "test.en")[0]
    for left in zip(*(lines(out / "bpe" / f"train.{x}") for x in ("en", "de")), strict=True):
        short, long = sorted(len(side.split()) for side in left)
        assert short >= 1 and long <= 1.5 * short
    assert len(lines(out / "bpe" / "test.en")) == 20, "of a test set nothing is left out"
