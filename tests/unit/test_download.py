"""Archives by HTTP: resumed, checked, from a mirror where the primary fails."""

import hashlib
import io
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import archives
from vaswani.common.errors import UserError
from vaswani.data import download
from vaswani.data.manifest import Part, Source

ROOT = Path(__file__).resolve().parents[2]
LANGS = ("en", "de")
MEMBERS = {"en-de": ["c.en", "c.de"], "en-fr": ["c.en", "c.fr"]}


def archive(*names: str) -> bytes:
    """A .tgz of about 300,000 bytes with files of these names."""
    packed = io.BytesIO()
    dice = random.Random(5)
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


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges = False
    server.faults["primary.tgz"] = ["cut 100000"]
    assert fetch(part(server, sha256=SHA256), tmp_path / "a").read_bytes() == DATA


@pytest.mark.parametrize(
    "known", [{"bytes": len(DATA), "sha256": SHA256}, {}], ids=["published", "unpublished"]
)
def test_a_whole_part_needs_no_byte_more(server, tmp_path, known):
    """As after a kill while it was checked; the server answers 416: nothing after the last byte."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".primary.tgz.part").write_bytes(DATA)
    assert fetch(part(server, **known), tmp_path / "a").read_bytes() == DATA
    assert server.requested == [("primary.tgz", f"bytes={len(DATA)}-")]


@pytest.mark.parametrize("fault", ["404", "500"])
def test_the_mirror_stands_in(server, tmp_path, capsys, fault):
    server.faults["primary.tgz"] = [fault] * download.TRIES
    path = fetch(part(server, sha256=SHA256), tmp_path / "a")
    assert path.name == "mirror.tgz" and path.read_bytes() == DATA
    assert f"the server answered {fault}" in capsys.readouterr().err


def test_a_server_that_recovers_is_asked_again(server, tmp_path):
    server.faults["primary.tgz"] = ["503", "503"]
    assert fetch(part(server, sha256=SHA256), tmp_path / "a").name == "primary.tgz"


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"sha256": "0" * 64}, f"SHA-256 is {SHA256} instead of 0000"),
        ({"bytes": 7}, "instead of 7"),
    ],
    ids=["checksum", "size"],
)
def test_what_is_not_the_right_file_is_never_used(server, tmp_path, known, message):
    with pytest.raises(UserError, match="could not be downloaded") as error:
        fetch(part(server, **known), tmp_path / "a")
    assert message in str(error.value) and "by hand" in str(error.value)
    assert not list((tmp_path / "a").glob("*.tgz"))


def test_a_file_that_is_there_is_checked(server, tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mirror.tgz").write_bytes(DATA)
    assert fetch(part(server, sha256=SHA256), folder).name == "mirror.tgz"
    (folder / "mirror.tgz").write_bytes(DATA[:-5])
    with pytest.raises(
        UserError, match=rf"mirror\.tgz has {len(DATA) - 5:,} bytes instead of {len(DATA):,}"
    ):
        fetch(part(server, sha256=SHA256, bytes=len(DATA)), folder)
    assert not server.requested


def test_no_network_is_said_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    nobody = Part("corpus", (Source("http://127.0.0.1:9/a.tgz"),), {}, sacrebleu="wmt13")
    with pytest.raises(
        UserError, match=r"corpus could not be downloaded .*Connection refused"
    ) as e:
        fetch(nobody, tmp_path / "a")
    assert "--test-sets sacrebleu" in str(e.value)


BAD = [["page"], ["end 0"], ["end 1000"], ["end 299000"]]
SAID = ["a web page", "damaged or cut short", "damaged or cut short", "damaged or cut short"]


@pytest.mark.parametrize(("fault", "message"), list(zip(BAD, SAID, strict=True)))
def test_what_is_no_whole_archive_is_not_kept(server, tmp_path, capsys, fault, message):
    """A first download of what nobody published a checksum of; then the advice, which mends it."""
    server.faults = {"primary.tgz": list(fault), "mirror.tgz": list(fault)}
    with pytest.raises(UserError, match="run the same command again") as error:
        fetch(part(server), tmp_path / "a")
    assert message in str(error.value)
    assert list((tmp_path / "a").iterdir()) == [], "nothing is left of it"
    assert fetch(part(server), tmp_path / "a").read_bytes() == DATA


def test_two_downloads_of_one_archive_at_once(server, tmp_path):
    """Into the folder that several preparations share: the second one says who is at it."""
    folder = tmp_path / "a"
    folder.mkdir()
    code = (
        "import sys, time; from pathlib import Path; from vaswani.common.files import locked\n"
        "with locked(Path(sys.argv[1]), 'x', leave=False): print(flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(folder / ".primary.tgz.lock")]
    other = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(UserError, match=rf"being downloaded by .*process {other.pid}"):
            fetch(part(server, sha256=SHA256), folder)
    finally:
        other.kill()
        other.communicate()
    assert fetch(part(server, sha256=SHA256), folder).read_bytes() == DATA
    assert {path.name for path in folder.iterdir()} == {"primary.tgz"}
