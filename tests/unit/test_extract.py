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
def test_each_kind_of_archive_is_read(tmp_path, name):
    """Other names may be there twice."""
    archives.pack(tmp_path / name, {**FILES, "a/readme": b"", "b/readme": b""})
    assert extracted(tmp_path / name) == [b"one\ntwo\n", b"eins\nzwei\n"]


def test_packed_files_inside_are_unpacked(tmp_path):
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


def packed(path, files):
    """A path with an archive of the kind that its ending says."""
    if path.suffix not in (".xz", ".bz2"):
        archives.pack(path, files)
        return path
    with tarfile.open(path, f"w:{path.suffix[1:]}") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["tgz", "zip", "xz", "bz2"])
@pytest.mark.parametrize("damage", ["cut", "one bit"])
def test_a_damaged_archive_is_named(tmp_path, kind, damage):
    path = packed(tmp_path / f"a.{kind}", {name: os.urandom(20_000) for name in FILES})
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-300:]
    else:
        data[len(data) // 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"a\.{kind}"):
        extracted(path)


@pytest.mark.parametrize("kind", ["tgz", "zip"])
@pytest.mark.parametrize("files", [{"other": b"x"}, {**FILES, "old/c.de-en.en": b"three\n"}])
def test_a_wanted_name_that_is_missing_or_there_twice_is_refused(tmp_path, kind, files):
    """In another folder, so that neither is more right than the other."""
    with pytest.raises(UserError, match=r"c\.de-en\.en"):
        extracted(packed(tmp_path / f"a.{kind}", files))
