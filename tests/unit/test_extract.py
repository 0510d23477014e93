"""Texts out of archives, and the archives that are refused."""

import gzip
import io
import tarfile
import zipfile

import pytest

from tests import archives
from vaswani.corpus import extract
from vaswani.corpus.manifest import Part, Source
from vaswani.errors import UserError

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
