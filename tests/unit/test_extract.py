"""Texts out of archives, and damaged ones."""

import gzip
import io
import os
import tarfile

import pytest

from tests import archives
from vaswani.common.errors import UserError
from vaswani.data import extract
from vaswani.data.manifest import Part, Source

PART = Part("corpus", (Source("http://host/a.tgz"),), {"en-de": ["c.de-en.en", "c.de-en.de"]})
FILES = {"training/c.de-en.de": b"eins\nzwei\n", "training/c.de-en.en": b"one\ntwo\n"}
LANGS = ("en", "de")


def extracted(archive, part=PART):
    """Both sides of a part, as bytes."""
    out = archive.parent / "out"
    out.mkdir()
    extract.extract(part, archive, LANGS, out)
    return [(out / f"{part.name}.{lang}").read_bytes() for lang in LANGS]


@pytest.mark.parametrize("name", ["a.tgz", "a.tar", "a.zip"])
def test_each_kind_of_archive(tmp_path, name):
    archives.pack(tmp_path / name, {**FILES, "training/c.cs-en.en": b"other\n"})
    assert extracted(tmp_path / name) == [b"one\ntwo\n", b"eins\nzwei\n"]


def test_packed_files_inside(tmp_path):
    part = Part("g", PART.sources, {"en-de": ["g.en.gz", "g.de.gz"]})
    files = {"g.en.gz": gzip.compress(b"one\n"), "g.de.gz": gzip.compress(b"eins\n")}
    archives.pack(tmp_path / "a.tar", files)
    assert extracted(tmp_path / "a.tar", part) == [b"one\n", b"eins\n"]


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
    assert (
        list(extract.segments(body)) == expected == ["A &amp; B &quot;C&quot;", "„Zitat“ – 3,5 %"]
    )


def test_a_test_set_from_sacrebleu(tmp_path, monkeypatch):
    """Its texts lie in its folder already, so that nothing is downloaded."""
    from sacrebleu.dataset import DATASETS

    part = Part("newstest2014", PART.sources, {}, sacrebleu="wmt14/full")
    monkeypatch.setattr(DATASETS["wmt14/full"], "_outdir", str(tmp_path))
    for field in DATASETS["wmt14/full"].fieldnames("en-de"):
        kept = tmp_path / f"wmt14_full.en-de.{field}"
        kept.write_text(f"{field}\n", encoding="utf-8")
    extract.from_sacrebleu(part, LANGS, tmp_path)
    assert (tmp_path / "newstest2014.en").read_text() == "src\n"
    assert (tmp_path / "newstest2014.de").read_text() == "ref\n"


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_damaged_and_foreign_archives_are_named(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    archives.pack(path, {"other": b"x" * 5000})
    with pytest.raises(UserError, match=r"has no file c\.de-en\.en inside"):
        extracted(path)
    (tmp_path / "out").rmdir()
    archives.pack(path, {n: io.BytesIO(d * 9999).read() for n, d in FILES.items()})
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UserError, match="damaged or cut short"):
        extracted(path)


def packed_tar(path, files):
    """A tar packed by xz or bzip2."""
    with tarfile.open(path, f"w:{path.suffix[1:]}") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("kind", ["tgz", "tar", "zip"])
def test_a_wanted_name_twice_is_refused(tmp_path, kind):
    """In another folder, so that neither is more right than the other; others may come twice."""
    files = {"a/readme": b"", "b/readme": b"", **FILES}
    archives.pack(tmp_path / f"a.{kind}", files)
    assert extracted(tmp_path / f"a.{kind}") == [b"one\ntwo\n", b"eins\nzwei\n"]
    (tmp_path / "b").mkdir()
    archives.pack(tmp_path / "b" / f"b.{kind}", {**files, "old/c.de-en.en": b"three\n"})
    with pytest.raises(UserError, match=r"'c\.de-en\.en' in it is there twice"):
        extracted(tmp_path / "b" / f"b.{kind}")


@pytest.mark.parametrize("kind", ["tgz", "zip", "xz", "bz2"])
def test_damage_within_is_seen_by_the_checksum(tmp_path, kind):
    """One bit of what was packed."""
    path = tmp_path / f"a.{kind}"
    files = {name: os.urandom(20_000) for name in FILES}
    (archives.pack if kind in ("tgz", "zip") else packed_tar)(path, files)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged or cut short"):
        extracted(path)
