"""``vaswani prepare`` where the disk is full, a folder is read-only, or somebody is impatient."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests import archives, forks
from vaswani import cli
from vaswani.data import download, steps

ROOT = Path(__file__).resolve().parents[2]
LANGS = ["--source-lang", "en", "--target-lang", "de"]
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]
HERE = ["prepare", *OWN, "--out", "data/own"]
ALL = ["text", "tok", "codes", "bpe", "data-bin"]


def everything(folder):
    """Every file below a folder with its bytes, but for the lock."""
    files = {path for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def served(own, monkeypatch):
    """WMT14 in small, from a server; the arguments that prepare it."""
    monkeypatch.setattr(download, "PAUSE", 0.0)
    archives.offer(own / "www", 30)
    with archives.Server(own / "www") as server:
        manifest = archives.manifest(own / "www", server.base, own / "manifest.yaml")
        arguments = ["prepare", "wmt14_en_de", "--manifest", str(manifest), "--workers", "1"]
        yield server, [*arguments, "--archives", "archives", "--out", "data/own"]


@pytest.mark.parametrize("name", ["text", "tok", "codes", "bpe"])
def test_a_full_disk_in_any_stage(own, light, capsys, name):
    """What was made before stays; what is there of an earlier run too."""
    assert cli.main(HERE) == 0
    changed = {"text": ["--limit=30"], "tok": ["--ratio=3"], "codes": ["--bpe=25"], "bpe": []}
    again = [*HERE, *changed[name]]
    if name == "bpe":
        os.rename("data/own/bpe", "bpe")
    before = everything(own / "data/own")
    ended = forks.vaswani(again, partial(forks.small_files, 100))
    assert ended.code == 1 and f"there is no space left for data/own/{name}" in ended.message
    assert "Traceback" not in ended.message and everything(own / "data/own") == before
    assert cli.main(again) == 0 and not list((own / "data/own").glob("*.kept-*"))


def test_a_full_disk_while_archives_come(served, light, capsys):
    server, command = served
    ended = forks.vaswani(command, partial(forks.small_files, 1000))
    assert ended.code == 1 and "there is no space left" in ended.message.splitlines()[-1]
    assert "with --archives, and run the same command again" in ended.message
    assert cli.main(command) == 0


@pytest.mark.slow
def test_a_full_disk_in_fairseqs_part(own):
    for lang in ("en", "de"):
        lines = archives.sentences(lang, 2000, 1)
        (own / f"train.{lang}").write_text("".join(line + "\n" for line in lines))
    assert cli.main(HERE) == 0
    os.rename("data/own/data-bin", "mine")
    ended = forks.vaswani(HERE, partial(forks.small_files, 30_000))
    assert ended.code == 1 and "there is no space left for data/own/data-bin" in ended.message
    left = {path.name for path in (own / "data/own").iterdir()}
    assert left == {".stages", "recipe.yaml", *ALL[:-1]}


@pytest.mark.parametrize("place", ["data", "data/own", "data/own/.stages"])
def test_a_folder_that_cannot_be_written_is_named(own, light, capsys, place):
    """The one above it, which is there; itself; the one of markers."""
    (own / place).mkdir(parents=True)
    (own / place).chmod(0o555)
    ended = forks.vaswani(HERE, forks.plain_user)
    (own / place).chmod(0o755)
    assert ended.code == 1 and ended.message.count("\n") == 1, ended.message
    assert "the folder data/own cannot be written" in ended.message and "--out" in ended.message
    assert ".part" not in ended.message and "lock" not in ended.message
    assert cli.main(HERE) == 0


def test_archives_that_cannot_be_written_are_named(served, light, capsys, own):
    _, command = served
    (own / "archives").mkdir()
    (own / "archives").chmod(0o555)
    ended = forks.vaswani(command, forks.plain_user)
    (own / "archives").chmod(0o755)
    assert ended.code == 1 and "Traceback" not in ended.message
    last = ended.message.splitlines()[-1]
    assert "the folder archives cannot be written" in last and "--archives" in last
    assert cli.main(command) == 0


def test_text_that_cannot_be_read_is_named(own, light, capsys):
    (own / "train.en").chmod(0o000)
    ended = forks.vaswani(HERE, forks.plain_user)
    assert (ended.code, ended.message) == (1, "vaswani prepare: train.en: Permission denied\n")


def test_what_is_prepared_may_be_read_only(own, light, capsys):
    assert cli.main(HERE) == 0
    for place in ("data/own", "data/own/.stages"):
        (own / place).chmod(0o555)
    done, refused = (
        forks.vaswani([*HERE, *more], forks.plain_user) for more in ([], ["--bpe", "20"])
    )
    for place in ("data/own", "data/own/.stages"):
        (own / place).chmod(0o755)
    assert done.code == 0 and "already prepared" in done.message
    assert refused.code == 1 and "the folder data/own cannot be written" in refused.message


@pytest.mark.parametrize("name", ALL)
def test_ctrl_c_in_any_stage_loses_nothing(own, light, monkeypatch, capsys, name):
    """With half of it written: what was there stays."""
    assert cli.main(HERE) == 0
    before = everything(own / "data/own")
    functions = {"text": "text", "tok": "tokens", "codes": "codes", "bpe": "bpe"}
    function = f"make_{functions.get(name, 'data_bin')}"
    make = getattr(steps, function)

    def interrupted(*arguments):
        make(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    again = [*HERE, "--from", name]
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(steps, function, interrupted)
        assert cli.main(again) == 130
    message = capsys.readouterr().err
    assert "Traceback" not in message
    continues = name != ALL[0]  # the stages before it are kept
    assert message.endswith(f"interrupted{'; the same command continues' * continues}.\n")
    after = everything(own / "data/own")
    markers = {f".stages/{stage}.json" for stage in ALL[ALL.index(name) :]}
    assert {k: v for k, v in after.items() if k not in markers} == {
        k: v for k, v in before.items() if k not in markers
    }
    assert set(after) == set(before)
    assert cli.main(HERE) == 0, "without --from too: what was to be redone is"
    assert capsys.readouterr().err.count(": made") == len(ALL) - ALL.index(name)
    assert {k: v for k, v in everything(own / "data/own").items() if "bin" not in k} == {
        k: v for k, v in before.items() if "bin" not in k
    }


BUSY = """
from tests.unit.test_parallel import twice
from vaswani.common.processes import in_order
if __name__ == "__main__":
    print(list(in_order(twice, range(20), 2)))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into Linux' /proc")
