"""Texts out of archives, and the archives that are refused."""

import gzip
import io
import os
import tarfile
import zipfile

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
    with pytest.raises(UserError, match="sacreBLEU has no part 'corpus'"):
        extract.from_sacrebleu(PART, LANGS, tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:evil"])
@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name, kind):
    archives.pack(tmp_path / f"a.{kind}", {**FILES, name: b"x"})
    with pytest.raises(UserError, match="leads out of the archive's folder"):
        extracted(tmp_path / f"a.{kind}")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        member = tarfile.TarInfo("training/c.de-en.en")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(UserError, match="is a link or a device"):
        extracted(tmp_path / "a.tgz")


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        item = zipfile.ZipInfo("training/c.de-en.en")
        item.external_attr = 0o120777 << 16
        packed.writestr(item, "/etc/passwd")
    with pytest.raises(UserError, match="is a link or a device"):
        extracted(tmp_path / "a.zip")


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


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("tgz", True), ("tgz", False), ("zip", True), ("zip", False), ("xz", True), ("bz2", True)],
)
def test_an_archive_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, kind, wanted):
    """A few kilobytes that would be megabytes; in zips only what is wanted is unpacked at all."""
    monkeypatch.setattr(extract, "ALWAYS_FINE", 3 << 20)
    path, size = tmp_path / f"a.{kind}", 9 << 20
    name = "training/c.de-en.en" if wanted else "training/other"
    if kind in ("tgz", "zip"):
        archives.pack(path, {name: bytes(size)})
    else:
        packed_tar(path, {name: bytes(size)})
    assert extract.MOST_TIMES * path.stat().st_size < size
    message = "would expand to 9,437,184 bytes" if wanted or kind != "zip" else "has no file"
    with pytest.raises(UserError, match=message):
        extracted(path)
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) == 0


def packed_tar(path, files):
    """A tar packed by xz or bzip2."""
    with tarfile.open(path, f"w:{path.suffix[1:]}") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def test_a_bomb_packed_inside_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(extract, "ALWAYS_FINE", 3 << 20)
    part = Part("g", PART.sources, {"en-de": ["g.en.gz", "g.de.gz"]})
    files = {"g.en.gz": gzip.compress(bytes(9 << 20)), "g.de.gz": gzip.compress(b"eins\n")}
    archives.pack(tmp_path / "a.tgz", files)
    with pytest.raises(UserError, match=r"'g\.en\.gz' in it would expand to"):
        extracted(tmp_path / "a.tgz", part)
    assert (tmp_path / "out" / "g.en").stat().st_size <= 3 << 20


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    with pytest.raises(UserError, match=r"a header of 1,099,511,627,776 bytes"):
        extracted(tmp_path / "a.tar")


def test_text_that_is_packed_ten_to_one_is_read(tmp_path):
    """As UN documents are, full of the same words; far from what is refused."""
    text = b"".join(b"The Committee took note of document %d.\n" % n for n in range(200_000))
    archives.pack(tmp_path / "a.tgz", dict.fromkeys(FILES, text))
    assert len(text) * 2 > 10 * (tmp_path / "a.tgz").stat().st_size
    assert extracted(tmp_path / "a.tgz") == [text, text]


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


def test_an_encrypted_zip_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    archives.pack(path, FILES)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="is encrypted"):
        extracted(path)
