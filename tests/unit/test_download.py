"""Archives by HTTP: resumed, checked, from a mirror where the primary fails."""

import hashlib
import io
import random
import tarfile

import pytest

from tests import archives
from vaswani.common.errors import UserError
from vaswani.data import download
from vaswani.data.manifest import Part, Source

LANGS = ("en", "de")
MEMBERS = {"en-de": ["c.en", "c.de"], "en-fr": ["c.en", "c.fr"]}


def archive(*names: str) -> bytes:
    """A .tgz of about 300,000 bytes with files of these names."""
    dice = random.Random(5)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(f"folder/{name}")
            member.size = 150_000
            tar.addfile(member, io.BytesIO(dice.randbytes(member.size)))
    return packed.getvalue()


DATA = archive("c.en", "c.de")
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for folder in ("primary", "mirror"):
        (tmp_path / "www" / folder).mkdir(parents=True)
        (tmp_path / "www" / folder / f"{folder}.tgz").write_bytes(DATA)
    with archives.Server(tmp_path / "www") as server:
        yield server


def fetch(part, folder):
    return download.fetch(part, folder, LANGS)


def part(server, **known) -> Part:
    """An archive with a primary and a mirror."""
    places = [f"{server.base}/{folder}/{folder}.tgz" for folder in ("primary", "mirror")]
    return Part("corpus", tuple(Source(url, **known) for url in places), MEMBERS)


def test_a_download_is_whole_and_nothing_else_is_left(server, tmp_path):
    path = fetch(part(server, bytes=len(DATA), sha256=SHA256), tmp_path / "a")
    assert path.name == "primary.tgz" and path.read_bytes() == DATA
    assert {p.name for p in path.parent.iterdir()} == {"primary.tgz"}
    server.requested.clear()
    fetch(part(server, bytes=len(DATA), sha256=SHA256), tmp_path / "a")
    assert not server.requested, "what is there is not fetched again"


def test_a_cut_connection_is_resumed_where_it_broke(server, tmp_path):
    server.faults["primary.tgz"] = ["cut 100000", "cut 50000"]
    path = fetch(part(server, sha256=SHA256), tmp_path / "a")
    assert path.read_bytes() == DATA
    assert server.requested == [
        ("primary.tgz", None),
        ("primary.tgz", "bytes=100000-"),
        ("primary.tgz", "bytes=150000-"),
    ]


def test_a_part_left_by_a_killed_run_is_gone_on_with(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(DATA[:1234])
    assert fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA
    assert server.requested == [("primary.tgz", "bytes=1234-")]


def test_a_wrong_part_of_an_earlier_day_is_fetched_again(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(b"x" * 1234)
    assert fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA
    assert [wanted for _, wanted in server.requested] == ["bytes=1234-", None]


@pytest.mark.parametrize(
    "known", [{"bytes": len(DATA), "sha256": SHA256}, {}], ids=["published", "unpublished"]
)
def test_a_whole_part_needs_no_byte_more(server, tmp_path, known):
    """As after a kill while it was checked; the server answers 416: nothing after the last byte."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(DATA)
    assert fetch(part(server, **known), tmp_path / "a").read_bytes() == DATA
    assert server.requested == [("primary.tgz", f"bytes={len(DATA)}-")]


@pytest.mark.parametrize(
    ("faults", "name"),
    [(["404"], "mirror"), (["500"] * download.TRIES, "mirror"), (["503", "503"], "primary")],
)
def test_the_mirror_stands_in_for_a_server_that_does_not_recover(server, tmp_path, faults, name):
    server.faults["primary.tgz"] = list(faults)
    path = fetch(part(server, sha256=SHA256), tmp_path / "a")
    assert path.name == f"{name}.tgz" and path.read_bytes() == DATA


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"bytes": 7}], ids=["checksum", "size"])
def test_a_file_of_another_checksum_or_size_is_never_used(server, tmp_path, known):
    with pytest.raises(UserError, match="corpus"):
        fetch(part(server, **known), tmp_path / "a")
    assert not list((tmp_path / "a").glob("*.tgz"))


def test_a_file_that_is_there_is_checked(server, tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mirror.tgz").write_bytes(DATA)
    assert fetch(part(server, sha256=SHA256), folder).name == "mirror.tgz"
    (folder / "mirror.tgz").write_bytes(DATA[:-5])
    with pytest.raises(UserError, match=r"mirror\.tgz"):
        fetch(part(server, sha256=SHA256, bytes=len(DATA)), folder)
    assert not server.requested


@pytest.mark.parametrize("fault", ["page", "end 0", "end 299000"])
def test_an_archive_that_does_not_open_is_not_kept(server, tmp_path, fault):
    """A first download of what nobody published a checksum of; the same command mends it."""
    server.faults = {"primary.tgz": [fault], "mirror.tgz": [fault]}
    with pytest.raises(UserError, match="corpus"):
        fetch(part(server), tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == [], "nothing is left of it"
    assert fetch(part(server), tmp_path / "a").read_bytes() == DATA
