"""Archives by HTTP: resumed, checked, from a mirror where the primary fails."""

import hashlib
import json
import random

import pytest

from tests import archives
from vaswani.corpus import download
from vaswani.corpus.manifest import Part, Source
from vaswani.errors import UserError

DATA = random.Random(5).randbytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for folder in ("primary", "mirror"):
        (tmp_path / "www" / folder).mkdir(parents=True)
        (tmp_path / "www" / folder / f"{folder}.tgz").write_bytes(DATA)
    server = archives.Server(tmp_path / "www")
    yield server
    server.shutdown()
    server.server_close()


def part(server, **known) -> Part:
    """An archive with a primary and a mirror."""
    places = [f"{server.base}/{folder}/{folder}.tgz" for folder in ("primary", "mirror")]
    return Part("corpus", tuple(Source(url, **known) for url in places), {})


def test_a_download_is_whole_and_nothing_else_is_left(server, tmp_path):
    path = download.fetch(part(server, bytes=len(DATA), sha256=SHA256), tmp_path / "a")
    assert path.name == "primary.tgz" and path.read_bytes() == DATA
    assert {p.name for p in path.parent.iterdir()} == {"primary.tgz", download.RECORD}
    server.asked.clear()
    download.fetch(part(server, bytes=len(DATA), sha256=SHA256), tmp_path / "a")
    assert not server.asked, "what is there is not fetched again"


def test_a_cut_connection_is_resumed_where_it_broke(server, tmp_path):
    server.faults["primary.tgz"] = ["cut 100000", "cut 50000"]
    path = download.fetch(part(server, sha256=SHA256), tmp_path / "a")
    assert path.read_bytes() == DATA
    assert server.asked == [
        ("primary.tgz", None),
        ("primary.tgz", "bytes=100000-"),
        ("primary.tgz", "bytes=150000-"),
    ]


def test_a_part_left_by_a_killed_run_is_gone_on_with(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(DATA[:1234])
    assert download.fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA
    assert server.asked == [("primary.tgz", "bytes=1234-")]


def test_a_wrong_part_of_an_earlier_day_is_fetched_anew(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(b"x" * 1234)
    assert download.fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA
    assert [wanted for _, wanted in server.asked] == ["bytes=1234-", None]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges = False
    server.faults["primary.tgz"] = ["cut 100000"]
    assert download.fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA


def test_a_whole_part_needs_no_byte_more(server, tmp_path):
    """The server answers 416: there is nothing after the last byte."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(DATA)
    known = part(server, bytes=len(DATA), sha256=SHA256)
    assert download.fetch(known, tmp_path / "a").read_bytes() == DATA


@pytest.mark.parametrize("fault", ["404", "500"])
def test_the_mirror_stands_in(server, tmp_path, capsys, fault):
    server.faults["primary.tgz"] = [fault] * download.TRIES
    path = download.fetch(part(server, sha256=SHA256), tmp_path / "a")
    assert path.name == "mirror.tgz" and path.read_bytes() == DATA
    assert f"the server answered {fault}" in capsys.readouterr().err


def test_a_server_that_recovers_is_asked_again(server, tmp_path):
    server.faults["primary.tgz"] = ["503", "503"]
    assert download.fetch(part(server, sha256=SHA256), tmp_path / "a").name == "primary.tgz"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"sha256": "0" * 64}, f"SHA-256 is {SHA256} instead of 0000"),
        ({"bytes": 7}, "instead of 7"),
    ],
)
def test_what_is_not_the_right_file_is_never_used(server, tmp_path, known, said):
    with pytest.raises(UserError, match="could not be downloaded") as error:
        download.fetch(part(server, **known), tmp_path / "a")
    assert said in str(error.value) and "by hand" in str(error.value)
    assert not list((tmp_path / "a").glob("*.tgz"))


def test_the_first_checksum_of_an_unknown_archive_is_held(server, tmp_path):
    folder = tmp_path / "a"
    path = download.fetch(part(server), folder)
    assert json.loads((folder / download.RECORD).read_text())["primary.tgz"]["sha256"] == SHA256
    path.write_bytes(DATA[:-1] + b"?")
    with pytest.raises(UserError, match="SHA-256 .* instead of"):
        download.fetch(part(server), folder)
    path.unlink()
    (tmp_path / "www" / "primary" / "primary.tgz").write_bytes(b"another")
    assert download.fetch(part(server), folder).name == "mirror.tgz", "the primary has changed"


def test_a_file_that_is_there_is_checked(server, tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mirror.tgz").write_bytes(DATA)
    assert download.fetch(part(server, sha256=SHA256), folder).name == "mirror.tgz"
    (folder / "mirror.tgz").write_bytes(DATA[:-5])
    with pytest.raises(UserError, match=r"mirror\.tgz has 299,995 bytes instead of 300,000"):
        download.fetch(part(server, sha256=SHA256, bytes=len(DATA)), folder)
    assert not server.asked


def test_no_network_is_said_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    nobody = Part("corpus", (Source("http://127.0.0.1:9/a.tgz"),), {}, sacrebleu="wmt13")
    with pytest.raises(
        UserError, match=r"corpus could not be downloaded .*Connection refused"
    ) as e:
        download.fetch(nobody, tmp_path / "a")
    assert "--test-sets sacrebleu" in str(e.value)
