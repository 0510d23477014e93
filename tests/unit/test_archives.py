"""The manifest of archives, the recipes that name its parts, and texts out of archives."""

import gzip
import os
import re
import stat
import tarfile
import zipfile
from dataclasses import fields

import pytest
import yaml

from tests import archives
from vaswani.common.errors import UserError
from vaswani.common.find import CONFIGS
from vaswani.common.yaml_tables import read_yaml
from vaswani.data.archives import Part, Source, extract, read_parts, segments
from vaswani.data.read_recipe import find_recipe
from vaswani.folders.recipe import Recipe

MANIFEST = CONFIGS / "data" / "archives" / "wmt14.yaml"
RECIPES = [f"wmt14_en_{lang}{kind}" for lang in ("de", "fr") for kind in ("", "_t2t", "_fairseq")]


def test_recipes_state_every_value_and_name_parts_there_are():
    left_to_the_user = {"limit", "like", "valid", "valid_every"}
    # as data that earlier versions prepared
    left_to_the_user |= {"unicode", "lowercase", "text_rules"}
    # none of them in WMT 2014
    left_to_the_user |= {"trees", "keep_tags", "subword", "split_digits", "bpe_dropout", "copies"}
    left_out = left_to_the_user | {"restored_lines", "restored_bleu"}  # made by prepare
    for name in RECIPES:
        recipe, folder = find_recipe(name)
        table = read_yaml(CONFIGS / "data" / f"{name}.yaml")
        assert str(folder) == f"data/{name}"
        assert {item.name for item in fields(Recipe)} - left_out <= set(table)
        for split in ("train", "valid", "test"):
            for part in read_parts(MANIFEST, recipe.parts(split)):
                assert all(part.files(recipe.langs))


def test_the_papers_data_is_wmt14s():
    """5.1 and 6: news commentary v9, newstest2013 and 2014, 37,000 types, 32,000 for French."""
    german, french = (find_recipe(f"wmt14_en_{lang}")[0] for lang in ("de", "fr"))
    assert german.train == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    assert set(french.parts("train")) == {*german.parts("train"), "un", "giga-fren"}
    for recipe in (german, french):
        assert (recipe.valid, recipe.test) == ("newstest2013", "newstest2014")
        assert recipe.normalise == "none" and not recipe.straight_test_apostrophes
    assert (german.bpe, german.bpe_counts, french.bpe) == (37000, "types", 32000)


def test_archives_that_share_a_folder_have_different_names():
    parts = read_parts(MANIFEST, list(read_yaml(MANIFEST)["parts"]))
    names = [source.name for part in parts for source in part.sources]
    assert len(names) == len(set(names))


GOOD = {
    "sources": [{"url": "http://host/a.tgz", "bytes": 3, "sha256": "0" * 64}],
    "members": {"en-de": ["c.en", "c.de"]},
}
URL = GOOD["sources"][0]
#: the name of a part → what is wrong with it → what the refusal names
DAMAGED_PARTS = {
    "no table": (7, "7"),
    "no sources": ({"members": {}}, "sources"),
    "no members": ({"sources": [URL]}, "members"),
    "an unknown key": ({**GOOD, "member": {}}, "'member'"),
    "sources empty": ({**GOOD, "sources": []}, "sources is empty"),
    "sources a url": ({**GOOD, "sources": "http://host/a.tgz"}, "sources must be a list"),
    "a source of text": ({**GOOD, "sources": ["http://host/a.tgz"]}, "sources must be a list"),
    "a source without url": ({**GOOD, "sources": [{"bytes": 3}]}, "'url'"),
    "a source with another key": ({**GOOD, "sources": [{**URL, "md5": "0"}]}, "'md5'"),
    "a file": ({**GOOD, "sources": [{"url": "file:///etc/passwd"}]}, "https://"),
    "a url without a file": ({**GOOD, "sources": [{"url": "http://host/a/"}]}, "folders"),
    "a url of dots": ({**GOOD, "sources": [{"url": "http://host/%2e%2e"}]}, "folders"),
    "a size in quotes": ({**GOOD, "sources": [{**URL, "bytes": "3"}]}, "bytes must be"),
    "a hash as number": ({**GOOD, "sources": [{**URL, "sha256": 0}]}, "sha256 must be"),
    "half a hash": ({**GOOD, "sources": [{**URL, "sha256": "0" * 32}]}, "not 64"),
    "members a list": ({**GOOD, "members": ["c.en", "c.de"]}, "members must be"),
    "one member": ({**GOOD, "members": {"en-de": ["c.en"]}}, "two files"),
    "a member twice": ({**GOOD, "members": {"en-de": ["c.en", "c.en"]}}, "two files"),
    "a member as number": ({**GOOD, "members": {"en-de": ["c.en", 1]}}, "members must be"),
    "a member in a folder": ({**GOOD, "members": {"en-de": ["../c.en", "c.de"]}}, "folders"),
    "../../x": (GOOD, "folders"),
    "/x": (GOOD, "folders"),
    "..": (GOOD, "folders"),
    "": (GOOD, "folders"),
}


