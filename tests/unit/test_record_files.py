"""A record's archive: the same files are the same bytes, and each is read by its name."""

import os
import tarfile
from pathlib import Path

import pytest

from experiments import harness, records
from experiments.record_files import (
    ARCHIVE,
    record_file,
    record_files,
    recorded_translations,
    write_record_files,
)
from tests.files import write
from vaswani.common.errors import UserError

FILES = {"b.jsonl": b'{"loss": 1}\n', "a.hyp": "für Anna\r\nnull\n".encode(), "rates/c.log": b""}


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    """In whatever order, whenever and by whomever they were written."""
    write_record_files(tmp_path / "one", FILES)
    write_record_files(tmp_path / "two", dict(reversed(FILES.items())))
    assert (tmp_path / "one" / ARCHIVE).read_bytes() == (tmp_path / "two" / ARCHIVE).read_bytes()
    with tarfile.open(tmp_path / "one" / ARCHIVE) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(FILES)
    for member in members:
        assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
        assert (member.uname, member.gname, member.mode) == ("", "", 0o644)


def test_each_file_is_read_by_its_name(tmp_path: Path) -> None:
    write_record_files(tmp_path, FILES)
    assert {name: record_file(tmp_path, name) for name in FILES} == FILES
    with pytest.raises(UserError, match=f"{ARCHIVE} has no a.txt: 'tar -tf"):
        record_file(tmp_path, "a.txt")
    with pytest.raises(UserError, match="has no a.hyp"):
        record_file(tmp_path / "elsewhere", "a.hyp")
    assert record_files(tmp_path / "elsewhere") == {}


def test_a_changed_archive_is_read_again(tmp_path: Path) -> None:
    """And one that has the files already is not written: its bytes stay with another liblzma."""
    write_record_files(tmp_path, FILES)
    assert record_file(tmp_path, "a.hyp") == FILES["a.hyp"]
    written = (tmp_path / ARCHIVE).stat().st_ino
    write_record_files(tmp_path, FILES)
    assert (tmp_path / ARCHIVE).stat().st_ino == written
    write_record_files(tmp_path, {**FILES, "a.hyp": b"eins\nzwei drei vier\n"})
    os.utime(tmp_path / ARCHIVE, (1, 1))
    assert record_file(tmp_path, "a.hyp") == b"eins\nzwei drei vier\n"
    record_files(tmp_path).clear()
    assert len(record_files(tmp_path)) == 3


def test_the_files_of_a_run_that_is_not_here_are_those_of_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own alone, not those of seed 10; of a run that is here, its folder's."""
    monkeypatch.chdir(tmp_path)
    names = ("a_seed1.jsonl", "a_seed1.test.hyp", "a_seed10.jsonl")
    write_record_files(Path("earlier"), dict.fromkeys(names, b"earlier\n"))
    experiment = harness.find("learning")
    entry = {"run": "runs/learning/a_seed1"}
    assert records.files_of_entry(experiment, entry, None) == {}
    of_run = records.files_of_entry(experiment, entry, Path("earlier"))
    assert of_run == dict.fromkeys(names[:2], b"earlier\n")
    write(Path(entry["run"]) / "train.jsonl", "{}")
    of_run = records.files_of_entry(experiment, entry, Path("earlier"))
    assert of_run == {"a_seed1.jsonl": b"{}\n"}


def test_translations_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    write_record_files(tmp_path, FILES)
    references = write(tmp_path / "test.de", "für Anne", "null")
    translated = recorded_translations(tmp_path, "a.hyp", references)
    assert translated.hypotheses == ["für Anna\r", "null"]
    assert translated.references == ["für Anne", "null"]


@pytest.mark.parametrize("size", [0, 40, -20])
def test_a_damaged_archive_is_named(tmp_path: Path, size: int) -> None:
    write_record_files(tmp_path, FILES)
    path = tmp_path / ARCHIVE
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=f"{ARCHIVE} is damaged"):
        record_file(tmp_path, "a.hyp")