def test_workers_are_deaf_to_ctrl_c_from_their_first_moment(tmp_path):
    """It goes to the whole terminal; the command itself is spared here, so that it can be seen."""
    (tmp_path / "busy.py").write_text(BUSY)
    process = subprocess.Popen(
        [sys.executable, "busy.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    requested = set()
    while process.poll() is None:
        for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
            try:
                for child in map(int, path.read_text().split()):
                    # not of a fork that is still our process: Python's handler would be there
                    if b"multiprocessing" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGINT)
                        requested.add(child)
            except OSError:
                continue
        time.sleep(0.002)
    out, error = process.communicate()
    assert process.returncode == 0 and error == "", error
    assert out == f"{[2 * n for n in range(20)]}\n" and len(requested) >= 2


def test_the_advice_after_a_bad_first_download_works(served, light, capsys):
    """A login page instead of two archives without a published checksum: the same command again."""
    server, command = served
    server.faults = {"dev.tgz": ["page"], "test-full.tgz": ["page"]}
    for _ in range(2):
        assert cli.main(command) == 1
        message = capsys.readouterr().err
        assert "it is a web page instead of an archive" in message
        assert "run the same command again" in message and "Traceback" not in message
    assert cli.main(command) == 0


@pytest.mark.parametrize(("again", "continues"), [([], True), (["--from", "text"], False)])
def test_a_stage_that_is_kept(own, light, monkeypatch, capsys, again, continues):
    """Only then the same command continues: ``--from text`` makes that stage again."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "make_tokens", interrupted)
    assert cli.main([*HERE, *again]) == 130
    assert ("the same command continues" in capsys.readouterr().err) == continues