@pytest.mark.parametrize("name", DAMAGED_PARTS)
def test_a_damaged_part_of_a_manifest_is_refused(tmp_path, name):
    """Part ``../../x`` was written outside its folder; others ended in tracebacks."""
    entry, named = DAMAGED_PARTS[name]
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump({"parts": {"good": GOOD, name: entry}}), encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(named)) as refusal:
        read_parts(path, [name])
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("table", [{}, {"parts": None}, {"parts": ["good"]}, {"part": {}}])
def test_a_manifest_without_parts_is_refused(tmp_path, table):
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump({"other": 1, **table}), encoding="utf-8")
    with pytest.raises(UserError, match="manifest.yaml"):
        read_parts(path, ["good"])


def test_two_archives_of_one_name_are_refused(tmp_path):
    """The second part would be read from the first one's archive, in silence."""
    other = {**GOOD, "sources": [{"url": "http://elsewhere/a.tgz"}]}
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump({"parts": {"good": GOOD, "other": other}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"'good' and 'other' both have an archive a\.tgz"):
        read_parts(path, ["good"])
    path.write_text(yaml.safe_dump({"parts": {"good": GOOD, "same": GOOD}}), encoding="utf-8")
    assert len(read_parts(path, ["good", "same"])) == 2


# ---- texts ------------------------------------------------------------------------------------


FILES = {"training/c.de-en.de": b"eins\nzwei\n", "training/c.de-en.en.gz": gzip.compress(b"one\n")}
PART = Part("corpus", (Source("http://host/a.tgz"),), {"en-de": ["c.de-en.en.gz", "c.de-en.de"]})


def extracted(archive, files):
    """Return both sides of a part, as bytes."""
    archives.pack(archive, files)
    extract(PART, archive, ("en", "de"), archive.parent)
    return [(archive.parent / f"corpus.{lang}").read_bytes() for lang in ("en", "de")]


@pytest.mark.parametrize("name", ["a.tgz", "a.tar", "a.zip"])
def test_each_kind_of_archive_is_read(tmp_path, name):
    assert extracted(tmp_path / name, {"a/readme": b"", **FILES}) == [b"one\n", b"eins\nzwei\n"]


def test_test_sets_are_what_sacrebleu_makes_of_them(tmp_path):
    """Against sacreBLEU's own converter, on entities, spaces and a segment of another case."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    body = (
        '<refset trglang="de">\n<doc docid="d">\n<hl>\n<seg id="1"> A &amp; B\u00a0&quot;C&quot; '
        '</seg>\n</hl>\n<p>\n<seg id="2">„Zitat“ – 3,5 %</seg>\n</p>\n</doc>\n</refset>\n'
    )
    (tmp_path / "t.sgm").write_text(body, encoding="utf-8")
    other = FakeSGMLDataset("t", langpairs={"en-de": ["t.sgm", "t.sgm"]})
    other._convert_format(str(tmp_path / "t.sgm"), str(tmp_path / "t.txt"))
    expected = (tmp_path / "t.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert list(segments(body)) == expected == ["A &amp; B &quot;C&quot;", "„Zitat“ – 3,5 %"]


@pytest.mark.parametrize("kind", ["tgz", "zip"])
@pytest.mark.parametrize("damage", ["cut", "one bit"])
def test_a_damaged_archive_is_named(tmp_path, kind, damage):
    path = tmp_path / f"a.{kind}"
    archives.pack(path, {**FILES, "training/c.de-en.de": os.urandom(20_000)})
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-300:]
    else:
        data[len(data) // 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"a\.{kind}"):
        extract(PART, path, ("en", "de"), tmp_path)


def test_a_wanted_name_that_is_missing_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"c\.de-en\.de"):
        extracted(tmp_path / "a.tgz", {"other": b"x", "c.de-en.en.gz": gzip.compress(b"one\n")})


def test_links_and_folders_of_a_wanted_name_are_not_read(tmp_path):
    """A link in a zip was read as text, its path; a folder as nothing; in a tar, tracebacks."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        link = zipfile.ZipInfo("c.de-en.de")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
        packed.writestr("c.de-en.en.gz/", "")
    with pytest.raises(UserError, match=r"no file c\.de-en\.en\.gz, c\.de-en\.de.*manifest"):
        extract(PART, path, ("en", "de"), tmp_path)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in [("c.de-en.de", tarfile.SYMTYPE), ("c.de-en.en.gz", tarfile.DIRTYPE)]:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = "/etc/passwd"
            tar.addfile(member)
    with pytest.raises(UserError, match=r"no file c\.de-en\.en\.gz, c\.de-en\.de.*manifest"):
        extract(PART, path, ("en", "de"), tmp_path)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tar", "a.zip"]


def test_an_encrypted_archive_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    archives.pack(path, FILES)
    data = bytearray(path.read_bytes())
    for place in [match.start() for match in re.finditer(b"PK\x01\x02", data)]:
        data[place + 8] |= 1  # the bit "encrypted" of a member, in the list at the end
    for place in [match.start() for match in re.finditer(b"PK\x03\x04", data)]:
        data[place + 6] |= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="encrypted"):
        extract(PART, path, ("en", "de"), tmp_path)


def test_a_test_set_in_another_encoding_is_refused(tmp_path):
    part = Part("corpus", PART.sources, {"en-de": ["t.en.sgm", "t.de.sgm"]})
    path = tmp_path / "a.zip"
    archives.pack(
        path, {"t.en.sgm": b"<seg>a</seg>", "t.de.sgm": "<seg>\u00e4</seg>".encode("latin-1")}
    )
    with pytest.raises(UserError, match=r"a\.zip"):
        extract(part, path, ("en", "de"), tmp_path)
