"""Archives by HTTP: resumed, checked, from a mirror where the primary fails."""

import hashlib
import random

import pytest

from tests import archives
from vaswani.common.errors import UserError
from vaswani.data import archives as download
from vaswani.data.archives import Part, Source

DATA = random.Random(5).randbytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for folder in ("primary", "mirror"):
        (tmp_path / "www" / folder).mkdir(parents=True)
        (tmp_path / "www" / folder / f"{folder}.tgz").write_bytes(DATA)
    with archives.Server(tmp_path / "www") as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    return tmp_path / "a"


def part(server, sha256=SHA256, **known) -> Part:
    """Return an archive with a primary and a mirror."""
    places = [f"{server.base}/{folder}/{folder}.tgz" for folder in ("primary", "mirror")]
    return Part("corpus", tuple(Source(url, sha256=sha256, **known) for url in places), {})


def test_a_download_is_whole_and_done_once(server, folder):
    for requests in (1, 1):
        path = download.fetch(part(server, bytes=len(DATA)), folder)
        assert path.name == "primary.tgz" and path.read_bytes() == DATA
        assert [*folder.iterdir()] == [path] and len(server.requested) == requests


def test_a_cut_connection_is_resumed_where_it_broke(server, folder):
    server.faults["primary.tgz"] = ["cut 100000", "cut 50000"]
    assert download.fetch(part(server), folder).read_bytes() == DATA
    ranges = [wanted for _, wanted in server.requested]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


@pytest.mark.parametrize("sent", [1234, len(DATA)])
def test_a_part_left_by_a_killed_run_is_continued(server, folder, sent):
    (folder / ".primary.tgz.part").write_bytes(DATA[:sent])
    assert download.fetch(part(server), folder).read_bytes() == DATA
    assert server.requested[0] == ("primary.tgz", f"bytes={sent}-")


def test_a_whole_part_left_by_a_killed_run_is_not_downloaded_again(server, folder):
    (folder / ".primary.tgz.part").write_bytes(DATA)
    assert download.fetch(part(server, bytes=len(DATA)), folder).read_bytes() == DATA
    assert not server.requested


@pytest.mark.parametrize(
    ("faults", "name"),
    [(["404"], "mirror"), (["500"] * download.TRIES, "mirror"), (["503", "503"], "primary")],
)
def test_the_mirror_stands_in_for_a_server_that_does_not_recover(server, folder, faults, name):
    server.faults["primary.tgz"] = faults
    path = download.fetch(part(server), folder)
    assert path.name == f"{name}.tgz" and path.read_bytes() == DATA


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"bytes": 7}], ids=["checksum", "size"])
def test_a_file_of_another_checksum_or_size_is_never_used(server, folder, known):
    with pytest.raises(UserError, match="corpus"):
        download.fetch(part(server, **known), folder)
    assert not list(folder.iterdir())


def test_a_file_that_is_there_is_checked(server, folder):
    (folder / "mirror.tgz").write_bytes(DATA)
    assert download.fetch(part(server), folder).name == "mirror.tgz"
    (folder / "mirror.tgz").write_bytes(DATA[:-5])
    with pytest.raises(UserError, match=r"mirror\.tgz"):
        download.fetch(part(server), folder)
    assert not server.requested
